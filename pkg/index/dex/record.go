package dex

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// A redo record is one change of one pair, little-endian:
//
//	offset  size  field
//	0       1     1 = the key has this value now, 2 = it is deleted,
//	              3 = its value is in the block of this reference,
//	              4 = a bulk load: what earlier records say of the keys of this epoch is in the
//	              memory servers. It has no key
//	              5 = as 1, if the key was not there; else nothing
//	              6 = as 1, if the key was there; else nothing
//	              7 = the key's record at this position is taken back: the change was not made.
//	              The value is the position, 8 bytes
//	1       8     epoch of the range that the key was in
//	9       2     length of the key
//	11      ...   key, value or reference
//
// A record of 1 to 3 is plain: it says what the key has, whatever the key had before. 5 and 6 are
// appended before it is known what the key has (beside.go). 7 may follow either kind. Of each key a
// replay ends with what the last record says that was not taken back; history.go has the
// conditions. Keys that have no record after the last bulk load stay as they are.
//
// 5 to 7 came with version 5 of the pool's format (pool.FormatVersion).
const (
	recordPut    = 1
	recordDelete = 2
	recordRefer  = 3
	recordLoad   = 4
	recordFixed  = 11

	recordPutAbsent  = 5
	recordPutPresent = 6
	recordCancel     = 7
)

// entry makes the entry of a record that is no delete.
func (r *record) entry(lay *fence.Layout, dst []byte) []byte {
	if r.op == recordRefer {
		return lay.PutReference(dst, r.key, r.value)
	}
	return lay.PutEntry(dst, r.key, r.value)
}

func appendRecord(b []byte, op byte, epoch uint64, key, value []byte) []byte {
	b = append(b, op)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	return append(b, value...)
}

// record is a decoded record. Key and value are parts of the buffer that it was decoded from.
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
	if r.op < recordPut || r.op > recordCancel || n > len(b)-recordFixed {
		return fmt.Errorf("redo record of kind %d with a key of %d in %d bytes: %w", r.op, n, len(b), index.ErrFormat)
	}
	r.key, r.value = b[recordFixed:recordFixed+n], b[recordFixed+n:]
	if r.op == recordRefer && len(r.value) != item.ReferenceBytes {
		return fmt.Errorf("redo record with a reference of %d bytes: %w", len(r.value), index.ErrFormat)
	}
	if r.op == recordCancel && len(r.value) != 8 {
		return fmt.Errorf("redo record that takes one back, with a position of %d bytes: %w", len(r.value), index.ErrFormat)
	}
	return nil
}
