// Package audit compares what an index says it consists of with what its clients allocated: nothing
// of it lies outside of the nodes that the chunks' tables say, no two parts overlap, none is in the
// hands of a client that would hand it out, and what is allocated without being a part is counted.
// It is for tests.
package audit

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/dmindex/dmindex/pkg/pool"
)

// Chunk is a chunk that is handed out, with its content.
type Chunk struct {
	First  pool.Addr
	Client uint32 // to whom
	Memory []byte
}

// Nodes are those of all slabs that the chunk's table says.
func (k *Chunk) Nodes() iter.Seq2[pool.Addr, []byte] {
	slabs, _ := pool.Slabs(k.Memory, k.First, uint64(len(k.Memory)))
	return func(yield func(pool.Addr, []byte) bool) {
		for _, s := range slabs {
			for n := range s.Nodes {
				a := s.First + pool.Addr(n*s.NodeBytes)
				if !yield(a, k.Memory[a-k.First:][:s.NodeBytes]) {
					return
				}
			}
		}
	}
}

// Node is a node that is no part of the index, and in nobody's hands.
type Node struct {
	Addr   pool.Addr
	Memory []byte
	Client uint32 // whose chunk it lies in
	Living bool   // that client is among the pools
	Dead   bool   // it is marked as dead, and its owner, who lives, finds it one day
}

// Report is what became of the nodes of all chunks.
type Report struct {
	Parts int
	Free  int    // available to living clients, or in chunks that these are adopting
	Lost  []Node // all others
}

// part is a part of an index.
type part struct {
	addr  pool.Addr
	bytes int
}

// Compare compares the parts of an index, addresses and bytes, with the chunks of its clients.
// pools are those that live.
func Compare(chunks []Chunk, of iter.Seq2[pool.Addr, int], pools []*pool.Pool) (r Report, err error) {
	owners := map[uint32]*pool.Pool{}
	for _, p := range pools {
		owners[p.Client()] = p
	}
	var parts []part
	for a, bytes := range of {
		parts = append(parts, part{a, bytes})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.addr, b.addr) })
	for i := 1; i < len(parts); i++ {
		if before := parts[i-1]; before.addr+pool.Addr(before.bytes) > parts[i].addr {
			return r, fmt.Errorf("node %v of %d bytes overlaps node %v, and both are parts of the index", before.addr, before.bytes, parts[i].addr)
		}
	}
	for _, k := range chunks {
		if _, unknown := pool.Slabs(k.Memory, k.First, uint64(len(k.Memory))); unknown > 0 {
			return r, fmt.Errorf("the table of chunk %v has %d words that say nothing", k.First, unknown)
		}
		owner := owners[k.Client]
		for a, node := range k.Nodes() {
			at, is := slices.BinarySearchFunc(parts, a, func(p part, a pool.Addr) int { return cmp.Compare(p.addr, a) })
			state := pool.NodeUnknown
			if owner != nil {
				state = owner.NodeState(a, len(node))
			}
			switch {
			case is && state == pool.NodeAvailable:
				return r, fmt.Errorf("node %v is a part of the index, and its owner, client %d, would hand it out", a, k.Client)
			case is && parts[at].bytes > len(node):
				return r, fmt.Errorf("the index has %d bytes at %v, where a node has %d", parts[at].bytes, a, len(node))
			case is:
				r.Parts++
			case owner != nil && state != pool.NodeInUse:
				r.Free++
			default:
				r.Lost = append(r.Lost, Node{a, node, k.Client, owner != nil, owner != nil && owner.Marked(a, node)})
			}
		}
	}
	if r.Parts != len(parts) {
		return r, fmt.Errorf("of %d parts of the index %d are nodes of chunks", len(parts), r.Parts)
	}
	return r, nil
}
