package redo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Appender is one goroutine's hand on a log. Not safe for concurrent use.
type Appender struct {
	log   *Log
	event env.Event
	until uint64 // the position that it waits for

	// An operation's limit. Its clock starts when it first has to wait, since reading the clock
	// costs more than a batch on shared memory.
	limit, deadline time.Duration
	within          *pool.Session // whose operation has the limit; nil = limit
	waits           bool

	started *lane // that Start posted, until Finish
}

// Appender makes one.
func (l *Log) Appender() *Appender { return &Appender{log: l, event: l.env.NewEvent()} }

// Append adds a record, at most MaxRecord bytes, and returns its position: later records have
// higher ones. It is durable when Wait said so. ErrFull: truncate first. It may have to wait for a
// batch under way, for which nothing but the memory server is needed; after another error the log
// is dead. It allocates nothing.
func (a *Appender) Append(record []byte) (position uint64, err error) {
	return a.put(record, false, true)
}

// TryAppend is Append that waits for no batch: ErrBusy if it would have to. Then Room waits. Who
// holds a lock that others need appends so.
func (a *Appender) TryAppend(record []byte) (position uint64, err error) {
	return a.put(record, false, false)
}

// AppendReserved is Append of a record for which Reserve has set room aside: at most one of so many
// bytes after each record of this appender that was appended otherwise. It does not return ErrFull.
func (a *Appender) AppendReserved(record []byte) (position uint64, err error) {
	return a.put(record, true, true)
}

// Room waits until a record of so many bytes needs no wait for a batch, which others may have used
// by the time that it returns. A ring that is full is no reason to wait. pool.ErrTimeout: the limit
// is over. After another error the log is dead.
func (a *Appender) Room(bytes int, limit time.Duration) error {
	l := a.log
	a.limit, a.within, a.waits = limit, nil, false
	a.finish()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := a.makeRoom(recordHead+bytes, false, true); err != nil && err != ErrFull {
		return err
	}
	return nil
}

// MostRecord is how long a record may be.
func (l *Log) MostRecord() int { return min(MaxRecord, int(l.ref.Bytes)/2) - recordHead }

// put appends a record, also in the reserve.
func (a *Appender) put(record []byte, reserved, wait bool) (position uint64, err error) {
	l := a.log
	a.limit, a.within, a.waits = AppendWaits, nil, false
	a.finish()
	need := recordHead + len(record)
	if most := l.MostRecord(); len(record) > most {
		return 0, fmt.Errorf("a redo record of %d bytes: at most %d", len(record), most)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := a.makeRoom(need, reserved, wait); err != nil {
		return 0, err
	}
	n := len(l.open.batch)
	b := l.open.batch[:n+need]
	binary.LittleEndian.PutUint32(b[n:], uint32(len(record)))
	copy(b[n+recordHead:], record)
	l.open.batch = b
	l.counts.Records++
	l.noteHalf()
	return l.end(), nil
}

// makeRoom returns nil once the open batch and the ring have room for so many bytes. Called under
// mu.
func (a *Appender) makeRoom(need int, reserved, wait bool) (err error) {
	l := a.log
	for l.failed == nil {
		ring := uint64(l.ref.Bytes)
		if !reserved {
			ring -= l.reserved.Load()
		}
		to := align(l.end() + uint64(need))
		full, moves := len(l.open.batch)+need > batchBytes, to-l.tail > uint64(l.ref.Bytes)
		switch {
		case !full && to-l.wanted > ring:
			return ErrFull
		case !full && !moves:
			return nil
		case !wait:
			return ErrBusy
		case full:
			err = a.postOrWait(l.end())
		default:
			err = a.moveTail()
		}
		if err != nil {
			return err
		}
	}
	return l.failed
}

// Wait waits until all records up to position are durable. Who waits first posts the batch that
// holds them, if not too many are under way. pool.ErrTimeout: the limit is over, and it is not
// known whether they are durable; others wait for what this one posted. After another error the log
// is dead.
func (a *Appender) Wait(position uint64, limit time.Duration) error {
	return a.await(position, limit, nil)
}

// WaitIn is Wait within what is left of the limit of the operation of s that is under way. It
// returns the reason if this client is given up.
func (a *Appender) WaitIn(s *pool.Session, position uint64) error {
	err := a.await(position, 0, s)
	if errors.Is(err, pool.ErrTimeout) {
		if late := s.Overdue(); late != nil {
			err = fmt.Errorf("wait for the redo log: %w", late)
		}
	}
	return err
}

func (a *Appender) await(position uint64, limit time.Duration, within *pool.Session) error {
	l := a.log
	a.limit, a.within, a.waits = limit, within, false
	if a.started != nil {
		a.finish()
	}
	if l.durable.Load() >= position {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.durable.Load() < position {
		if err := a.postOrWait(position); err != nil {
			return err
		}
	}
	return nil
}

// Start posts the batch that holds the record at position, if that is not under way, and not too
// many are. It does not wait. Until Finish the batch is not over for anybody, so the caller waits
// for nothing in between: it only posts requests, which it awaits after Finish. Append and Wait
// finish first.
func (a *Appender) Start(position uint64) {
	l := a.log
	l.mu.Lock()
	if l.failed != nil || a.started != nil || position <= l.start || !l.mayPost() {
		l.mu.Unlock()
		return
	}
	a.started = l.begin()
	l.mu.Unlock()
	l.launch(a.started)
}

// Finish waits until the batch that Start posted is over, if there is one, within what is left of
// the limit of the operation of s that is under way; nil = as long as a memory server may take. Its
// records are durable then, or the log is dead, or the batch or an earlier one is under way still:
// Wait says it.
func (a *Appender) Finish(s *pool.Session) {
	a.limit, a.within, a.waits = AppendWaits, s, false
	a.finish()
}

func (a *Appender) finish() {
	n, l := a.started, a.log
	if n == nil {
		return
	}
	a.started = nil
	_ = a.attend(n)
	l.mu.Unlock()
}

// postOrWait posts the batch that is open if the record at position is in it. Else, or if that
// cannot be, it waits until position is durable, or it is this appender's turn to post. Called
// under mu.
func (a *Appender) postOrWait(position uint64) error {
	l := a.log
	if l.failed != nil {
		return l.failed
	}
	if position > l.start && l.mayPost() {
		return a.post()
	}
	return a.wait(position)
}

// moveTail posts the tail, or waits until any batch is over: the tail may be in its list. Called
// under mu.
func (a *Appender) moveTail() error {
	if l := a.log; !l.moving && l.mayPost() {
		return a.post()
	}
	return a.wait(0)
}

func (l *Log) mayPost() bool { return len(l.underWay) < underWayAtMost }

// post posts the batch that is open, if it is not empty, behind the tail if that is to move, and
// waits for it. Called under mu, which it gives up meanwhile, when mayPost.
func (a *Appender) post() error {
	l := a.log
	n := l.begin()
	l.mu.Unlock()
	l.launch(n)
	return a.attend(n)
}

// begin closes the batch that is open, opens another one, and counts the first as under way. Called
// under mu, when mayPost.
func (l *Log) begin() *lane {
	n := l.open
	n.tail, n.moves = l.wanted, l.wanted != l.tail && !l.moving
	l.moving = l.moving || n.moves
	n.start, n.end, n.over, n.attended = l.start, 0, false, true
	if len(n.batch) > batchHead {
		n.end = l.end()
		l.start = align(n.end)
		l.counts.Batches++
		l.counts.Bytes += uint64(len(n.batch))
	}
	l.open = l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.underWay = append(l.underWay, n)
	return n
}

// launch posts the requests of a batch that begin has closed. Called without mu.
func (l *Log) launch(n *lane) {
	if n.moves {
		binary.LittleEndian.PutUint64(n.word, n.tail)
		n.s.Write(pool.Sole, l.ref.Addr+tailOffset, n.word)
	}
	if n.end > 0 {
		sealBatch(l.sums, n.start, n.batch)
		l.write(n)
	}
	n.s.Start()
}

// batchEnded is called when the requests of a batch are over. Called under mu.
func (l *Log) batchEnded(n *lane, err error) {
	switch {
	case err != nil:
		l.failed = fmt.Errorf("write the redo log: %w", err)
	case n.moves:
		l.tail, l.moving = n.tail, false
		fallthrough
	default:
		n.over = true
		l.confirm()
	}
	l.wakeWaiters()
}

// confirm makes durable what is in batches that are over, up to the first that is not. Called under
// mu.
func (l *Log) confirm() {
	over := 0
	for _, n := range l.underWay {
		if !n.over {
			break
		}
		over++
		if n.end > 0 {
			l.durable.Store(n.end)
			l.mark(n.start)
		}
		n.batch = n.batch[:batchHead]
		l.free = append(l.free, n)
	}
	l.underWay = append(l.underWay[:0], l.underWay[over:]...)
}

// write queues the WRITEs of a batch: two if it goes beyond the end of the ring.
func (l *Log) write(n *lane) {
	ring := l.ref.Addr + headBytes
	at := n.start % uint64(l.ref.Bytes)
	first := min(uint64(len(n.batch)), uint64(l.ref.Bytes)-at)
	n.s.Write(pool.Sole, ring+pool.Addr(at), n.batch[:first])
	if first < uint64(len(n.batch)) {
		n.s.Write(pool.Sole, ring, n.batch[first:])
	}
}

// mark notes the batch at position as a place for the tail, if the last one is far enough away.
// Called under mu.
func (l *Log) mark(position uint64) {
	last := l.wanted
	if n := len(l.marks); n > 0 {
		last = l.marks[n-1]
	}
	if position-last >= uint64(l.ref.Bytes)/marksAtMost {
		l.marks = append(l.marks, position)
	}
}
