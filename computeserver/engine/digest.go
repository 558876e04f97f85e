package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
)

// digest is DIGEST.
func digest(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	value, is, err := s.lookupMark(op.Key, dst)
	found := CodeOf(err) != rpcv1.Outcome_NOT_FOUND
	switch {
	case err != nil && found:
		return dst, err
	case is.Type == expiry.SortedSet && len(op.Operand) > 0:
		return value, errMismatch
	case is.Type == expiry.SortedSet:
		return value, errSetDigest
	}
	h := sha256.New()
	var head [10]byte
	if found {
		head[0], head[1] = 1, byte(is.Type)
		binary.LittleEndian.PutUint64(head[2:], uint64(is.Deadline))
		h.Write(head[:])
		h.Write(value)
	}
	o.Value = h.Sum(value[:0])[:digestBytes]
	if len(op.Operand) > 0 && !bytes.Equal(op.Operand, o.Value) {
		o.Value = nil
		return value, errMismatch
	}
	return o.Value, nil
}

// DigestOfNone is the DIGEST of a key that is not there. It is not to be changed.
var DigestOfNone = func() []byte {
	sum := sha256.Sum256(nil)
	return sum[:digestBytes]
}()

// digestBytes is how long the value of a DIGEST's outcome is. No two values are known that have the
// same.
const digestBytes = 16
