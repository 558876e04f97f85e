package smart

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
	t   *Tree
	lay *layout

	leaf     leaf   // that was READ last, in leafRoom
	leafRoom []byte // a leaf that is READ
	seconds  seconds
	newLeaf  leaf // that is made, in image
	image    []byte
	entry    []byte // an entry of package item, for package blocks

	other  []byte         // the key of another leaf
	coming coming         // the leaf that is inserted
	old    []byte         // a value that Modify tells of
	left   []byte         // the key of a leaf that was left
	offer  combine.Change // to whoever has the lock that the session waits for
	ring   ring
	scan   *scan  // nil until the first one
	round  *round // nil until the first batch
}

// arenaSpare is what a session's arena has besides buffers.
const arenaSpare = 4 << 10

// Session implements index.Index.
func (t *Tree) Session() (index.Session, error) { return t.newSession() }

// newSession makes a session.
func (t *Tree) newSession() (*Session, error) {
	s := &Session{t: t, lay: &t.lay}
	leafRoom := art.AllocatedFor(t.lay.maxRead)
	ps, err := t.Pool.NewSession(2*leafRoom + art.SessionBytes + blocks.RoomBytes(&t.lay.Codec) + t.lay.arenaBytes() + arenaSpare)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Use(pool.Techniques{Apart: !t.with.rearLock, Flat: !t.with.hierarchical})
	for _, b := range []*[]byte{&s.leafRoom, &s.image} {
		if *b, err = ps.Buffer(leafRoom); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	if err = s.Session.OpenIn(&t.Tree, ps); err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	if t.reads != nil {
		s.Delegate(t.reads)
	}
	if err = s.Blocks.Open(&s.Op, &t.lay.Codec); err == nil {
		err = s.allotRing(ps)
	}
	if err == nil {
		err = t.active.Add(&s.Op)
	}
	if err != nil {
		s.Leave()
		return nil, errors.Join(err, ps.Close())
	}
	s.entry = make([]byte, t.lay.EntryBytes(t.lay.MaxKey, item.ReferenceBytes))
	return s, nil
}

// awaitMemory is AwaitMemory of package op. The operation forgets what it met before.
func (s *Session) awaitMemory() bool {
	if err := s.burySome(mostLeft); err != nil && s.PS.Err() != nil || !s.AwaitMemory() {
		return false
	}
	s.Forget()
	return true
}

// Defer implements index.Session: all that this design does is durable when it returns.
func (s *Session) Defer(bool) {}

// Position implements index.Session.
func (s *Session) Position() uint64 { return 0 }

// Durable implements index.Session.
func (s *Session) Durable(uint64) error { return nil }

// Prepare implements index.Session: a change READs its leaf in the list that locks it, and keeps
// nothing of it.
func (s *Session) Prepare(_, _ [][]byte) error { return nil }

// explain says what failed. The answers of package index are returned bare elsewhere.
func explain(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
