package engine

import (
	"bytes"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// A design that shares all keys waits for memory servers in every change, two round trips long, and
// has nothing that could be READ before. So the changes of a batch are divided among several
// sessions, by their keys, and wait side by side.
//
//   - All operations on a key are in one part, in their order, so they take effect in that order.
//   - Operations on different keys have no order among themselves. Each takes effect at a moment
//     between the arrival of the batch and its answer.
//   - A part whose session dies ends there, as a batch does: what is behind the failed operation is
//     not tried. Other parts go on. So an operation that is tried again has overtaken none on its
//     key.
//   - A part holds one session and waits for no other part meanwhile, so parts of several batches
//     do not wait for each other in a circle.
//
// A batch is not divided where that gains nothing: where operations hardly wait, as on shared
// memory, or where other requests use as many sessions already.
//
// Operations of a part are those next to each other in the order of keys, as they are likely to be
// in the same leaves.

const (
	divideMost  = 8 // parts of a batch, and sessions at work from which on none is divided
	divideLeast = 8 // operations of a part
	// how long an operation lasts at least, on average, for changes to be divided
	divideSlow = 10 * time.Microsecond
)

// Divides reports whether so many changes that arrived together should go through Do, which divides
// them. They have no order then but for each key.
func (c *Engine) Divides(changes int) bool {
	return changes >= 2*c.divideLeast && c.parts(changes) > 1
}

// parts is among how many sessions changes should be divided.
func (c *Engine) parts(changes int) int {
	if c.Sessions.Owned() || c.Sessions.load.pace.Load() < c.divideSlow.Nanoseconds() {
		return 1
	}
	return min(changes/c.divideLeast, divideMost-c.Sessions.atWork(), c.Sessions.max)
}

// atWork is how many sessions are lent.
func (g *Sessions) atWork() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lent
}

// divide divides the operations at todo into parts, if that is worth it. It returns one part, todo,
// if it is not.
func (c *Engine) divide(ops []*rpcv1.Operation, todo []int) [][]int {
	if len(todo) < 2*c.divideLeast || c.Sessions.Owned() {
		return [][]int{todo}
	}
	changes := 0
	for _, i := range todo {
		if ops[i].Kind.Traits().Changes {
			changes++
		}
	}
	n := c.parts(changes)
	if n < 2 {
		return [][]int{todo}
	}
	sorted := slices.Clone(todo)
	slices.SortStableFunc(sorted, func(i, j int) int { return bytes.Compare(ops[i].Key, ops[j].Key) })
	parts := make([][]int, 0, n)
	for at := 0; at < len(sorted); {
		end := min(at+(len(sorted)-at+n-len(parts)-1)/(n-len(parts)), len(sorted))
		for end < len(sorted) && bytes.Equal(ops[sorted[end-1]].Key, ops[sorted[end]].Key) {
			end++
		}
		parts = append(parts, sorted[at:end:end])
		at = end
	}
	return parts
}

// runLocal runs operations in sessions of this server. It returns those whose keys this server, or
// a session, does not serve yet; nothing was done for them.
func (c *Engine) runLocal(m *partition.Map, ops []*rpcv1.Operation, out []*rpcv1.Outcome, todo []int, t Timing, term uint64) (again []int) {
	parts := c.divide(ops, todo)
	if len(parts) < 2 {
		return c.inSession(m, ops, out, todo, t, term)
	}
	c.Count.Divided.Add(1)
	left := make([][]int, len(parts))
	group := env.NewWaitGroup(c.Env)
	for i := 1; i < len(parts); i++ {
		group.Go("part of a batch", func() { left[i] = c.inSession(m, ops, out, parts[i], t, term) })
	}
	left[0] = c.inSession(m, ops, out, parts[0], t, term)
	group.Wait(env.Forever) // each part ends within the limit
	for _, part := range left {
		again = append(again, part...)
	}
	return again
}
