package dex

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/offload"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/valuecache"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/wal"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/ranges"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool/redo"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// session implements index.Session.
type session struct {
	x           *dex
	b           *slottedtree.Session
	log         *redo.Appender
	back        func(*frame.Frame) error  // flush, made once
	yield       func(*frame.Frame) error  // evict, made once
	costs       map[uint16]*offload.Costs // by memory server
	remote      offload.Client
	remoteHit   remoteHit
	prefetch    prefetch
	pending     wal.Pending  // of the change under way
	reach       ranges.Reach // of the scan under way
	limit       time.Duration
	value       []byte // on its way out of a frame
	leaving     []byte // an entry of a frame that is evicted
	filling     []byte // an entry of the leaf that a frame is filled with
	entry       []byte // on its way into one
	mod         modification
	record      []byte
	tag         valuecache.Tag // of a long value that is looked up or replaced
	blockSource blockSource
	refers      func() bool               // leafRefers, made once
	still       func() bool               // leafStands, made once
	ref         [item.ReferenceBytes]byte // of the block of the write under way
	block       blocks.Reference          // the same one, until it is recorded
	closed      bool

	deferred   bool   // see Defer
	position   uint64 // see Position
	prefetched bool   // the staging buffer belongs to the batch under way
	batch      *round // of LookupBatch and Prepare; nil before the first one

	garbage []blocks.Reference // being retired
	group   *group             // nil before the first one
}

// Session implements index.Index.
func (x *dex) Session() (index.Session, error) {
	s, err := x.newSession()
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.Join(fmt.Errorf("open a session: %w", index.ErrClosed), s.Close())
	}
	x.open++
	return &counted{session: s}, nil
}

// counted is a session that prevents its index from being closed.
type counted struct{ *session }

// Close implements index.Session.
func (c *counted) Close() error {
	if c.closed {
		return nil
	}
	c.x.mu.Lock()
	c.x.open--
	c.x.mu.Unlock()
	return c.session.Close()
}

func (x *dex) newSession() (*session, error) {
	b, err := x.tree.NewSession()
	if err != nil {
		return nil, err
	}
	s := &session{x: x, b: b, log: x.log.Appender(), limit: index.DefaultLimit,
		entry: make([]byte, slotted.MaxEntryBytes), record: make([]byte, 0, record.FixedBytes+slotted.MaxEntryBytes)}
	if s.remote, err = offload.NewClient(&b.Session, design.Number); err != nil {
		return nil, errors.Join(op.Failure(err, false), b.Close())
	}
	s.costs = map[uint16]*offload.Costs{}
	s.yield = s.evict
	b.Owner = s
	s.refers, s.still = s.leafRefers, s.leafStands
	s.back = func(f *frame.Frame) error { return x.flush(&s.b.Session, s.log, f) }
	return s, nil
}

// SetLimit implements index.Session.
func (s *session) SetLimit(limit time.Duration) {
	s.limit = limit
	s.b.SetLimit(limit)
}

// Counters implements index.Session. Requests of the log are not included.
func (s *session) Counters() verbs.Counters { return s.b.Counters() }

// Close implements index.Session.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.b.Close()
}

// durable waits until all records up to position are durable, within the limit of the operation
// under way.
func (s *session) durable(position uint64) error {
	if position == 0 {
		return nil
	}
	return s.log.WaitIn(s.b.PS, position)
}

// seen waits until what was done, or read, is durable, which is so when all records up to position
// are. With Defer it only remembers the position.
func (s *session) seen(position uint64) error {
	if s.deferred {
		s.position = max(s.position, position)
		return nil
	}
	return s.durable(position)
}

// Defer implements index.Session. What a deferred operation did is in frames, and in appended
// records. Every session of this client finds it there, and waits until it is durable before it
// answers, or defers that too. No other client reads it before it is written back, which comes
// after it is durable: an eviction, a merge, a division and Give write leaves back, and flush waits
// for the log first.
func (s *session) Defer(on bool) { s.deferred = on }

// Position implements index.Session.
func (s *session) Position() uint64 {
	if s.position <= s.x.log.Durable() {
		s.position = 0
	}
	return s.position
}

// Durable implements index.Session. It may return nil after this client was fenced: records that
// were confirmed before are in the log that the next owner replays (G3), and no later WRITE takes
// effect there. What was read was right at a moment of the operation, which lasts until it is
// answered.
func (s *session) Durable(position uint64) error {
	if err := s.log.Wait(position, s.limit); err != nil {
		return fmt.Errorf("wait for the log: %w", op.Failure(err, true))
	}
	return nil
}

// The outcomes of a write that a search of a frame does not have.
const (
	logFull     = frame.States + iota // of records
	logBusy                           // it has to be waited for
	blockWanted                       // of what index.Change says
	pairChanged                       // since index.Change saw it
	roomMade                          // in the leaf, or beside it: nothing else has changed
)

// Lookup implements index.Session. If the leaf is in the cache and all records are durable, nothing
// is posted.
func (s *session) Lookup(key, dst []byte) ([]byte, error) {
	if value, found, sure := s.lookupCached(key, dst); sure {
		if !found {
			return dst, index.ErrNotFound
		}
		return value, nil
	}
	s.b.Begin()
	defer s.b.End()
	value, err := s.lookup(key, dst)
	if err != nil && err != index.ErrNotFound {
		err = fmt.Errorf("look up: %w", err)
	}
	return value, err
}

func (s *session) lookup(key, dst []byte) ([]byte, error) {
	if err := s.x.lay.CheckKey(key); err != nil {
		return dst, err
	}
	r := s.x.ranges.Load()
	in := r.At(key)
	if in < 0 {
		return dst, index.ErrNotOwner
	}
	epoch := r.Span(in).Epoch
	var p btree.Path
	var err error
	if s.x.with.offloading && !s.prefetched {
		q := &s.remoteHit
		if err = s.seek(q, key); err == nil && q.holds(s.x) {
			if q.found.Entry == nil {
				return dst, index.ErrNotFound
			}
			if value, ok, err := s.appendRemote(key, q.found.Entry, dst, q.found.Leaf, q.since, epoch); ok || err != nil {
				return value, err
			}
		}
		p = q.path
	} else {
		p, err = s.b.Descend(key)
	}
	if err != nil {
		return dst, err
	}
	fp := s.x.lay.Fingerprint(key)
	for hops := 0; ; {
		f := s.x.cache.Locate(&p)
		if f == nil {
			var l slotted.Leaf
			kept, here, err := s.fetch(&p, &l, key, &hops, false)
			if err != nil {
				return dst, err
			}
			if here && !kept {
				e, there := l.EntryOf(key)
				if !there {
					return dst, index.ErrNotFound
				}
				if value, ok, err := s.appendRemote(key, e, dst, p.Addr(), s.prefetch.since, epoch); ok || err != nil {
					return value, err
				}
				if err := s.b.Retry(); err != nil {
					return dst, err
				}
			}
			continue
		}
		value, lsn, st := f.Search(s.x.env, s.x.lay, p.Addr(), key, dst, fp)
		switch st {
		case frame.Done, frame.NotFound, frame.InBlock:
			f.Hit()
			if err := s.seen(lsn); err != nil {
				return dst, op.Failure(err, false)
			}
			switch st {
			case frame.NotFound:
				return dst, index.ErrNotFound
			case frame.Done:
				return value, nil
			}
			s.tag.Set(value[len(dst):], epoch)
			s.blockSource = blockSource{f: f, leaf: p.Addr(), key: key, fp: fp}
			if value, ok, err := s.long(dst, s.refers); ok || err != nil {
				return value, err
			}
			if err := s.b.Retry(); err != nil {
				return dst, err
			}
		default:
			if err := s.resolve(st, &p, key, &hops); err != nil {
				return dst, err
			}
		}
	}
}

// lookupCached is a lookup without an operation. It is sure if all that it needs is in this
// client's memory and durable; then it found the key, or the key is not there.
func (s *session) lookupCached(key, dst []byte) (value []byte, found, sure bool) {
	x := s.x
	if x.lay.CheckKey(key) != nil {
		return dst, false, false
	}
	r := x.ranges.Load()
	in := r.At(key)
	if in < 0 {
		return dst, false, false
	}
	if a, hint := s.b.DescendCached(key); hint != 0 {
		f := x.cache.Hinted(hint)
		version := f.Version()
		value, lsn, st := f.Search(x.env, x.lay, a, key, dst, x.lay.Fingerprint(key))
		sure = (st == frame.Done || st == frame.NotFound || st == frame.InBlock) && (lsn <= x.log.Durable() || s.deferred)
		if sure && st == frame.InBlock {
			s.tag.Set(value[len(dst):], r.Span(in).Epoch)
			value, sure = x.values.Get(&s.tag, dst)
			// otherwise the block may have been reused, even with the same reference: no epoch
			// waits for such a lookup
			sure = sure && f.Version() == version
		}
		if sure {
			if s.deferred {
				s.position = max(s.position, lsn)
			}
			f.Hit()
			s.b.CountCached()
			return value, st != frame.NotFound, true
		}
	}
	if value, found = x.rows.Get(key, dst); found {
		s.b.CountCached()
	}
	return value, found, found
}
