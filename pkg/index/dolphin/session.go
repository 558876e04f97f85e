package dolphin

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Session implements index.Session.
type Session struct {
	art.Session
	op.Direct
	t   *Tree
	lay *layout

	leaf       leaf   // that was READ last, in room
	room       []byte // a leaf that is READ
	beside     leaf   // another one, in besideRoom
	besideRoom []byte
	halves     [2]leaf // that are made, in images
	images     [2][]byte
	ringRoom   []byte
	ring       [][]byte // leaves that are READ side by side, in ringRoom

	pairs  []pairAt // of a leaf
	entry  []byte   // an entry of package item, for package blocks
	old    []byte   // a value that Modify tells of
	coming coming   // the leaf that gets a slot
	place  []byte   // the place of a leaf that others take the place of
	sparse []byte   // where the leaf begins that mergeIfSmall looks at
	high   []byte   // where its range ends
	right  []byte   // the place of what lies beside it
	depth  int      // of merges that wait for each other
	shuts  bool     // it shut the leaf whose lock word it holds, and opens it again
	there  bool     // the key of its last upsert was there, so the next one shares
	scan   *scan    // nil until the first one
	round  *round   // nil until the first batch
	// updates that take the lock word before one looks for an intent slot again
	noIntent int

	offer combine.Change // of the operation under way
	group group

	stray  pool.Addr // see strayed
	strays int

	inPlace error // why the locked leaf takes only what it has room for; see lockFor
}

const (
	// arenaSpare is what a session's arena has besides buffers
	arenaSpare = 4 << 10
	// mostReads is how many leaves are READ side by side, as far as they fit ringBytes
	mostReads = 16
	ringBytes = 64 << 10
)

// Session implements index.Index.
func (t *Tree) Session() (index.Session, error) { return t.newSession() }

// newSession makes a session.
func (t *Tree) newSession() (*Session, error) {
	s := &Session{t: t, lay: &t.lay}
	reads := max(1, min(mostReads, ringBytes/t.lay.size))
	ps, err := t.Pool.NewSession((4+reads)*t.lay.size + art.SessionBytes + blocks.RoomBytes(&t.lay.Codec) + arenaSpare)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Use(pool.Techniques{Flat: !t.with.hierarchical})
	for _, b := range []struct {
		buffer *[]byte
		leaves int
	}{{&s.room, 1}, {&s.besideRoom, 1}, {&s.images[0], 1}, {&s.images[1], 1}, {&s.ringRoom, reads}} {
		if *b.buffer, err = ps.Buffer(b.leaves * t.lay.size); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	for i := range reads {
		s.ring = append(s.ring, s.ringRoom[i*t.lay.size:][:t.lay.size])
	}
	for _, l := range []*leaf{&s.leaf, &s.beside, &s.halves[0], &s.halves[1]} {
		l.lay = s.lay
	}
	if err = s.Session.OpenIn(&t.Tree, ps); err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	s.Words = t.strips
	if t.reads != nil {
		s.Delegate(t.reads)
	}
	if err = s.Blocks.Open(&s.Op, &t.lay.Codec); err == nil {
		err = t.active.Add(&s.Op)
	}
	if err != nil {
		s.Leave()
		return nil, errors.Join(err, ps.Close())
	}
	s.entry = make([]byte, t.lay.EntryBytes(t.lay.MaxKey, max(item.ReferenceBytes, t.lay.Inline)))
	return s, nil
}

// Begin starts an operation, which End ends.
func (s *Session) Begin() {
	s.Session.Begin()
	s.stray, s.strays = pool.Nil, 0
}

// awaitMemory is AwaitMemory of package op. The operation forgets what it met before.
func (s *Session) awaitMemory() bool {
	if !s.AwaitMemory() {
		return false
	}
	s.Forget()
	return true
}

// explain says what failed. The answers of package index are returned bare elsewhere.
func explain(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
