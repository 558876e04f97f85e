package rpcv1

import (
	"crypto/hmac"
	"crypto/sha256"
)

// KeyDigest stands for a key in reports: 8 bytes. Equal keys have equal ones with one salt; without
// the salt nobody can try out which key it is. That of an empty key is empty.
func KeyDigest(salt, key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, salt)
	mac.Write(key)
	return mac.Sum(nil)[:8]
}
