package offload

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

// Client asks memory servers to search in an index of a design with a number. One session uses it.
type Client struct {
	s      *btree.Session
	design uint8
	room   []byte // of a call, in the session's arena
}

// CallBytes returns the size of the buffer of a call.
func CallBytes(l *fence.Layout) int {
	return verbs.CallBytes(answerFixed + max(l.NodeBytes, requestFixed+l.MaxKey))
}

// NewClient returns a client for the operations of s. Its room comes from the arena of s.
func NewClient(s *btree.Session, design uint8) (q Client, err error) {
	q.s, q.design = s, design
	q.room, err = s.PS.Buffer(CallBytes(s.Lay))
	return q, err
}

// Answer is a memory server's answer.
type Answer struct {
	Leaf  pool.Addr // that holds it
	Entry []byte    // of the key; nil = it is not there
}

// Search asks the memory server of w to search for key, from w down. ok is false if it did not find
// the leaf; then w says how far it came, or is unchanged, and err is nil unless the session died.
func (q *Client) Search(w *btree.Way, key []byte) (f Answer, ok bool, err error) {
	s, b := q.s, q.room
	clear(b[:requestFixed])
	b[atDesign], b[atVersion] = q.design, requestVersion
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
func (q *Client) found(w *btree.Way, b []byte) (f Answer, ok bool, err error) {
	if len(b) < answerFixed {
		return f, false, fmt.Errorf("answer of %d bytes from memory server %d: %w", len(b), w.Addr.Server(), index.ErrFormat)
	}
	at, rest := pool.Addr(binary.LittleEndian.Uint64(b[atWay:])), b[answerFixed:]
	f.Leaf = at
	switch b[atOutcome] {
	case foundEntry:
		f.Entry = rest
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
