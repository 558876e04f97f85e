package smart

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scans (section 4.5, "Scan"). A scan walks the tree in the order of keys, and believes only nodes
// that it has READ itself. It goes by rounds: plan.go says what the walk is about to need, as far
// as copies and nodes that are READ say, and all that is READ in one round trip. Then the walk goes
// on as far as it can. docs/design/smart.md, "Scans", has the argument that it misses no pair.

// scan is where a scan stands. Its buffers are used again by the next one.
type scan struct {
	reverse bool
	left    int // pairs that may come yet

	from  []byte       // the cursor when the walk began at the root; see art.Frame
	stack []*art.Frame // the walk's way from the root on: all of these were READ by this scan
	ahead []*art.Frame // nodes that were READ and to which the walk has not come yet
	free  []*art.Frame
	plan  plans

	// pairs come behind bound, or at it unless strict; nil = from the end of the key space on
	bound   []byte
	bounded bool
	strict  bool

	sees []pool.Addr // what a sweep's walk comes to; nil = it is a scan

	out  []visited // pairs that the walk has found, and which are to be visited
	keys []byte    // theirs
	lay  *layout
	room []byte // for an entry
}

// visited is a pair that is visited.
type visited struct {
	leaf
	from, to int // of its key in keys
}

// Len implements blocks.Entries.
func (sc *scan) Len() int { return len(sc.out) }

// Entry implements blocks.Entries. Only an entry with a reference has a value.
func (sc *scan) Entry(i int) []byte {
	p := &sc.out[i]
	v, long := p.value()
	key := sc.keys[p.from:p.to]
	if !long {
		return sc.lay.PutEntry(sc.room, key, nil)
	}
	r := reference(v)
	return r.PutEntry(&sc.lay.Codec, sc.room, key)
}

// pause says why a walk goes no further.
type pause uint8

const (
	ended   pause = iota // there is nothing more
	lacking              // something has to be READ
	full                 // there are pairs to be visited first
)

// Scan implements index.Session.
func (s *Session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if len(start) > 0 || !s.lay.Uint64 {
		if err := s.lay.CheckKey(start); err != nil {
			return explain("scan", err)
		}
	}
	s.Begin()
	defer s.End()
	sc := s.scanner()
	sc.reverse, sc.left = reverse, limit
	sc.bound = append(sc.bound[:0], start...)
	sc.bounded, sc.strict = !reverse || len(start) > 0, false
	sc.out, sc.keys = sc.out[:0], sc.keys[:0]
	s.restart()
	defer sc.drop()
	for sc.left > 0 {
		why, err := s.walk()
		if err != nil {
			return explain("scan", err)
		}
		if more, err := s.visitAll(visit); err != nil {
			return explain("scan", err)
		} else if !more || why == ended {
			return nil
		}
		if why == lacking && sc.left > 0 {
			if err := s.readAhead(); err != nil {
				return explain("scan", err)
			}
		}
	}
	return nil
}

// scanner is the session's, made when it is first used.
func (s *Session) scanner() *scan {
	if s.scan == nil {
		s.scan = &scan{lay: s.lay, room: s.entry, out: make([]visited, 0, mostReads)}
	}
	return s.scan
}

// restart lets the walk begin at the root, behind the last pair that it found.
func (s *Session) restart() {
	sc := s.scan
	sc.drop()
	sc.from = append(sc.from[:0], sc.bound...)
	s.ring.reset()
}

// drop forgets all nodes.
func (sc *scan) drop() {
	sc.free = append(append(sc.free, sc.stack...), sc.ahead...)
	sc.stack, sc.ahead = sc.stack[:0], sc.ahead[:0]
}

// frame takes an unused one.
func (sc *scan) frame() *art.Frame {
	n := len(sc.free)
	if n == 0 {
		return new(art.Frame)
	}
	f := sc.free[n-1]
	sc.free = sc.free[:n-1]
	return f
}

// release gives back a frame. Those of deep trees and of many nodes are not kept.
func (sc *scan) release(f *art.Frame) {
	if len(sc.free) < 2*mostReads {
		sc.free = append(sc.free, f)
	}
}

// enter puts f at the place where the walk begins in it. tight: what leads to it is what leads to
// the cursor. It reports false if all of its keys lie before the cursor.
func (sc *scan) enter(f *art.Frame, tight bool) bool {
	f.Tight, f.Next = false, art.BeforeAll
	if sc.reverse {
		f.Next = art.BehindAll
	}
	if !tight {
		return true
	}
	for i := range int(f.Length) {
		at := int(f.Depth) + i
		switch {
		case at >= len(sc.from) || f.Prefix[i] > sc.from[at]:
			return !sc.reverse
		case f.Prefix[i] < sc.from[at]:
			return sc.reverse
		}
	}
	f.Tight, f.Next = true, art.Branch(sc.from, f.End())
	return true
}

// leads reports whether the child at branch b of f has keys on both sides of the cursor.
func (sc *scan) leads(f *art.Frame, b int) bool {
	return f.Tight && b == art.Branch(sc.from, f.End())
}

// step is the place behind branch b.
func (sc *scan) step(b int) int {
	if sc.reverse {
		return b - 1
	}
	return b + 1
}

// walk goes on to the next pairs, as far as what was READ reaches.
func (s *Session) walk() (pause, error) {
	sc := s.scan
	if len(sc.stack) == 0 {
		f := sc.pick(s.t.RootSlot())
		if f == nil {
			return lacking, nil
		}
		if f.Dead {
			sc.release(f)
			return lacking, s.astray(s.t.RootAddr())
		}
		sc.see(f.At.Addr())
		if !sc.enter(f, sc.bounded) {
			return ended, nil
		}
		sc.stack = append(sc.stack, f)
	}
	for len(sc.stack) > 0 {
		f := sc.stack[len(sc.stack)-1]
		b := f.From(f.Next, sc.reverse)
		if !f.Knows(f.Next, b, sc.reverse) {
			return lacking, nil
		}
		if b == art.BehindAll || b == art.BeforeAll {
			sc.stack = sc.stack[:len(sc.stack)-1]
			sc.release(f)
			continue
		}
		w := f.Word(b)
		if s.lay.Damaged(w, b == art.EndBranch) {
			return lacking, art.IsDamaged(f.At.Addr(), w)
		}
		if w.Leaf() {
			if len(sc.out) == sc.left || len(sc.out) == cap(sc.out) {
				return full, nil
			}
			if why, err := s.takeLeaf(w); why != ended || err != nil {
				return why, err
			}
			f.Next = sc.step(b)
			continue
		}
		g := sc.pick(w)
		if g == nil {
			return lacking, nil
		}
		if g.Dead {
			sc.release(g)
			return lacking, s.astray(w.Addr())
		}
		if !g.Under(&f.Outline) {
			return lacking, art.IsAstray(f.At.Addr(), &f.Outline, w, &g.Outline)
		}
		sc.see(g.At.Addr())
		f.Next = sc.step(b)
		if sc.enter(g, sc.leads(f, b)) {
			sc.stack = append(sc.stack, g)
		} else {
			sc.release(g)
		}
	}
	return ended, nil
}

// astray is called where what a node leads to was replaced since that was READ: the walk begins at
// the root again.
func (s *Session) astray(at pool.Addr) error {
	s.restart()
	return s.Reread(at)
}

// pick takes the node that w leads to from those READ ahead; nil if it is not among them.
func (sc *scan) pick(w art.Slot) *art.Frame {
	for i, f := range sc.ahead {
		if f.At == w&art.AddrMask {
			n := len(sc.ahead) - 1
			sc.ahead[i] = sc.ahead[n]
			sc.ahead = sc.ahead[:n]
			return f
		}
	}
	return nil
}

// takeLeaf takes the pair of the leaf where w leads, if it has one. ended: the walk goes on.
func (s *Session) takeLeaf(w art.Slot) (pause, error) {
	sc := s.scan
	i := s.ring.find(w)
	if i < 0 {
		return lacking, nil
	}
	var l leaf
	v, err := s.openLeaf(&l, i)
	for err == nil {
		if v != out {
			sc.see(l.at)
		}
		switch {
		case v == out:
			return lacking, s.astray(l.at)
		case l.ctl.state() == gone || l.ctl.state() == dead:
			return ended, nil
		case l.ctl.state() == alive:
			sc.found(&l)
			return ended, nil
		case len(sc.out) > 0:
			return full, nil // the room below may have one of them
		}
		// It moved. The new leaf may be too large for where the old one was READ.
		v, err = s.readWhole(l.forward())
		l = s.leaf
	}
	return lacking, err
}

// mostTorn is how often a torn leaf is READ again before it is taken for one that is out, and whose
// mark was cut short when a client died.
const mostTorn = 16

// readWhole READs the leaf of slot w to s.leaf until it is whole, or out of the tree.
func (s *Session) readWhole(w art.Slot) (verdict, error) {
	for range mostTorn {
		v, err := s.readLeaf(w)
		if err != nil || v != torn {
			return v, err
		}
		if err := s.Reread(w.Addr()); err != nil {
			return torn, err
		}
	}
	return out, nil
}

// found notes the pair of l, unless it lies before the bound.
func (sc *scan) found(l *leaf) {
	if v, long := l.value(); long && sc.sees != nil {
		sc.see(reference(v).Addr)
	}
	from := len(sc.keys)
	sc.keys = l.appendKey(sc.keys)
	key := sc.keys[from:]
	if sc.bounded {
		c := bytes.Compare(key, sc.bound)
		if sc.reverse {
			c = -c
		}
		if c < 0 || c == 0 && (sc.strict || sc.reverse) {
			sc.keys = sc.keys[:from]
			return
		}
	}
	sc.bound, sc.bounded, sc.strict = append(sc.bound[:0], key...), true, true
	sc.out = append(sc.out, visited{leaf: *l, from: from, to: len(sc.keys)})
}

// visitAll visits the pairs that the walk has found. more is false if visit had enough. Long values
// are those that the leaves had when they were READ.
func (s *Session) visitAll(visit func(key, value []byte) bool) (more bool, err error) {
	sc := s.scan
	if len(sc.out) == 0 {
		return true, nil
	}
	s.Blocks.BeginScan()
	for i := range sc.out {
		p := &sc.out[i]
		key := sc.keys[p.from:p.to]
		value, long := p.value()
		if long {
			if value, err = s.Blocks.Next(sc, i, 1, len(sc.out)-i); err == nil && value == nil {
				s.Count.Retries++
				if value, err = s.find(key, nil); err == index.ErrNotFound {
					continue
				}
				s.Blocks.BeginScan() // its room was used
			}
			if err != nil {
				return false, err
			}
		}
		sc.left--
		if !visit(key, value) {
			return false, nil
		}
	}
	sc.out, sc.keys = sc.out[:0], sc.keys[:0]
	return true, nil
}
