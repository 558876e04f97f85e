// Package checker gathers what a walk through all of an index finds: where every node and every
// block lies, what they hold, and what is wrong. Each design walks its own structure.
package checker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool"
)

// maxFaults is how many faults are reported.
const maxFaults = 20

// Report is what has been found so far.
type Report struct {
	Found  index.Structure
	faults []error
}

// Fault notes something that is wrong. The walk goes on.
func (r *Report) Fault(format string, args ...any) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fmt.Errorf(format, args...))
	}
}

// Node notes the node of a kind and of so many bytes at a.
func (r *Report) Node(a pool.Addr, bytes int, kind string) {
	r.Found.Memory = append(r.Found.Memory, index.Piece{Addr: a, Bytes: bytes, Kind: kind})
	r.Found.Nodes++
	r.Found.NodeBytes += uint64(bytes)
}

// Pair notes a pair of a key and a value of so many bytes.
func (r *Report) Pair(key, value int) {
	r.Found.Pairs++
	r.Found.PairBytes += uint64(key + value)
}

// Block notes a block to which the node at a refers, and READs it with s.
func (r *Report) Block(a pool.Addr, at *blocks.Reference, s *blocks.Session) error {
	r.Found.Memory = append(r.Found.Memory, index.Piece{Addr: at.Addr, Bytes: at.Size, Kind: index.KindBlock})
	ok, err := s.Load(at)
	if err != nil {
		return err
	}
	if !ok {
		r.Fault("node %v: the block at %v is not what its entry says: %w", a, at.Addr, index.ErrFormat)
	}
	r.Found.Blocks++
	r.Found.BlockBytes += uint64(at.Size)
	return nil
}

// Finish ends a walk that has come to its end: no node or block may be there twice.
func (r *Report) Finish() {
	all := r.Found.Memory
	slices.SortFunc(all, func(a, b index.Piece) int { return cmp.Compare(a.Addr, b.Addr) })
	for i := 1; i < len(all); i++ {
		if all[i].Addr == all[i-1].Addr {
			r.Fault("node %v is in the index twice", all[i].Addr)
		}
	}
}

// Err returns the faults.
func (r *Report) Err() error { return errors.Join(r.faults...) }
