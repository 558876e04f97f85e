package accept

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// selfSigned is a server's configuration.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestTLS: what was sent arrives, however long it is; a handshake has its ration, and a Close says
// nothing and waits for nobody. A pipe keeps nothing: who writes to one that nobody reads waits.
func TestTLS(t *testing.T) {
	const bytes = 1 << 20
	ours, theirs := net.Pipe()
	server, client := NewTLS(ours, selfSigned(t)), tls.Client(theirs, &tls.Config{InsecureSkipVerify: true})
	wrote := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, bytes))
		wrote <- err
	}()
	if n, err := io.CopyN(io.Discard, server, bytes); n != bytes || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	began := time.Now()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second { // crypto/tls waits 5 s
		t.Errorf("Close took %v", took)
	}

	config := selfSigned(t)
	config.ClientAuth = tls.RequireAnyClientCert
	long := selfSigned(t).Certificates
	long[0].Certificate = append(long[0].Certificate, make([]byte, 2*MaxHandshake))
	ours, theirs = net.Pipe()
	defer theirs.Close()
	go tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, Certificates: long}).Handshake()
	server = NewTLS(ours, config)
	defer server.Close()
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, ErrRation) {
		t.Errorf("a long handshake: %v", err)
	}
}
