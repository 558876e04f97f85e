// Package redo is the redo log of a client in the memory pool: what a client did to nodes that it
// keeps in its cache outlives it. Many goroutines append records; those that arrive together go in
// one WRITE. The ring is bounded: what is not needed any more is truncated. When the client is dead
// and fenced, others replay what it left.
//
// # Why no record that was waited for is lost, and none comes after a gap
//
// Up to underWayAtMost batches are under way at a time, each on a queue pair of its own, so they
// take effect in any order. A record counts as durable when the batch that holds it is confirmed
// (G3 of package verbs), and all before it are. A replay begins at the tail, takes batch after
// batch, and stops at the first that does not verify: all that count come before that one. What
// lies behind it did not count for anybody, and never will: the client that wrote it is fenced,
// nothing of it takes effect any more, so the gap stays. After an error no later batch counts, and
// none is posted.
//
// The tail is a word of its own (G2). It is at most the position up to which records are durable,
// and only goes up: one list at a time writes it, and the next one is posted after that was
// confirmed. What it releases is written over by batches that are posted after that, or that follow
// it in its list (G1). So no replay begins at bytes that were written over.
//
// # Who waits for a batch
//
// A batch under way has one attendant, which waits at its queue pair: first the appender that
// posted it. All others wait to be woken. An attendant whose limit is over leaves, and what it
// waited for is in doubt for it alone. Then the first waiter that needs the batch becomes its
// attendant; if there is none, the next that comes to need it. All of that is decided under mu. So
// the lane's session belongs to one goroutine at a time.
//
// A batch that nobody attends is under way like any other. Its lane, with the buffer that the
// fabric may still read, stays in underWay until somebody has seen its end: nothing is appended to
// it, no later batch becomes durable, and the tail that its list writes counts as moving. The
// fabric's limit counts the time that the batch was attended: while nobody looks, an answer may lie
// there. So a memory server that answers nobody ends the log once its appenders have waited that
// long, however short their limits are.
//
// A client that is replayed is fenced: nothing of it takes effect any more. Two clients may replay
// one log at once, and any number of times.
package redo

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// ErrFull is returned by Append when the ring has no room: something has to be truncated first.
// Nothing was appended.
var ErrFull = errors.New("the redo log is full")

// ErrBusy is returned by TryAppend when it would have to wait for a batch. Nothing was appended.
var ErrBusy = errors.New("too many batches of the redo log are under way")

// Log is the redo log of this client. Safe for concurrent use.
type Log struct {
	pool *pool.Pool
	env  env.Env
	ref  Ref
	sums *sum.Key // of its batches

	durable  atomic.Uint64
	reserved atomic.Uint64 // bytes of the ring

	mu       env.Mutex
	lanes    [underWayAtMost + 1]lane
	open     *lane   // that records are appended to
	free     []*lane // besides
	underWay []*lane // in the order of their batches
	left     int     // how many of them nobody attends, and are not over
	start    uint64  // position of the batch that is open
	failed   error
	waiting  []*Appender // in the order of their coming
	tail     uint64      // in the memory pool
	wanted   uint64      // that the tail becomes with the next batch
	moving   bool        // a list that writes the tail is under way
	marks    []uint64    // positions of some batches from tail on, ascending
	counts   Counts
	ended    bool

	half  env.Event // nil = none: see WakeAtHalf
	noted bool      // it was set since the last truncation
}

// underWayAtMost is how many batches are under way at a time. With one, a record waits for the end
// of the one before; with many, few go together.
const underWayAtMost = 16

// lane is a batch, while it gathers records and while it is under way, and what posts it.
type lane struct {
	s          *pool.Session // of who posts it
	word       []byte        // 8 bytes: the tail, if that is to be written
	batch      []byte        // its head is left free
	start, end uint64        // its positions, once it is posted; end is 0 if it is empty
	over       bool          // it is confirmed
	attended   bool          // somebody waits for it, or will; see attend
	tail       uint64        // that its list writes before, if moves
	moves      bool
}

// Counts says what a log did.
type Counts struct {
	Records uint64
	Batches uint64
	Bytes   uint64 // of batches
}

// AppendWaits bounds how long Append waits for batches that are under way. The limit of their
// requests is less.
const AppendWaits = 2 * pool.DefaultLimit

// marksAtMost bounds the places where the tail can be.
const marksAtMost = 64

// Create makes an empty log with a ring of bytes (a multiple of 8, MinBytes to MaxBytes; no more
// than fits into a chunk). When it returns, the log can be replayed.
func Create(p *pool.Pool, bytes int) (*Log, error) {
	if err := checkBytes(bytes); err != nil {
		return nil, err
	}
	l := &Log{pool: p, env: p.Env(), mu: p.Env().NewMutex(), free: make([]*lane, 0, underWayAtMost), underWay: make([]*lane, 0, underWayAtMost)}
	err := l.prepare()
	if err == nil {
		err = l.place(bytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a redo log: %w", err), l.closeLanes())
	}
	return l, nil
}

// prepare makes the lanes.
func (l *Log) prepare() (err error) {
	for i := range l.lanes {
		n := &l.lanes[i]
		if n.s, err = l.pool.NewSession(batchBytes + headBytes + 8); err != nil {
			return err
		}
		if n.word, err = n.s.Buffer(8); err != nil {
			return err
		}
		if n.batch, err = n.s.Buffer(batchBytes); err != nil {
			return err
		}
		n.batch = n.batch[:batchHead]
		if i > 0 {
			l.free = append(l.free, n)
		}
	}
	l.open = &l.lanes[0]
	return nil
}

func (l *Log) place(bytes int) error {
	s := l.lanes[0].s
	head, err := s.Buffer(headBytes)
	if err != nil {
		return err
	}
	s.Begin() // until the head is there, the node may look like one that was given back
	defer s.End()
	at, err := l.pool.Allocate(NodeBytes(bytes), pool.Nil)
	if err != nil {
		return err
	}
	l.ref = Ref{at, uint32(bytes), max(1, l.env.Uint64())}
	l.sums = sumsOf(l.ref.Nonce)
	l.start = uint64(bytes)
	l.tail, l.wanted = l.start, l.start
	l.durable.Store(l.start)
	encodeHead(head, l.ref, l.pool.Client())
	s.Write(pool.Sole, at, head)
	return s.Post()
}

// closeLanes ends the sessions that there are.
func (l *Log) closeLanes() (err error) {
	for i := range l.lanes {
		if s := l.lanes[i].s; s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// Ref names the log.
func (l *Log) Ref() Ref { return l.ref }

// Durable is the position up to which all records are in the memory pool.
func (l *Log) Durable() uint64 { return l.durable.Load() }

// Used is how many bytes of the ring are in use.
func (l *Log) Used() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end() - l.wanted
}

// Tail is the position up to which all records were released.
func (l *Log) Tail() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted
}

// WakeAtHalf lets the log set an event when more than half of the ring is in use: once, and again
// after each truncation that leaves it so. It is called before the first Append.
func (l *Log) WakeAtHalf(event env.Event) { l.half = event }

// noteHalf sets the event of WakeAtHalf. Called under mu.
func (l *Log) noteHalf() {
	if l.half != nil && !l.noted && l.end()-l.wanted > uint64(l.ref.Bytes)/2 {
		l.noted = true
		l.half.Set()
	}
}

// Counts is what the log did so far.
func (l *Log) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Posted is what was posted to write the log: a part of what the pool counts, and as recent.
// Nothing once the log is closed.
func (l *Log) Posted() (sum verbs.Counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.lanes {
		if !l.ended {
			c := l.lanes[i].s.Published()
			sum.Sum(&c)
		}
	}
	return sum
}

// end is the position behind the last record. Called under mu.
func (l *Log) end() uint64 { return l.start + uint64(len(l.open.batch)) }

// Truncate lets all records go whose positions are at most position: what they say is in the nodes
// that they are about. Lower positions than before change nothing.
func (l *Log) Truncate(position uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	durable := l.durable.Load()
	position = min(position, durable)
	l.noted = false
	n := 0
	for n < len(l.marks) && l.marks[n] <= position {
		n++
	}
	if n > 0 {
		l.wanted = l.marks[n-1]
		l.marks = append(l.marks[:0], l.marks[n:]...)
	}
	if position == durable { // the next batch begins behind it, whether it is under way or open
		l.wanted, l.marks = align(durable), l.marks[:0]
	}
}

// Close ends the log. What is not durable stays so. With discard its memory is given back: nobody
// will need to replay it. Nobody may use it any more.
func (l *Log) Close(discard bool) error {
	var err error
	l.mu.Lock()
	l.ended = true
	for discard && l.failed == nil && len(l.underWay) > 0 { // that everybody left
		n := l.underWay[0]
		err = n.s.Await()
		l.batchEnded(n, err)
	}
	l.mu.Unlock()
	if discard && l.failed == nil {
		err = Discard(l.lanes[0].s, l.ref)
	}
	return errors.Join(err, l.closeLanes())
}
