package indexsim

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// Memory that was used before has what lay there, dead marks among it, and a design that takes a
// node for what it is about to become is wrong only there. So runs do not begin with memory that is
// zero: every client has nodes that were given back, and finds chunks of one that ended.

// usedNodes is how many nodes of each size a client gives back when it opens.
const usedNodes = 6

// sourceWaits is how long the source of a bulk load waits at most, for memory that comes back.
const sourceWaits = 2 * time.Millisecond

// usedSizes are the sizes of nodes that memory was used for: all that leaves, blocks and the small
// nodes of SMART take in simulations, and the nodes of a tree.
func usedSizes(nodeBytes int) (sizes []int) {
	for size := 64; size <= 576; size += 64 {
		sizes = append(sizes, size)
	}
	if nodeBytes > 576 {
		sizes = append(sizes, nodeBytes)
	}
	return sizes
}

// UseMemory lets the client of pl use some nodes of each size, mark them dead and give them back:
// they are the next ones to be handed out. ErrPoolFull is no error.
func UseMemory(pl *pool.Pool, sizes []int, nodes int) error {
	s, err := pl.NewSession(unit.DeadBytes)
	if err != nil {
		return err
	}
	defer s.Close()
	mark, err := s.Buffer(unit.DeadBytes)
	if err != nil {
		return err
	}
	s.Begin()
	defer s.End()
	for _, size := range sizes {
		var used []pool.Addr
		for range nodes {
			a, err := pl.AllocateBlock(size, pool.Nil)
			if errors.Is(err, pool.ErrPoolFull) {
				break
			}
			if err != nil {
				return err
			}
			used = append(used, a)
			s.Write(pool.Sole, a, mark[:unit.PutDead(mark, a, 1, unit.NewVersion(pl.Env()))])
			if err := s.Post(); err != nil {
				return err
			}
		}
		for _, a := range used {
			pl.Free(a, size)
		}
	}
	return nil
}

// predecessor is a client that uses memory and ends, before any other client comes: what it leaves
// is adopted.
func predecessor(c *poolsim.Cluster, p *simenv.Process, sizes []int) (err error) {
	proc, over := p.World().NewProcess("predecessor"), p.NewEvent()
	proc.Go("main", func() {
		defer over.Set()
		var pl *pool.Pool
		if pl, err = c.Open(proc); err == nil {
			err = errors.Join(UseMemory(pl, sizes, usedNodes), pl.Close())
		}
	})
	over.Wait(env.Forever)
	if err != nil {
		return fmt.Errorf("a client that uses memory and ends: %w", err)
	}
	return nil
}

// Garbage lets the client of pl retire a node, and waits until it comes back, for no longer than
// limit: so sweeps are made meanwhile. It reports whether the node came back.
func Garbage(pl *pool.Pool, limit time.Duration) bool {
	const size = 64
	a, err := pl.AllocateBlock(size, pool.Nil)
	if err != nil {
		return false
	}
	before, e := pl.Reclaimed(), pl.Env()
	pl.Retire(a, size)
	for deadline := env.Deadline(e, limit); pl.Reclaimed() == before; {
		left := env.Remaining(e, deadline)
		if left <= 0 {
			return false
		}
		e.Sleep(min(left, limit/64+1))
	}
	return true
}
