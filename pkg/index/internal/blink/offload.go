package blink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Way is where a descent stopped: at a node that is not in the cache.
type Way struct {
	Addr  pool.Addr
	Level uint8 // 0 = it did not stop, and the path leads to the leaf
}

// Found is what a memory server said of a key.
type Found struct {
	Leaf pool.Addr // that holds it
	// Entry is that of the key; nil = it is not there. Only if it was asked for.
	Entry []byte
	// Image is the leaf, verified. Only if it was asked for.
	Image []byte
}

// Offloads says whether the memory server of a answers calls.
func (s *session) Offloads(a pool.Addr) bool { return s.call != nil && s.PS.Calls(a) }

// DescendNear is Descend, but ends at a node of level 1 or 2 that is not in the cache where the
// leaf cache says so (Offload).
func (s *session) DescendNear(key []byte) (Path, Way, error) {
	s.near, s.way = true, Way{}
	p, err := s.descend(key, fence.Holding, 0)
	s.near = false
	switch {
	case err == errStopped:
		return p, s.way, nil
	case err == nil:
		s.hit(&p)
	}
	return p, Way{}, err
}

// errStopped is returned where the leaf cache said so.
var errStopped = errors.New("the descent was stopped")

// Keeps says whether a copy of the node at w would be kept, were it read. It is counted as a miss
// if not: else it will be when it is read.
func (s *session) Keeps(w Way) bool {
	return s.t.cache.Keeps(w.Addr, w.Level, s.lay.NodeBytes+innerBytes)
}

// AskEntry has the memory server of w look for key, from w down. ok is false where it did not find
// the leaf; then w says how far it came, or is as it was, and err is nil unless the session did not
// survive.
func (s *session) AskEntry(w *Way, key []byte) (f Found, ok bool, err error) {
	return s.ask(w, key, askEntry)
}

// AskLeaf is AskEntry, and brings the leaf.
func (s *session) AskLeaf(w *Way, key []byte) (f Found, ok bool, err error) {
	return s.ask(w, key, askLeaf)
}

func (s *session) ask(w *Way, key []byte, what byte) (f Found, ok bool, err error) {
	b := s.call
	clear(b[:requestFixed])
	b[atDesign], b[atVersion] = s.t.design, requestVersion
	b[atAsked], b[atBegin] = what, w.Level
	if s.lay.Uint64 {
		b[atLayout] |= layoutUint64
	}
	if s.lay.Blocks {
		b[atLayout] |= layoutLong
	}
	binary.LittleEndian.PutUint32(b[atNodeBytes:], uint32(s.lay.NodeBytes))
	binary.LittleEndian.PutUint64(b[atNode:], uint64(w.Addr))
	binary.LittleEndian.PutUint16(b[atMaxKey:], uint16(s.lay.MaxKey))
	binary.LittleEndian.PutUint16(b[atKeyLength:], uint16(len(key)))
	n := requestFixed + copy(b[requestFixed:], key)
	answer, err := s.PS.Call(w.Addr, b, n)
	switch {
	case errors.Is(err, verbs.ErrBusy), errors.Is(err, verbs.ErrCall):
		return f, false, nil
	case err != nil:
		return f, false, op.Failure(err, false)
	}
	return s.found(w, answer)
}

// found reads an answer.
func (s *session) found(w *Way, b []byte) (f Found, ok bool, err error) {
	if len(b) < answerFixed {
		return f, false, fmt.Errorf("answer of %d bytes from memory server %d: %w", len(b), w.Addr.Server(), index.ErrFormat)
	}
	at, rest := pool.Addr(binary.LittleEndian.Uint64(b[atWay:])), b[answerFixed:]
	f.Leaf = at
	switch b[atOutcome] {
	case foundEntry:
		f.Entry = rest
		_, _, ok = s.lay.Pair(rest)
	case foundNone:
		ok = true
	case foundLeaf:
		f.Image, ok = rest, len(rest) == s.lay.NodeBytes
	case elsewhere:
		if b[atWayLevel] <= w.Level && at != pool.Nil {
			*w = Way{at, b[atWayLevel]}
		}
		return f, false, nil
	case noWay:
		return f, false, nil
	}
	if !ok {
		return f, false, fmt.Errorf("answer %d with %d bytes from memory server %d: %w", b[atOutcome], len(rest), at.Server(), index.ErrFormat)
	}
	return f, true, nil
}

// At is a path to a leaf that a memory server has found.
func At(a pool.Addr) Path { return path{addr: a, cached: true} }

// GoOn descends from w, by READs. Where the way is lost it begins at the root.
func (s *session) GoOn(w Way, key []byte) (Path, error) {
	p := path{addr: w.Addr, cached: true}
	for l := w.Level; l > 0; l-- {
		n, _, err := s.inner(&p, l)
		if err == nil && n.beyond(key, fence.Holding) {
			err = errDead
		}
		if err == errDead {
			return s.Descend(key)
		}
		if err != nil {
			return p, err
		}
		p = path{parent: n, child: n.pick(s.lay, key, fence.Holding)}
		p.addr = n.children[p.child]
	}
	return p, nil
}
