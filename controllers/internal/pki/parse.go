package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// Parse reads the first certificate of PEM data.
func Parse(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("read a certificate: no PEM block of that type")
	}
	return x509.ParseCertificate(block.Bytes)
}
