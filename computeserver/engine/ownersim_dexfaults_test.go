package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
)

// dexOwner is an open DEX index with its pool. It watches that nobody takes keys which somebody
// serves who is not fenced everywhere.
type dexOwner struct {
	*pool.Pool
	w     *ownWorld
	p     *simenv.Process
	x     index.Partitioned
	taken []partition.Span
}

// falter lets the process stand still or die within what it does next, now and then, and a memory
// server with it.
func (o *dexOwner) falter(oneIn int, within time.Duration) {
	w := o.w
	switch {
	case w.quiet || w.calm || !w.OneIn(oneIn):
	case w.OneIn(3):
		w.After(w.UpTo(within), nil, o.p.Kill)
	default:
		w.After(w.UpTo(within), nil, func() {
			w.freeze(o.p, w.UpTo(4*ownLease))
			if m := w.memory[w.Random.IntN(len(w.memory))]; w.OneIn(4) {
				w.die(m)
			}
		})
	}
}

// Session implements index.Index.
func (o *dexOwner) Session() (index.Session, error) {
	s, err := o.x.Session()
	return &dexSession{Session: s, o: o}, err
}

// dexSession is a session whose process may stand still or die within a write, or while it waits
// for the log.
type dexSession struct {
	index.Session
	o       *dexOwner
	changed uint64 // the position after the last change
}

// Position implements index.Session.
func (s *dexSession) Position() uint64 {
	position := s.Session.Position()
	if position > 0 && s.o.w.wrong == readNotHeld {
		return s.changed
	}
	return position
}

// Durable implements index.Session.
func (s *dexSession) Durable(position uint64) error {
	if s.o.w.wrong == replyEarly {
		return nil
	}
	s.linger()
	return s.Session.Durable(position)
}

// linger lets a session be slow before it waits for the log, at times, and its process stand still
// or die meanwhile: others may have seen what it did, which is not durable.
func (s *dexSession) linger() {
	w, oneIn := s.o.w, 20
	if w.wide.is {
		oneIn = 500
	}
	if w.quiet || w.calm || !w.OneIn(6) {
		return
	}
	if w.ids == 0 { // else ever more clients would die than others adopt the chunks of
		s.o.falter(oneIn, 10*time.Millisecond)
	}
	s.o.p.Sleep(w.UpTo(10 * time.Millisecond))
}

func (s *dexSession) falter() {
	oneIn := 60
	if s.o.w.wide.is { // many more are asked for
		oneIn = 1500
	}
	s.o.falter(oneIn, 20*time.Microsecond)
}

// change lets the process falter in a change, and notes its position.
func (s *dexSession) change() (end func()) {
	s.falter()
	return func() { s.changed = s.Session.Position() }
}

// Insert implements index.Session.
func (s *dexSession) Insert(key, value []byte) error {
	defer s.change()()
	return s.Session.Insert(key, value)
}

// Update implements index.Session.
func (s *dexSession) Update(key, value []byte) error {
	defer s.change()()
	return s.Session.Update(key, value)
}

// Upsert implements index.Session.
func (s *dexSession) Upsert(key, value []byte) error {
	defer s.change()()
	return s.Session.Upsert(key, value)
}

// Delete implements index.Session.
func (s *dexSession) Delete(key []byte) error {
	defer s.change()()
	return s.Session.Delete(key)
}

// Modify implements index.Session.
func (s *dexSession) Modify(key []byte, change index.Change) error {
	defer s.change()()
	return s.Session.Modify(key, change)
}

// Take implements index.Partitioned.
func (o *dexOwner) Take(r pool.Holding) error {
	for _, other := range o.w.dex.serving {
		for _, s := range other.taken {
			if _, _, ok := keyrange.Intersect(s.Start, s.End, r.Start, r.End); ok && other != o {
				o.w.mustBeFenced(other.Client(), o.Client(), r)
			}
		}
	}
	if o.w.wrong == settleFirst {
		if err := o.Settle(r.Start, r.End, r.Epoch); err != nil {
			return err
		}
	}
	o.w.counts.replays += len(r.Inherits)
	o.w.beside(o.p, r.Start, r.End)
	if !o.w.dooms(o.p, r) {
		o.falter(12, time.Millisecond)
	}
	err := o.x.Take(r)
	if err == nil {
		o.taken = append(o.taken, partition.Span{Start: r.Start, End: r.End})
		if !slices.Contains(o.w.dex.serving, o) {
			o.w.dex.serving = append(o.w.dex.serving, o)
		}
	}
	return err
}

// mustBeFenced complains unless a client that had the keys of r is fenced at all memory servers. Or
// the one that takes them is: it stood still since they were granted to it, does not know yet, and
// nothing of it takes effect.
func (w *ownWorld) mustBeFenced(client, by uint32, r pool.Holding) {
	if id, err := w.notFencedAt(client); id != 0 {
		if of, _ := w.notFencedAt(by); of != 0 {
			w.Report("client %d takes keys %s, which client %d serves, who is not fenced at memory server %d (%v)", by, partition.Interval(r.Start, r.End), client, id, err)
		}
	}
}

// notFencedAt is a memory server where a client is not fenced, and what the server says of it; 0 =
// there is none.
func (w *ownWorld) notFencedAt(client uint32) (uint16, error) {
	for _, m := range w.memory {
		if m.step == comes {
			continue // nothing is there
		}
		stored, err := ledger.Decode(m.disk.Stored)
		if err == nil {
			err = stored.Live(ownIndex, client)
		}
		if m.step == isMember && errors.Is(err, ledger.ErrUnknownClient) {
			continue // it was fenced at the home before it could connect there
		}
		if !errors.Is(err, ledger.ErrFenced) {
			return m.id, err
		}
	}
	return 0, nil
}

// Give implements index.Partitioned.
func (o *dexOwner) Give(start, end []byte) (int, error) {
	o.w.counts.gives++
	o.w.beside(o.p, start, end)
	o.falter(12, 100*time.Microsecond)
	if err := o.w.isFull(); err != nil {
		return 0, err
	}
	written, err := o.x.Give(start, end)
	if err == nil {
		var kept []partition.Span
		for _, s := range o.taken {
			if _, to, ok := keyrange.Intersect(s.Start, s.End, nil, start); ok && len(start) > 0 {
				kept = append(kept, partition.Span{Start: s.Start, End: to})
			}
			if from, to, ok := keyrange.Intersect(s.Start, s.End, end, nil); ok && len(end) > 0 {
				kept = append(kept, partition.Span{Start: from, End: to})
			}
		}
		o.taken = kept
	}
	return written, err
}

func (o *dexOwner) Log() []byte { return o.x.Log() }

func (o *dexOwner) BulkLoad(pairs index.Pairs, parallel int) error {
	return o.x.BulkLoad(pairs, parallel)
}

func (o *dexOwner) Stats() index.Stats { return o.x.Stats() }

// Close implements index.Index.
func (o *dexOwner) Close() error {
	o.w.dex.open = slices.DeleteFunc(o.w.dex.open, func(other *dexOwner) bool { return other == o })
	return errors.Join(o.x.Close(), o.Pool.Close())
}
