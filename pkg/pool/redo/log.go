// Package redo is the redo log of a client in the memory pool: what a client did to nodes that it keeps in its cache outlives it. Many goroutines append
// records; those that arrive together go in one WRITE. The ring is bounded: what is not needed any more is truncated. When the client is dead and
// fenced, others replay what it left.
//
// # Why no record that was waited for is lost, and none comes after a gap
//
// One batch is under way at a time, posted by whoever waits for it first (the others' records gather in the next one meanwhile). It is posted after
// the one before was confirmed (G3 of package verbs), so a batch takes effect only after all before it. A record counts as durable when the
// batch that holds it, is confirmed. A replay begins at the tail, takes batch after batch, and stops at the first that does not verify: all that
// were confirmed come before that one, and what comes behind it was never written.
//
// The tail is a word of its own (G2). It moves in the list of a batch, before it (G1), and the bytes that it lets go are written by that batch at the
// earliest: so no replay ever begins at bytes that were written over.
//
// A client that is replayed is fenced: nothing of it takes effect any more. Two clients may replay one log at once, and any number of times.
package redo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// ErrFull is returned by Append when the ring has no room: something has to be truncated first. Nothing was appended.
var ErrFull = errors.New("the redo log is full")

// Log is the redo log of this client. Safe for concurrent use.
type Log struct {
	pool *pool.Pool
	env  env.Env
	ref  Ref

	durable atomic.Uint64

	mu       env.Mutex
	writer   *pool.Session // of who flushes
	word     []byte        // 8 bytes: the tail to be written
	batch    []byte        // that records are appended to; its head is left free
	spare    []byte        // the other buffer
	start    uint64        // position of batch
	flushing bool
	failed   error
	waiting  []*Appender // in the order of their coming
	tail     uint64      // in the memory pool
	wanted   uint64      // that the tail becomes with the next batch; what lies before may be written over by then
	marks    []uint64    // positions of some batches from tail on, ascending
	counts   Counts
	ended    bool
}

// Counts says what a log did.
type Counts struct {
	Records uint64
	Batches uint64
	Bytes   uint64 // of batches
}

// appendWaits bounds how long Append waits for a batch that is under way. The limit of its requests is less.
const appendWaits = 2 * pool.DefaultLimit

// marksAtMost bounds the places where the tail can be.
const marksAtMost = 64

// Create makes an empty log with a ring of bytes (a multiple of 8, MinBytes to MaxBytes; no more than fits into a chunk). When it returns, the log can be replayed.
func Create(p *pool.Pool, bytes int) (*Log, error) {
	if err := checkBytes(bytes); err != nil {
		return nil, err
	}
	l := &Log{pool: p, env: p.Env(), mu: p.Env().NewMutex()}
	var err error
	if l.writer, err = p.NewSession(2*batchBytes + headBytes + 8); err != nil {
		return nil, fmt.Errorf("make a redo log: %w", err)
	}
	if err := l.begin(bytes); err != nil {
		return nil, errors.Join(fmt.Errorf("make a redo log: %w", err), l.writer.Close())
	}
	return l, nil
}

func (l *Log) begin(bytes int) (err error) {
	var head []byte
	for _, b := range []struct {
		buffer *[]byte
		size   int
	}{{&head, headBytes}, {&l.word, 8}, {&l.batch, batchBytes}, {&l.spare, batchBytes}} {
		if *b.buffer, err = l.writer.Buffer(b.size); err != nil {
			return err
		}
	}
	l.writer.Begin() // until the head is there, the node may look like one that was given back
	defer l.writer.End()
	at, err := l.pool.Allocate(NodeBytes(bytes), pool.Nil)
	if err != nil {
		return err
	}
	l.ref = Ref{at, uint32(bytes), max(1, l.env.Uint64())}
	l.batch = l.batch[:batchHead]
	l.start = uint64(bytes)
	l.tail, l.wanted = l.start, l.start
	l.durable.Store(l.start)
	encodeHead(head, l.ref, l.pool.Client())
	l.writer.Write(at, head)
	return l.writer.Post()
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

// Counts is what the log did so far.
func (l *Log) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Posted is what was posted to write the log: a part of what the pool counts, and as recent. Nothing once the log is closed.
func (l *Log) Posted() verbs.Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return verbs.Counters{}
	}
	return l.writer.Published()
}

// end is the position behind the last record. Called under mu.
func (l *Log) end() uint64 { return l.start + uint64(len(l.batch)) }

// Truncate lets all records go whose positions are at most position: what they say is in the nodes that they are about. Lower positions than before change
// nothing.
func (l *Log) Truncate(position uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	durable := l.durable.Load()
	position = min(position, durable)
	n := 0
	for n < len(l.marks) && l.marks[n] <= position {
		n++
	}
	if n > 0 {
		l.wanted = l.marks[n-1]
		l.marks = append(l.marks[:0], l.marks[n:]...)
	}
	if position == durable && align(durable) == l.start { // nothing is left but the batch that is open; if one were under way, start would lie behind it
		l.wanted, l.marks = l.start, l.marks[:0]
	}
}

// Appender is one goroutine's hand on a log. Not safe for concurrent use.
type Appender struct {
	log   *Log
	event env.Event
	until uint64 // the position that it waits for

	// An operation's limit. Its clock starts when it first has to wait, since reading the clock costs more than a batch on shared memory.
	limit, deadline time.Duration
	waits           bool
}

// Appender makes one.
func (l *Log) Appender() *Appender { return &Appender{log: l, event: l.env.NewEvent()} }

// Append adds a record, at most MaxRecord bytes, and returns its position: later records have higher ones. It is durable when Wait said so.
// ErrFull: truncate first. It may have to wait for a batch under way, for which nothing but the memory server is needed; after another error the log is dead.
// It allocates nothing.
func (a *Appender) Append(record []byte) (position uint64, err error) {
	l := a.log
	a.limit, a.waits = appendWaits, false
	need := recordHead + len(record)
	if most := min(MaxRecord, int(l.ref.Bytes)/2); need > most {
		return 0, fmt.Errorf("a redo record of %d bytes: at most %d", len(record), most-recordHead)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.failed == nil {
		switch {
		case len(l.batch)+need > batchBytes:
			if err := a.flushOrWait(l.end()); err != nil {
				return 0, err
			}
			continue
		case align(l.end()+uint64(need))-l.wanted > uint64(l.ref.Bytes):
			return 0, ErrFull
		}
		n := len(l.batch)
		l.batch = l.batch[:n+need]
		binary.LittleEndian.PutUint32(l.batch[n:], uint32(len(record)))
		copy(l.batch[n+recordHead:], record)
		l.counts.Records++
		return l.end(), nil
	}
	return 0, l.failed
}

// Wait waits until all records up to position are durable, which they are at once if no other batch is under way: who waits first posts them. pool.ErrTimeout: it
// is not known whether they are. After another error the log is dead.
func (a *Appender) Wait(position uint64, limit time.Duration) error {
	l := a.log
	if l.durable.Load() >= position {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a.limit, a.waits = limit, false
	for l.durable.Load() < position {
		if err := a.flushOrWait(position); err != nil {
			return err
		}
	}
	return nil
}

// flushOrWait posts what is there, or waits until the batch under way has ended and position is durable, or it is this appender's turn to post. Called under mu.
func (a *Appender) flushOrWait(position uint64) error {
	l := a.log
	if l.failed != nil {
		return l.failed
	}
	if !l.flushing {
		l.flush()
		return l.failed
	}
	if !a.waits {
		a.deadline, a.waits = env.Deadline(l.env, a.limit), true
	}
	a.until = position
	l.waiting = append(l.waiting, a)
	l.mu.Unlock()
	woken := a.event.Wait(env.Remaining(l.env, a.deadline))
	l.mu.Lock()
	if woken {
		return l.failed
	}
	for i, w := range l.waiting {
		if w == a {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return fmt.Errorf("wait for the redo log: %w", pool.ErrTimeout)
		}
	}
	a.event.Wait(0) // it was woken meanwhile
	l.wake()        // perhaps it was its turn to post
	return fmt.Errorf("wait for the redo log: %w", pool.ErrTimeout)
}

// flush posts the batch, with the tail before it if that moves. Called under mu, which it gives up meanwhile, while no batch is under way and this one is not empty.
func (l *Log) flush() {
	batch, start, tail := l.batch, l.start, l.wanted
	moves := tail != l.tail
	l.flushing = true
	l.batch, l.spare = l.spare[:batchHead], batch[:0]
	l.start = align(start + uint64(len(batch)))
	l.counts.Batches++
	l.counts.Bytes += uint64(len(batch))
	l.mu.Unlock()
	if moves {
		binary.LittleEndian.PutUint64(l.word, tail)
		l.writer.Write(l.ref.Addr+tailOffset, l.word)
	}
	sealBatch(l.ref.Nonce, start, batch)
	l.write(start, batch)
	err := l.writer.Post()
	l.mu.Lock()
	l.flushing = false
	if err != nil {
		l.failed = fmt.Errorf("write the redo log: %w", err)
	} else {
		l.tail = tail
		l.durable.Store(start + uint64(len(batch)))
		l.mark(start)
	}
	l.wake()
}

// write queues the WRITEs of a batch: two if it goes beyond the end of the ring.
func (l *Log) write(position uint64, batch []byte) {
	ring := l.ref.Addr + headBytes
	at := position % uint64(l.ref.Bytes)
	first := min(uint64(len(batch)), uint64(l.ref.Bytes)-at)
	l.writer.Write(ring+pool.Addr(at), batch[:first])
	if first < uint64(len(batch)) {
		l.writer.Write(ring, batch[first:])
	}
}

// mark notes the batch at position as a place for the tail, if the last one is far enough away. Called under mu.
func (l *Log) mark(position uint64) {
	last := l.wanted
	if n := len(l.marks); n > 0 {
		last = l.marks[n-1]
	}
	if position-last >= uint64(l.ref.Bytes)/marksAtMost {
		l.marks = append(l.marks, position)
	}
}

// wake wakes those whose records are durable, and one who posts the next batch. Called under mu.
func (l *Log) wake() {
	kept, next := l.waiting[:0], false
	for _, w := range l.waiting {
		if l.failed == nil && w.until > l.durable.Load() && next {
			kept = append(kept, w)
			continue
		}
		if l.failed == nil && w.until > l.durable.Load() {
			next = true
		}
		w.event.Set()
	}
	clear(l.waiting[len(kept):])
	l.waiting = kept
}

// Close ends the log. What is not durable stays so. With discard its memory is given back: nobody will need to replay it.
// Nobody may use it any more.
func (l *Log) Close(discard bool) error {
	var err error
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	if discard && l.failed == nil {
		err = Discard(l.writer, l.ref)
	}
	return errors.Join(err, l.writer.Close())
}
