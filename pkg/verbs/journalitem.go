package verbs

import (
	"encoding/binary"
	"fmt"
)

// An Item is one change of a server's data region, as its journal sends it to a copy.
//
//	offset  size  field
//	     0     8  where the change begins: offset in the data region
//	     8     7  how many bytes change
//	    15     1  kind: 0 = they become what follows, 1 = they become zero
//	    16     n  of kind 0: the bytes, then zeros up to a multiple of 8
//
// All numbers are little-endian.
type Item struct {
	At    uint64
	Bytes int
	Data  []byte // nil = they become zero
}

// ItemHead is the size of an item's head.
const ItemHead = 16

const (
	itemBytes = 0
	itemZeros = 1

	itemKindShift = 56
)

// ItemBytes is what an item with n bytes of data takes in the stream.
func ItemBytes(n int) int { return ItemHead + (n+7)&^7 }

func (i *Item) head() (b [ItemHead]byte) {
	length := uint64(i.Bytes)
	if i.Data == nil {
		length |= itemZeros << itemKindShift
	}
	binary.LittleEndian.PutUint64(b[0:], i.At)
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
	at, n := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:])
	kind := n >> itemKindShift
	n &= 1<<itemKindShift - 1
	if kind > itemZeros || n == 0 || n > size || at > size-n || kind == itemBytes && n > MaxTransfer {
		return Item{}, 0, fmt.Errorf("a journal's item of kind %d and %d bytes at %#x, of a region of %d bytes: %w", kind, n, at, size, ErrMalformed)
	}
	i = Item{At: at, Bytes: int(n)}
	if kind == itemZeros {
		return i, ItemHead, nil
	}
	if length = ItemBytes(int(n)); length > len(b) {
		return Item{}, 0, nil
	}
	i.Data = b[ItemHead:][:n]
	return i, length, nil
}
