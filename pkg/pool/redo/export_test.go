package redo

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Behind reports whether a batch verifies that lies behind the end of the log whose node this is.
func Behind(r Ref, node []byte) bool {
	ring, size, sums := node[headBytes:], uint64(r.Bytes), sumsOf(r.Nonce)
	tail := binary.LittleEndian.Uint64(node[tailOffset:])
	at := func(position uint64) []byte {
		from := position % size
		return append(append([]byte(nil), ring[from:]...), ring[:from]...)[:min(batchBytes, size-(position-tail))]
	}
	end := tail
	for end-tail < size {
		batch, ok := verifyBatch(sums, end, at(end))
		if !ok {
			break
		}
		end = align(end + uint64(len(batch)))
	}
	for position := end + 8; position-tail < size; position += 8 {
		if _, ok := verifyBatch(sums, position, at(position)); ok {
			return true
		}
	}
	return false
}

// Nodes are those that logNodes finds.
func Nodes(p *pool.Pool, rings ...int) []pool.Addr { return logNodes(p, rings) }
