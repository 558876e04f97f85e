// Package record is the format of DEX's redo records, and the rule by which a replay finds what a
// key ends with. It knows neither frames nor sessions.
//
// A record is one change of one pair, little-endian:
//
//	offset  size  field
//	0       1     kind, see the constants
//	1       8     epoch of the range that the key was in
//	9       2     length of the key
//	11      ...   key, value or reference
//
// Put, Delete and Refer are plain: they say what the key has, whatever it had before. PutIfAbsent
// and PutIfPresent are appended before it is known what the key has. Cancel takes back a record of
// either sort, whose change was not made:
//
//	          PutIfAbsent, PutIfPresent
//	appended ---------------------------> condition unknown --- made --------> as Put
//	    |                                       |
//	    | Put, Delete, Refer                    +-- refused -- Cancel -------> as before it
//	    v
//	  made, or Cancel: as before it
//
// Of each key a replay ends with what the last record says that was not taken back (History). Keys
// that have no record after the last Load stay as they are.
//
// Group is several plain records in one: the log has all of them or none, since no record is cut.
//
// Conditions and Cancel came with version 5 of the pool's format (pool.FormatVersion). Group came
// later, without another version: a program that does not know it does not replay such a log, and
// says so.
package record

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// The kinds of records.
const (
	// Put: the key has this value now.
	Put = 1
	// Delete: the key is deleted.
	Delete = 2
	// Refer: the value of the key is in the block of this reference.
	Refer = 3
	// Load: what earlier records say of the keys of this epoch is in the memory servers, because of
	// a bulk load. It has no key.
	Load = 4
	// PutIfAbsent is as Put if the key was not there; else nothing.
	PutIfAbsent = 5
	// PutIfPresent is as Put if the key was there; else nothing.
	PutIfPresent = 6
	// Cancel: the key's record at this position is taken back. The value is the position, 8 bytes.
	Cancel = 7
	// Group: what its members say, which are plain records of different keys, each behind its
	// length of 4 bytes. It has neither an epoch nor a key.
	Group = 8
)

// FixedBytes is the length of a record without its key and value.
const FixedBytes = 11

// Entry makes the entry of a record that is no delete.
func (r *Record) Entry(lay *fence.Layout, dst []byte) []byte {
	if r.Op == Refer {
		return lay.PutReference(dst, r.Key, r.Value)
	}
	return lay.PutEntry(dst, r.Key, r.Value)
}

// Append appends a record to b.
func Append(b []byte, op byte, epoch uint64, key, value []byte) []byte {
	b = append(b, op)
	b = binary.LittleEndian.AppendUint64(b, epoch)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	return append(b, value...)
}

// Record is a decoded record. Key and value are parts of the buffer that it was decoded from.
type Record struct {
	Op         byte
	Epoch      uint64
	Key, Value []byte
}

// Decode makes r the record of b, or returns index.ErrFormat.
func (r *Record) Decode(b []byte) error {
	if len(b) < FixedBytes {
		return fmt.Errorf("redo record of %d bytes: %w", len(b), index.ErrFormat)
	}
	r.Op, r.Epoch = b[0], binary.LittleEndian.Uint64(b[1:])
	n := int(binary.LittleEndian.Uint16(b[9:]))
	if r.Op > Group {
		return fmt.Errorf("redo record of kind %d, which a later version wrote; nothing of the log is lost: start a server of that version: %w", r.Op, index.ErrFormat)
	}
	if r.Op < Put || n > len(b)-FixedBytes {
		return fmt.Errorf("redo record of kind %d with a key of %d in %d bytes: %w", r.Op, n, len(b), index.ErrFormat)
	}
	r.Key, r.Value = b[FixedBytes:FixedBytes+n], b[FixedBytes+n:]
	if r.Op == Refer && len(r.Value) != item.ReferenceBytes {
		return fmt.Errorf("redo record with a reference of %d bytes: %w", len(r.Value), index.ErrFormat)
	}
	if r.Op == Cancel && len(r.Value) != 8 {
		return fmt.Errorf("redo record that takes one back, with a position of %d bytes: %w", len(r.Value), index.ErrFormat)
	}
	return nil
}

// Overwrites reports whether a key that is there does not keep what it has.
func (r *Record) Overwrites() bool { return r.Op != PutIfAbsent }
