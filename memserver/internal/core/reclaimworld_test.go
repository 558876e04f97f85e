package core

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Reclamation in the fence world: holders read addresses out of a tree, take nodes out of it, use
// them again by the rule of pool.EpochTable, and adopt chunks of the dead. The judge knows who may
// still follow which address, and who has which chunk.

const (
	simNodes  = 6
	simChunks = 4
)

// estate is the judge's knowledge.
type estate struct {
	inTree [simNodes]bool
	// nodes that the dead took out: a client that finds one notes it as its own
	left    map[int]bool
	readers [simClients]*simReader  // by client
	cut     [simClients]bool        // the provider said that nothing of it takes effect any more
	said    map[uint32]uint64       // what clients told this process of the server that they passed
	chunks  [simChunks + 1]simChunk // by number
	reused  int
	adopted int
}

type simChunk struct {
	owner uint32
	node  uint32
}

// simReader is what a holder knows of reclamation.
type simReader struct {
	learned, passed, safe uint64
	// when it learned of learned; as all times here on the world's clock
	learnedAt time.Duration
	holds     [simNodes]bool
	got       [simNodes]time.Duration
	garbage   map[int]uint64 // node: the epoch noted when it was out
}

func newEstate() estate {
	e := estate{left: map[int]bool{}}
	for n := range e.inTree {
		e.inTree[n] = true
	}
	return e
}

// served is called when a process of the server begins to serve: of those whom it found it knows
// nothing.
func (e *estate) served(l *ledger.Ledger) {
	e.said = map[uint32]uint64{}
	all, _ := l.Clients(simIndex, "")
	for _, c := range all {
		if !c.Fenced {
			e.said[c.Number] = 0
		}
	}
	for _, id := range l.Unfinished(simIndex) {
		e.said[id] = 0
	}
}

// cutOff is called when the provider said that clients are quiet. What they took out is found by
// others.
func (w *fenceWorld) cutOff(match func(verbs.Peer) bool) {
	for id := range w.cut {
		if !match(verbs.Peer{Index: simIndex, Client: uint16(id)}) || w.cut[id] {
			continue
		}
		w.record(func() { w.uncut(id) })
		w.cut[id] = true
		if r := w.readers[id]; r != nil {
			for n := range simNodes {
				if _, is := r.garbage[n]; is {
					w.left[n] = true
				}
			}
		}
	}
}

// uncut takes cutOff back for a client, which lives again. It keeps the nodes that nobody found.
func (w *fenceWorld) uncut(id int) {
	w.cut[id] = false
	if r := w.readers[id]; r != nil {
		for n := range simNodes {
			if _, is := r.garbage[n]; is && !w.left[n] {
				delete(r.garbage, n)
			}
			delete(w.left, n)
		}
	}
}

// join is a connect that is about to be answered.
func (e *estate) join(id uint32, epoch uint64) {
	if _, known := e.said[id]; !known {
		e.said[id] = epoch
	}
}

// learn is told of an epoch.
func (h *simHolder) learn(epoch uint64) {
	r := h.w.readers[h.id]
	if r == nil {
		r = &simReader{garbage: map[int]uint64{}, passed: epoch}
		h.w.readers[h.id] = r
	}
	if epoch > r.learned {
		r.learned, r.learnedAt = epoch, h.w.Now()
	}
}

// epochs is what the holder says with its renewal; often it has dropped what it had to.
func (h *simHolder) epochs() (e pool.Epochs) {
	r := h.w.readers[h.id]
	if h.random.IntN(4) > 0 {
		for n := range simNodes {
			r.holds[n] = r.holds[n] && (r.got[n] >= r.learnedAt || h.w.wrong == hoarder)
		}
		r.passed = r.learned
	}
	e.Passed = r.passed
	for _, noted := range r.garbage {
		e.Wanted = max(e.Wanted, noted+2)
	}
	return e
}

// renewed looks at an answer of the server before it goes out.
func (w *fenceWorld) renewed(id uint32, e pool.Epochs, r pool.Renewal) {
	for other := range uint32(simClients) {
		if passed, known := w.said[other]; known && !w.cut[other] && r.Safe > passed {
			w.Report("client %d hears that epoch %d is safe, client %d has passed %d", id, r.Safe, other, passed)
		}
	}
	if r.Epoch < e.Passed || r.Safe > r.Epoch {
		w.Report("client %d says %+v and hears %+v", id, e, r)
	}
}

// reclaim does something with nodes or chunks.
func (h *simHolder) reclaim() {
	w, r, n := h.w, h.w.readers[h.id], h.random.IntN(simNodes)
	if w.cut[h.id] {
		return // it may not know, but it reaches no tree any more
	}
	for n := range simNodes {
		h.reuse(n)
	}
	switch {
	case h.random.IntN(12) == 0:
		h.allocate()
	case w.left[n]:
		delete(w.left, n)
		r.garbage[n] = r.learned
	case !w.inTree[n]:
	case h.random.IntN(4) == 0:
		w.inTree[n] = false
		r.garbage[n] = r.learned
	default:
		r.holds[n], r.got[n] = true, w.Now()
	}
}

// reuse puts a node back into the tree if the holder took it out and nobody can hold its address
// any more.
func (h *simHolder) reuse(n int) {
	w, r := h.w, h.w.readers[h.id]
	noted, mine := r.garbage[n]
	after := uint64(2)
	if w.wrong == early {
		after = 1
	}
	if !mine || r.safe < noted+after {
		return
	}
	for id, other := range w.readers {
		if other != nil && !w.cut[id] && other.holds[n] {
			w.Report("client %d uses node %d again, which it took out in epoch %d, at safe %d; client %d holds its address since %v",
				h.id, n, noted, r.safe, id, other.got[n])
		}
	}
	delete(r.garbage, n)
	w.inTree[n] = true
	w.reused++
}

// allocate takes a chunk, mostly one of the dead.
func (h *simHolder) allocate() {
	node, adopt := uint32(64<<h.random.IntN(2)), h.random.IntN(4) > 0
	_ = h.w.call(h.Process, simLease/4, func(c *Core) (err error) {
		var number uint32
		if adopt {
			number, err = c.Adopt(simIndex, h.id, node)
		} else {
			err = c.Accounts.Change(Grow, func(l *ledger.Ledger) error { number, err = l.Allocate(simIndex, h.id, node); return err })
		}
		if err == nil {
			h.w.given(number, h.id, node, adopt)
		}
		return err
	})
}

// given is told that a chunk is about to be answered.
func (w *fenceWorld) given(number uint32, id uint32, node uint32, adopt bool) {
	was := w.chunks[number]
	switch {
	case adopt && was.owner == 0: // whoever had it before never heard of it
	case was.owner != 0 && (!adopt || !w.cut[was.owner] || was.node != node):
		w.Report("client %d gets chunk %d for nodes of %d bytes; client %d has it for nodes of %d", id, number, node, was.owner, was.node)
	}
	if adopt {
		w.adopted++
	}
	w.record(func() { w.chunks[number] = was })
	w.chunks[number] = simChunk{id, node}
}

var errStranger = errors.New("the server does not know what this client passed")

// renew makes one renewal.
func (h *simHolder) renew() error {
	e := h.epochs()
	var r pool.Renewal
	err := h.w.call(h.Process, simLease/4, func(c *Core) (err error) {
		h.w.said[h.id] = max(h.w.said[h.id], e.Passed)
		if r, err = c.Renew(simIndex, h.id, e); err == nil {
			h.w.renewed(h.id, e, r)
		}
		return err
	})
	switch {
	case errors.Is(err, pool.ErrEpoch):
		return errStranger
	case err == nil:
		h.learn(r.Epoch)
		own := h.w.readers[h.id]
		own.safe = max(own.safe, r.Safe)
	}
	return err
}
