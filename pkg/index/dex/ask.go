package dex

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// asker is the client of Executor: it asks memory servers to search. One session uses it.
type asker struct {
	s    *btree.Session
	room []byte // of a call, in the session's arena
}

// callBytes returns the size of the buffer of a call.
func callBytes(l *fence.Layout) int {
	return verbs.CallBytes(answerFixed + max(l.NodeBytes, requestFixed+l.MaxKey))
}

func newAsker(s *btree.Session) (q asker, err error) {
	q.s = s
	q.room, err = s.PS.Buffer(callBytes(s.Lay))
	return q, err
}

// answer is a memory server's answer.
type answer struct {
	leaf  pool.Addr // that holds it
	entry []byte    // of the key; nil = it is not there
}

// entry asks the memory server of w to search for key, from w down. ok is false if it did not find
// the leaf; then w says how far it came, or is unchanged, and err is nil unless the session died.
func (q *asker) entry(w *btree.Way, key []byte) (f answer, ok bool, err error) {
	s, b := q.s, q.room
	clear(b[:requestFixed])
	b[atDesign], b[atVersion] = design.Number, requestVersion
	b[atAsked], b[atBegin] = askEntry, w.Level
	if s.Lay.Uint64 {
		b[atLayout] |= layoutUint64
	}
	if s.Lay.Blocks {
		b[atLayout] |= layoutLong
	}
	binary.LittleEndian.PutUint32(b[atNodeBytes:], uint32(s.Lay.NodeBytes))
	binary.LittleEndian.PutUint64(b[atNode:], uint64(w.Addr))
	binary.LittleEndian.PutUint16(b[atMaxKey:], uint16(s.Lay.MaxKey))
	binary.LittleEndian.PutUint16(b[atKeyLength:], uint16(len(key)))
	binary.LittleEndian.PutUint64(b[atSecret:], s.Lay.Secret.K0)
	binary.LittleEndian.PutUint64(b[atSecret+8:], s.Lay.Secret.K1)
	n := requestFixed + copy(b[requestFixed:], key)
	said, err := s.PS.Call(w.Addr, b, n)
	switch {
	case errors.Is(err, verbs.ErrBusy), errors.Is(err, verbs.ErrCall):
		return f, false, nil
	case err != nil:
		return f, false, op.Failure(err, false)
	}
	return q.found(w, said)
}

// found decodes an answer.
func (q *asker) found(w *btree.Way, b []byte) (f answer, ok bool, err error) {
	if len(b) < answerFixed {
		return f, false, fmt.Errorf("answer of %d bytes from memory server %d: %w", len(b), w.Addr.Server(), index.ErrFormat)
	}
	at, rest := pool.Addr(binary.LittleEndian.Uint64(b[atWay:])), b[answerFixed:]
	f.leaf = at
	switch b[atOutcome] {
	case foundEntry:
		f.entry = rest
		_, _, ok = q.s.Lay.Pair(rest)
	case foundNone:
		ok = true
	case elsewhere:
		if b[atWayLevel] <= w.Level && at != pool.Nil {
			*w = btree.Way{Addr: at, Level: b[atWayLevel]}
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
