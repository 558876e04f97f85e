package resp

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/ownership"
)

// forwardQueue are the single-key commands of a pipeline whose keys belong to other servers. They
// travel together when the pipeline ends; holes says where in the replies theirs go.
type forwardQueue struct {
	ops   []*rpcv1.Operation
	holes []hole

	changes bool // some change something
	waiting bool // some are of keys that this server does not serve yet
	bytes   int  // of the operations, and at most of their outcomes

	// what is left of arrays of operations, and of their keys and values
	slab []rpcv1.Operation
	data []byte
}

// hole is the place of a reply that is still to come.
type hole struct {
	at    int // in conn.out, not counting the replies of earlier holes
	reply reply
	slot  int // of the command, for the tally
}

const maxForwards = 1024

// setsAside reports whether a command on key is set aside: its key belongs to another server, this
// one does not serve it yet, or the commands of the pipeline are divided among sessions. While
// commands are set aside, all are placed under one map, and what is served is that of one session,
// so that commands on one key keep their order even if either changes in the middle of the
// pipeline. It settles the pipeline where the map has changed or a range is about to move, and
// borrows a session.
func (c *conn) setsAside(key []byte) bool {
	own := c.s.core.View
	if own.Any {
		return c.divided
	}
	if m := own.Route(); m != c.pinned {
		c.settle()
		c.pinned = m
	}
	if c.session != nil && c.session.Hurries() {
		c.settle() // a range moves when its requests are done
	}
	if c.pinned == nil || c.homeBy != c.pinned || !c.home.Has(key) {
		if place, _ := own.Place(c.pinned, key); place != ownership.Here {
			return true
		}
		c.home, c.homeBy = c.pinned.Range(key), c.pinned
	}
	if !c.s.core.Sessions.Owned() {
		return c.divided
	}
	if c.session == nil {
		if c.forwards.waiting && !c.unopened {
			c.settle() // what the next session serves may be more than what the last one did
		}
		if c.unopened || c.borrow() != nil {
			c.forwards.waiting = true
			return true // it is told, or tried again, in its place
		}
	}
	served := c.session.Serves(key)
	c.forwards.waiting = c.forwards.waiting || !served
	return !served
}

// forwardLater puts a command off until the pipeline ends. If the buffers have no room for it, what
// was set aside before is sent first.
func (c *conn) forwardLater(op *rpcv1.Operation, by reply) {
	is := op.Kind.Traits()
	bytes := opBytes + len(op.Key) + len(op.Value) + len(op.Operand)
	if is.Value {
		bytes += c.s.core.Index.MaxValueBytes
	}
	if c.account.set(holdForwards, c.forwards.bytes+bytes) != nil {
		waiting, divided := c.forwards.waiting, c.divided
		c.settle()
		// This command still waits for its key, if that was why. Those behind it on its key still
		// follow it, if they are set aside to be divided.
		c.forwards.waiting, c.divided = waiting, divided
		if err := c.account.set(holdForwards, bytes); err != nil {
			c.fail(err)
			return
		}
	}
	c.forwards.bytes += bytes
	c.forwards.ops = append(c.forwards.ops, c.forwards.copied(op))
	c.forwards.holes = append(c.forwards.holes, hole{len(c.out), by, c.tally.Slot})
	c.forwards.changes = c.forwards.changes || is.Changes
	if len(c.forwards.ops) >= maxForwards {
		c.settle()
	}
}

// Arrays of operations that are set aside.
const (
	forwardSlab  = 16
	forwardArray = 512 // bytes of keys and values
)

// copied returns a copy of an operation. Several share an array, which is not used again: a stream
// to another server may still hold what it did not answer in time (dostream.Stream.Do).
func (a *forwardQueue) copied(from *rpcv1.Operation) *rpcv1.Operation {
	if len(a.slab) == 0 {
		a.slab = make([]rpcv1.Operation, forwardSlab)
	}
	op := &a.slab[0]
	a.slab = a.slab[1:]
	op.Kind, op.Key, op.Value = from.Kind, a.copy(from.Key), a.copy(from.Value)
	op.Condition, op.Operand, op.Number = from.Condition, a.copy(from.Operand), from.Number
	op.Expiry = from.Expiry
	return op
}

// copy returns a copy of b; nil if it is empty.
func (a *forwardQueue) copy(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if cap(a.data)-len(a.data) < len(b) {
		a.data = make([]byte, 0, max(forwardArray, len(b)))
	}
	at := len(a.data)
	a.data = append(a.data, b...)
	return a.data[at:len(a.data):len(a.data)]
}

// fillHoles puts the replies of what was set aside into their places.
func (c *conn) fillHoles(outcomes []*rpcv1.Outcome) {
	a := &c.forwards
	filled := make([]byte, 0, len(c.out)+16*len(a.holes))
	c.account.force(holdOut, cap(c.out)+cap(filled))
	from, slot := 0, c.tally.Slot // that of the command under way, before which these are run
	for i, h := range a.holes {
		filled = append(filled, c.out[from:h.at]...)
		from = h.at
		c.tally.Slot = h.slot
		filled = c.appendOutcome(filled, outcomes[i], h.reply)
	}
	c.out, c.tally.Slot = append(filled, c.out[from:]...), slot
	clear(a.ops)
	a.ops, a.holes, a.changes, a.waiting, a.bytes = a.ops[:0], a.holes[:0], false, false, 0
	c.account.force(holdForwards, 0)
	c.account.force(holdOut, cap(c.out))
}
