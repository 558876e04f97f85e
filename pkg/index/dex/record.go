package dex

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
)

// A redo record is one change of one pair, little-endian:
//
//	offset  size  field
//	0       1     1 = the key has this value now, 2 = it is deleted
//	1       8     epoch of the range that the key was in
//	9       2     length of the key
//	11      ...   key, value
//
// Whoever replays records in their order ends with what the last one of each key says, whatever the pages had before.
const (
	recordPut    = 1
	recordDelete = 2
	recordFixed  = 11
)

func appendRecord(b []byte, op byte, epoch uint64, key, value []byte) []byte {
	b = append(b, op)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	return append(b, value...)
}

// record is a decoded one. Key and value are parts of what it was decoded from.
type record struct {
	op         byte
	epoch      uint64
	key, value []byte
}

func (r *record) decode(b []byte) error {
	if len(b) < recordFixed {
		return fmt.Errorf("redo record of %d bytes: %w", len(b), index.ErrFormat)
	}
	r.op, r.epoch = b[0], binary.LittleEndian.Uint64(b[1:])
	n := int(binary.LittleEndian.Uint16(b[9:]))
	if r.op != recordPut && r.op != recordDelete || n > len(b)-recordFixed {
		return fmt.Errorf("redo record of kind %d with a key of %d in %d bytes: %w", r.op, n, len(b), index.ErrFormat)
	}
	r.key, r.value = b[recordFixed:recordFixed+n], b[recordFixed+n:]
	return nil
}
