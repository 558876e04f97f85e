package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ItemKind says what an item is.
type ItemKind uint8

// Kinds of items.
const (
	// ItemData: bytes of the data region become what follows.
	ItemData ItemKind = iota
	// ItemZeros: they become zero.
	ItemZeros
	// ItemLedger replaces the middle of the ledger.
	ItemLedger
	// ItemMark says what a copy has (Journal.Mark).
	ItemMark
	// ItemLedgerPart is a part of a whole ledger. A copy that has a ledger passes it over.
	ItemLedgerPart
	// ItemLedgerWhole replaces the middle of what the parts before made, and that is the ledger. A
	// copy that has a ledger passes it over; one that has none passes ItemLedger over.
	ItemLedgerWhole
	// ItemSum says what the CRC-32C of bytes of the data region is. A copy that has no ledger may
	// lack those bytes, and passes it over.
	ItemSum
)

// changes reports whether an item changes the data region.
func (k ItemKind) changes() bool { return k <= ItemZeros }

// An Item is one change of a server's data region or of its ledger, or what the server says of
// them, as its journal sends it to copies.
//
//	offset  size  field
//	     0     8  where bytes of the data region or of a ledger begin: an offset in it; of a mark
//	              the number of the join
//	     8     7  how many bytes they are; 0 for a mark. Of a sum: 3 bytes, then the 4 of the CRC
//	    15     1  kind
//	    16     n  the bytes, then zeros up to a multiple of 8; none for zeros, marks and sums
//
// An item that replaces the middle of a ledger begins with two numbers of 4 bytes: how much of the
// ledger stays before the bytes that follow, and how much behind them. Where the highest bit of the
// length is set, what follows are edits of what is between (AppendEdits), and not all of it. A sum
// is of at most MaxTransfer bytes.
//
// All numbers are little-endian.
type Item struct {
	Kind  ItemKind
	At    uint64
	Bytes int
	Data  []byte

	Head, Tail uint32 // of ItemLedger and ItemLedgerWhole, whose At and Bytes are 0
	Edits      bool   // of those two: Data are edits
	CRC        uint32 // of ItemSum
}

// ItemHead is the size of an item's head, MaxItem the length of the longest data of one.
const (
	ItemHead = 16
	MaxItem  = 2 * MaxTransfer
)

const (
	itemKindShift = 56
	sumShift      = 24
	itemEdits     = 1 << (itemKindShift - 1)
)

// ItemBytes is what an item with n bytes of data takes in the stream.
func ItemBytes(n int) int { return ItemHead + (n+7)&^7 }

func (i *Item) head() (b [ItemHead]byte) {
	first, length := i.At, uint64(i.Bytes)
	switch i.Kind {
	case ItemLedger, ItemLedgerWhole:
		first, length = uint64(i.Head)|uint64(i.Tail)<<32, uint64(len(i.Data))
		if i.Edits {
			length |= itemEdits
		}
	case ItemLedgerPart:
		length = uint64(len(i.Data))
	case ItemSum:
		length |= uint64(i.CRC) << sumShift
	}
	binary.LittleEndian.PutUint64(b[0:], first)
	binary.LittleEndian.PutUint64(b[8:], length|uint64(i.Kind)<<itemKindShift)
	return b
}

// NextItem returns the item that a part of a stream begins with, and how long it is there. Its data
// lies in b. Length 0 says that b ends within the item. An error says that b is no stream of
// changes of a region of size bytes.
func NextItem(b []byte, size uint64) (i Item, length int, err error) {
	if len(b) < ItemHead {
		return Item{}, 0, nil
	}
	first, n := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	i.Kind = ItemKind(n >> itemKindShift)
	n &= 1<<itemKindShift - 1
	if i.Kind == ItemSum {
		i.CRC = uint32(n >> sumShift)
		n &= 1<<sumShift - 1
	}
	if i.Kind == ItemLedger || i.Kind == ItemLedgerWhole {
		i.Edits = n&itemEdits != 0
		n &^= itemEdits
	}
	within := n > 0 && n <= size && first <= size-n
	right, follow := false, n
	switch i.Kind {
	case ItemData:
		right = within && n <= MaxTransfer
		i.At, i.Bytes = first, int(n)
	case ItemZeros:
		right, follow = within, 0
		i.At, i.Bytes = first, int(n)
	case ItemSum:
		right, follow = within && n <= MaxTransfer, 0
		i.At, i.Bytes = first, int(n)
	case ItemMark:
		right = n == 0
		i.At = first
	case ItemLedgerPart:
		right = n <= MaxItem
		i.At = first
	case ItemLedger, ItemLedgerWhole:
		right = n <= MaxItem
		i.Head, i.Tail = uint32(first), uint32(first>>32)
	}
	if !right {
		return Item{}, 0, fmt.Errorf("a journal's item of kind %d and %d bytes at %#x, of a region of %d bytes: %w", i.Kind, n, first, size, ErrMalformed)
	}
	if length = ItemBytes(int(follow)); length > len(b) {
		return Item{}, 0, nil
	}
	if follow > 0 {
		i.Data = b[ItemHead:][:follow]
	}
	return i, length, nil
}

// Replica is what a copy makes of the items that it gets, in order.
type Replica struct {
	// Memory is the data region.
	Memory []byte
	// File is what Memory maps; nil = all goes through the mapping. Long changes are written to it,
	// since a page that is touched first in a mapping costs a fault.
	File io.WriterAt
	// Ledger is what the server stored last. Known says that it is the server's ledger, and Memory
	// its whole memory; before that they are what came of it.
	Ledger []byte
	Known  bool

	spare []byte // of what was the ledger
}

// ErrDiffers is returned where the memory of a copy is not what the server's is.
var ErrDiffers = errors.New("the copy differs from the memory that it is a copy of")

var sums = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C of b, as items have it.
func Sum(b []byte) uint32 { return crc32.Checksum(b, sums) }

// manyPages is from how many bytes on memory is written to the file that it maps.
const manyPages = 8 << 12

// Put puts data at an offset of the memory, which has room for it. After an error part of it may be
// there.
func (r *Replica) Put(at uint64, data []byte) error {
	if r.File == nil || len(data) < manyPages {
		copy(r.Memory[at:], data)
		return nil
	}
	if _, err := r.File.WriteAt(data, int64(at)); err != nil {
		return fmt.Errorf("write %d bytes of the memory at %#x: %w: is there as much memory as the region has?", len(data), at, err)
	}
	return nil
}

// Apply applies an item of [NextItem] for a region of the size of the memory. After an error
// nothing has changed, but for one of Put.
func (r *Replica) Apply(i *Item) error {
	switch i.Kind {
	case ItemData:
		return r.Put(i.At, i.Data)
	case ItemZeros:
		clear(r.Memory[i.At:][:i.Bytes])
	case ItemLedgerPart:
		if r.Known {
			return nil
		}
		if i.At != uint64(len(r.Ledger)) {
			if i.At != 0 {
				return fmt.Errorf("a journal's item is part %d of a ledger, of which the copy has %d bytes: %w", i.At, len(r.Ledger), ErrMalformed)
			}
			r.Ledger = r.Ledger[:0] // it is sent anew
		}
		r.Ledger = append(r.Ledger, i.Data...)
	case ItemLedger, ItemLedgerWhole:
		if r.Known == (i.Kind == ItemLedgerWhole) {
			return nil
		}
		if uint64(i.Head)+uint64(i.Tail) > uint64(len(r.Ledger)) {
			return fmt.Errorf("a journal's item leaves %d and %d bytes of a ledger of %d: %w", i.Head, i.Tail, len(r.Ledger), ErrMalformed)
		}
		middle := r.Ledger[i.Head : len(r.Ledger)-int(i.Tail)]
		next := append(r.spare[:0], r.Ledger[:i.Head]...)
		if i.Edits {
			var err error
			if next, err = applyEdits(next, middle, i.Data); err != nil {
				return err
			}
		} else {
			next = append(next, i.Data...)
		}
		next = append(next, r.Ledger[len(r.Ledger)-int(i.Tail):]...)
		r.Ledger, r.spare, r.Known = next, r.Ledger, true
	case ItemSum:
		if !r.Known { // the ledger is the last that a copy gets that joins
			return nil
		}
		if here := Sum(r.Memory[i.At:][:i.Bytes]); here != i.CRC {
			return fmt.Errorf("%d bytes at %#x have the sum %#x, and %#x where they come from: %w", i.Bytes, i.At, here, i.CRC, ErrDiffers)
		}
	}
	return nil
}
