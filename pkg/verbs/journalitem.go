package verbs

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// An Item is one change of a server's data region, or of its ledger, as its journal sends it to a
// copy.
//
//	offset  size  field
//	     0     8  where the change begins: offset in the data region
//	     8     7  how many bytes change
//	    15     1  kind: 0 = they become what follows, 1 = they become zero, 2 = of the ledger
//	    16     n  of kinds 0 and 2: the bytes, then zeros up to a multiple of 8
//
// An item of kind 2 replaces the middle of the ledger: its first 4 bytes say how much of the ledger
// stays before the bytes that follow, the next 4 how much stays behind them.
//
// All numbers are little-endian.
type Item struct {
	At    uint64
	Bytes int
	Data  []byte // nil = they become zero

	Ledger     bool // a change of the ledger: At and Bytes are 0
	Head, Tail uint32
}

// ItemHead is the size of an item's head, MaxItem the length of the longest data of one.
const (
	ItemHead = 16
	MaxItem  = 2 * MaxTransfer
)

const (
	itemBytes  = 0
	itemZeros  = 1
	itemLedger = 2

	itemKindShift = 56
)

// ItemBytes is what an item with n bytes of data takes in the stream.
func ItemBytes(n int) int { return ItemHead + (n+7)&^7 }

func (i *Item) head() (b [ItemHead]byte) {
	first, length := i.At, uint64(i.Bytes)
	switch {
	case i.Ledger:
		first, length = uint64(i.Head)|uint64(i.Tail)<<32, uint64(len(i.Data))|itemLedger<<itemKindShift
	case i.Data == nil:
		length |= itemZeros << itemKindShift
	}
	binary.LittleEndian.PutUint64(b[0:], first)
	binary.LittleEndian.PutUint64(b[8:], length)
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
	kind := n >> itemKindShift
	n &= 1<<itemKindShift - 1
	within := n > 0 && n <= size && first <= size-n
	switch {
	case kind == itemZeros && within:
		return Item{At: first, Bytes: int(n)}, ItemHead, nil
	case kind == itemBytes && within && n <= MaxTransfer:
		i = Item{At: first, Bytes: int(n)}
	case kind == itemLedger && n <= MaxItem:
		i = Item{Ledger: true, Head: uint32(first), Tail: uint32(first >> 32)}
	default:
		return Item{}, 0, fmt.Errorf("a journal's item of kind %d and %d bytes at %#x, of a region of %d bytes: %w", kind, n, first, size, ErrMalformed)
	}
	if length = ItemBytes(int(n)); length > len(b) {
		return Item{}, 0, nil
	}
	i.Data = b[ItemHead:][:n]
	return i, length, nil
}

// Splice is what a change of the ledger makes of it. An error says that the item is of another
// ledger. dst may be old.
func (i *Item) Splice(dst, old []byte) ([]byte, error) {
	if uint64(i.Head)+uint64(i.Tail) > uint64(len(old)) {
		return nil, fmt.Errorf("a journal's item leaves %d and %d bytes of a ledger of %d: %w", i.Head, i.Tail, len(old), ErrMalformed)
	}
	return slices.Replace(append(dst[:0], old...), int(i.Head), len(old)-int(i.Tail), i.Data...), nil
}
