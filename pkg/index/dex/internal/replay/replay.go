// Package replay writes the logs of dead clients into a range that this client takes. It knows the
// tree, the records and the format of leaves; it knows no cache and no sessions of users, because
// nobody uses the range before it is taken.
//
//	logs, by epoch        History of each key     changes, by key
//	+------+ +------+                             +---+---+---+---+---+
//	| 1  3 | | 7    | --> Add, Add, Outcome  -->  | a | c | d | k | m |
//	+------+ +------+                             +---+---+---+---+---+
//	                                                \  |  |     \   |
//	                                                 leaf A      leaf B
//	READ, torn slots repaired (torn.go), edited as a frame is, written back. A change without
//	room, or whose leaf is elsewhere: the tree's own operation; without memory: the next pass
//
// A replay writes what each key ends with by the logs, in key order, so leaf by leaf. Several
// leaves below one inner node are READ together, changed here, and written back together, each by
// the requests of a flush, in the same order. No other client changes these leaves: their owner is
// fenced, its unfinished changes are repaired, and the leaves were divided where the range ends. So
// a client that dies in between leaves valid leaves, some of them with their changes; the next one
// repeats all of it.
//
// If a leaf has no room, or is not where the inner node says, the key is written by the tree's own
// operation, and the search starts again for the next keys. Changes that find no memory are
// deferred (passes.go).
package replay

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// replayLeaves bounds the leaves that are READ together.
const replayLeaves = 16

// change is what a key ends with by the logs (record.History).
type change struct {
	key string
	record.Record
}

// Config is what a replay needs of its index.
type Config struct {
	Pool *pool.Pool
	Env  env.Env
	Lay  *fence.Layout
	// Condemn gives this client up, after requests whose effect is unknown, and returns an error
	// that says so.
	Condemn func(err error) error
}

// Torn counts torn slots that were repaired: in leaves of the range, and in those that were changed
// under their locks.
type Torn struct{ Within, Locked int64 }

// Run applies the logs to the keys of r, by the session s, and divides the leaves at its ends,
// which are fences. After an error nothing is lost: the logs are unchanged, and the next one begins
// anew.
func Run(c Config, s *slottedtree.Session, r *pool.Holding, ends [][]byte) (Torn, error) {
	changes, err := c.changes(r.Inherits)
	if err != nil {
		return Torn{}, err
	}
	p := replayer{Config: c, s: s, ends: ends, replays: len(changes) > 0, logs: r.Inherits, known: changes,
		taken: ranges.Of(ranges.Span{Start: r.Start, End: r.End, Epoch: r.Epoch})}
	if len(changes) == 0 {
		err = p.passes(nil)
		return p.torn, err
	}
	if err := p.start(); err != nil {
		return p.torn, op.Failure(err, false)
	}
	s.Blocks.LeaveReplaced() // the dead client may have retired them
	err = errors.Join(p.passes(changes), p.ps.Close())
	return p.torn, err
}

// all writes changes, and returns those that find no memory.
func (p *replayer) all(changes []change) (late []change, err error) {
	for i := 0; i < len(changes); {
		p.s.Begin()
		p.ps.Begin()
		n, err := p.some(changes[i:])
		p.ps.End()
		p.s.End()
		if err != nil {
			return nil, err
		}
		if i += n; n > 0 {
			continue
		}
		switch err := p.one(&changes[i]); {
		case errors.Is(err, index.ErrPoolFull):
			late, p.full = append(late, changes[i]), err
		case err != nil:
			return nil, err
		}
		i++
	}
	return late, nil
}

// changes reads the logs and returns what each key ends with, in key order.
func (c *Config) changes(logs []pool.Inherited) ([]change, error) {
	known := map[string]*record.History{} // bounded by the rings
	err := c.eachRecord(logs, func(i int, l *pool.Inherited, position uint64, r record.Record) {
		mine := ranges.Of(ranges.Span{Start: l.Start, End: l.End, Epoch: l.Epoch})
		switch {
		case r.Epoch != l.Epoch:
		case r.Op == record.Load: // the replay of earlier logs in this epoch preceded it
			maps.DeleteFunc(known, func(key string, _ *record.History) bool { return mine.At([]byte(key)) >= 0 })
		case mine.At(r.Key) >= 0:
			note(known, r, position, i)
		}
	})
	if err != nil {
		return nil, err
	}
	all := make([]change, 0, len(known))
	for k, h := range known { //env:real sorted below
		if r, ok := h.Outcome(); ok {
			r.Key = []byte(k)
			all = append(all, change{k, r})
		}
	}
	slices.SortFunc(all, func(a, b change) int { return strings.Compare(a.key, b.key) })
	return all, nil
}

// eachRecord visits the records of logs, one log after the other, the lower epoch first.
func (c *Config) eachRecord(logs []pool.Inherited, visit func(i int, log *pool.Inherited, position uint64, r record.Record)) error {
	logs = slices.Clone(logs)
	slices.SortStableFunc(logs, func(a, b pool.Inherited) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for i := range logs {
		ref, err := redo.DecodeRef(logs[i].Log)
		if err != nil {
			return err
		}
		err = redo.Replay(c.Pool, ref, func(position uint64, b []byte) error {
			var r record.Record
			if err := r.Decode(b); err != nil {
				return err
			}
			return r.Each(func(r record.Record) { visit(i, &logs[i], position, r) })
		})
		if err != nil {
			return op.Failure(err, false)
		}
	}
	return nil
}

// note adds a record of a log to what is known of its key.
func note(known map[string]*record.History, r record.Record, position uint64, log int) {
	h := known[string(r.Key)]
	if h == nil {
		h = &record.History{}
		known[string(r.Key)] = h
	}
	h.Add(r, position, log)
}

// replayer writes changes to leaves.
type replayer struct {
	Config
	torn  Torn
	s     *slottedtree.Session
	ps    *pool.Session // has the slots' buffers
	taken *ranges.Table
	ends  [][]byte // where leaves are to be divided
	full  error    // a change found no memory

	replays bool // there are changes
	stocked bool // it has places for images

	logs   []pool.Inherited
	known  []change            // of all keys of the range
	others map[string]struct{} // keys of other ranges that the logs have; nil = not looked for yet

	slots [replayLeaves]slot
	entry []byte
	value []byte
}

// slot is a leaf during a replay.
type slot struct {
	f        frame.Frame // its lock and its place in the cache are not used
	b        []byte
	addr     pool.Addr
	from, to int // its changes
}

func (p *replayer) start() (err error) {
	words := p.Lay.NodeBytes / 8
	if p.ps, err = p.Pool.NewSession(replayLeaves * (8*words + 64)); err != nil {
		return err
	}
	p.entry = make([]byte, slotted.MaxEntryBytes)
	for i := range p.slots {
		e := &p.slots[i]
		e.f.Init(0, make([]uint64, words, words+frame.NoteWords(words)))
		if e.b, err = p.ps.Buffer(8 * words); err != nil {
			return errors.Join(err, p.ps.Close())
		}
	}
	return nil
}

// one writes one change by the tree's own operation.
func (p *replayer) one(c *change) error {
	if err := p.mend(c.Record.Key); err != nil {
		return err
	}
	switch c.Op {
	case record.PutIfAbsent:
		p.stock()
		return made(p.s.Insert(c.Record.Key, c.Value), index.ErrExists)
	case record.PutIfPresent:
		p.stock()
		return made(p.s.Update(c.Record.Key, c.Value), index.ErrNotFound)
	case record.Put, record.Refer:
		p.stock()
		p.s.Begin()
		defer p.s.End()
		return p.s.PutMade(c.Record.Key, c.Entry(p.Lay, p.entry[:cap(p.entry)]))
	}
	return made(p.s.Delete(c.Record.Key), index.ErrNotFound)
}

// made is err, unless that says that the condition was not met.
func made(err, refused error) error {
	if errors.Is(err, refused) {
		return nil
	}
	return err
}

// some writes the first few of changes and returns how many; 0 if the first one needs the tree's
// own operation.
func (p *replayer) some(changes []change) (n int, err error) {
	path, err := p.s.Descend(changes[0].Record.Key)
	if err != nil {
		return 0, err
	}
	ps, slots := p.ps, p.choose(&path, changes)
	for i := range slots {
		ps.Read(slots[i].addr, slots[i].b)
	}
	if err := ps.Post(); err != nil {
		return 0, op.Failure(err, false)
	}
	queued := 0
	for i := range slots {
		e := &slots[i]
		n, err = p.apply(e, changes)
		if err == nil {
			err = e.f.Queue(ps, e.b, &queued)
		}
		if err != nil {
			return 0, p.Condemn(err)
		}
		if n < e.to {
			break
		}
	}
	if err := ps.Post(); err != nil {
		return 0, p.Condemn(err)
	}
	return n, nil
}

// choose finds the leaves of the first changes, as far as the inner node that led to the first one
// knows them.
func (p *replayer) choose(path *btree.Path, changes []change) []slot {
	n, at := 0, 0
	addr := path.Addr()
	for i := 1; n < len(p.slots) && at < len(changes); i++ {
		next, low, more := path.Next(i)
		to := len(changes)
		if more {
			to = at
			for to < len(changes) && bytes.Compare(changes[to].Record.Key, low) < 0 {
				to++
			}
		}
		if to > at {
			e := &p.slots[n]
			e.addr, e.from, e.to = addr, at, to
			n++
		}
		if at = to; !more {
			break
		}
		addr = next
	}
	return p.slots[:n]
}

// apply makes the changes of e in the image of its leaf, and returns up to which one: less than
// e.to if one belongs elsewhere, or has no room. It returns an error if the leaf is not valid.
func (p *replayer) apply(e *slot, changes []change) (done int, err error) {
	var l slotted.Leaf
	e.f.SetAddr(e.addr)
	first := changes[e.from].Record.Key
	if !l.Open(p.Lay, e.addr, e.b) || l.Below(first) || l.Above(first) || p.isOpen(&l) {
		e.f.Blank()
		return e.from, nil
	}
	if !p.taken.Covers(l.Low, l.High, l.Rightmost) {
		return e.from, fmt.Errorf("leaf %v of %s goes beyond the range that is taken: %w", e.addr, keyrange.Format(l.Low, l.High), index.ErrFormat)
	}
	e.f.Fill(e.b)
	e.f.SetInPlace(true)
	var v frame.View
	e.f.Open(&v)
	if !p.repairTorn(&e.f, &v, &l) {
		e.f.Blank()
		return e.from, nil
	}
	for done = e.from; done < e.to; done++ {
		c := &changes[done]
		if !l.Rightmost && bytes.Compare(c.Record.Key, l.High) >= 0 || !p.change(&e.f, &v, c) {
			break
		}
	}
	return done, nil
}

// change makes one change in f. It returns false if there is no room.
func (p *replayer) change(f *frame.Frame, v *frame.View, c *change) bool {
	lay := p.Lay
	fp := lay.Fingerprint(c.Record.Key)
	i, word := f.Find(v, c.Record.Key, fp, lay.Uint64)
	if c.Op == record.Delete {
		if i >= 0 {
			f.Remove(lay, v, i)
		}
		return true
	}
	if !c.Meets(i >= 0) {
		return true
	}
	if i >= 0 {
		if p.value = f.Value(word, lay, c.Record.Key, p.value[:0]); bytes.Equal(p.value, c.Value) && f.Refers(word, lay) == (c.Op == record.Refer) {
			return true // it was written back
		}
	}
	entry := c.Entry(lay, p.entry[:cap(p.entry)])
	slot, at := f.FindRoom(v, i, word, len(entry))
	if at > 0 {
		f.Put(lay, v, slot, at, fp, entry)
	}
	return at > 0
}
