package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Sink is the copy's end of all connections: what it applies is in its replica. Make it with
// NewSink.
type Sink struct {
	Env    env.Env
	Member *volumes.Member
	// Limit is how long a source may say nothing, or Log may take nothing; 0 = DefaultLimit.
	Limit time.Duration
	// Log has what the copy applies, before that is applied; nil = nothing has.
	Log   Log
	shape Shape

	mu      env.Mutex // held while items are applied
	replica verbs.Replica
	applied verbs.Position
	begun   bool // a stream was taken; applied is where the copy is
	stream  Conn // that is taken now; a later one of the same join takes its place
	closed  bool
}

// NewSink makes the sink of a process that joins. What it takes goes to a replica with an empty
// memory, which nobody else uses until Close has returned. It takes the changes of memory whose
// copy it can open: of that shape.
func NewSink(e env.Env, m *volumes.Member, r verbs.Replica, shape Shape) *Sink {
	shape.Size = uint64(len(r.Memory))
	return &Sink{Env: e, Member: m, shape: shape, mu: e.NewMutex(), replica: r}
}

// Log keeps what a copy applies where it outlives the process. It is called by one goroutine at a
// time.
type Log interface {
	// BeginCopy is called before a position of the stream is taken, with the first one.
	BeginCopy(start verbs.Position) error
	// Take takes whole items at a position, all of them or none; some of them it may have. False
	// without an error: there is no room now.
	Take(at verbs.Position, items []byte) (bool, error)
	// Sync is called before the source hears that what was taken is applied. It returns when that
	// is as safe as an answer needs. ledger says that changes of the ledger may be among it.
	Sync(ledger bool) error
}

// streamBytes holds the longest item, and as many short ones as a read brings.
const streamBytes = verbs.MaxItem + 1<<20

// roomPause is the time between two attempts to log what there was no room for.
const roomPause = 10 * time.Millisecond

var errNoRoom = errors.New("there is no room where this copy keeps its changes: is the disk full, or too slow for its checkpoints?")

var errClosed = fmt.Errorf("this copy takes no changes any more: %w", verbs.ErrClosed)

func (s *Sink) limit() time.Duration {
	if s.Limit == 0 {
		return DefaultLimit
	}
	return s.Limit
}

// Close ends what the copy takes. When it has returned no item is being applied, and none is any
// more.
func (s *Sink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *Sink) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Ledger is the ledger of the copy; nil = it has none. Whoever opens stores it before it is stored
// that the content is here (volumes.Host.Close comes before that), so that a later process of the
// pod has it.
func (s *Sink) Ledger() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replica.Known {
		return nil
	}
	return s.replica.Ledger
}

// Look calls f with what the copy has, while nothing is applied.
func (s *Sink) Look(f func(*verbs.Replica)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.replica)
}

// Applied is how far the copy is.
func (s *Sink) Applied() verbs.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

// Serve serves a connection until that ends, or the copy takes no more of it, closes it, and
// returns why.
func (s *Sink) Serve(c Conn) error {
	defer c.Close()
	until := env.Deadline(s.Env, s.limit())
	h, err := readHello(s.Env, c, until)
	if err != nil {
		_ = writeAnswer(s.Env, c, 0, err, until) // a source of another version reads why
		return err
	}
	applied, err := s.attach(c, &h)
	if err == nil && h.Kind != Permission {
		err = s.sync(true) // the stream before may have ended between Take and Sync
	}
	if e := writeAnswer(s.Env, c, applied, err, until); err == nil {
		err = e
	}
	switch {
	case err != nil:
	case h.Kind == Permission:
		err = s.permit(c, &h)
	default:
		err = s.applyStream(c, &h)
	}
	return fmt.Errorf("serve the memory server %v: %w", h.From, err)
}

// attach takes a connection or says why not. A stream takes the place of an earlier one of the same
// join, of which nothing is applied any more when it has returned.
func (s *Sink) attach(c Conn, h *Hello) (verbs.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch self := s.Member.Self(); {
	case s.closed:
		return 0, errClosed
	case h.To != self:
		return 0, fmt.Errorf("this is the process %v, and not %v", self, h.To)
	case h.From == volumes.Proc{}:
		return 0, fmt.Errorf("take changes of nobody: %w", volumes.ErrTaken)
	case h.Kind == Permission:
		return 0, nil
	}
	if err := s.shape.checkCopy(&h.Shape); err != nil {
		return 0, fmt.Errorf("take the changes of %v: %w", h.From, err)
	}
	if err := s.Member.Attach(h.From, h.Join, h.View); err != nil {
		return 0, err
	}
	if !s.begun {
		if s.Log != nil {
			if err := s.Log.BeginCopy(h.Start); err != nil {
				return 0, err
			}
		}
		s.begun, s.applied = true, h.Start
	}
	s.stream = c
	return s.applied, nil
}

// applyStream applies a stream.
func (s *Sink) applyStream(c Conn, h *Hello) error {
	buf, have := make([]byte, streamBytes), 0
	var ack [8]byte
	for heard, full := s.Env.Now(), false; ; {
		n := 0
		if full {
			s.Env.Sleep(roomPause)
		} else {
			var err error
			if n, err = c.Read(buf[have:]); err != nil {
				return err // what came with the error comes again
			}
		}
		have += n
		done, applied, ledger, err := s.apply(buf[:have], c, h)
		if full = errors.Is(err, errNoRoom); err != nil && !full {
			return err
		}
		switch now := s.Env.Now(); {
		case n > 0:
			heard = now
		case now-heard >= s.limit() && full:
			return err
		case now-heard >= s.limit():
			return fmt.Errorf("it has said nothing for %v: %w", s.limit(), verbs.ErrTimeout)
		}
		if done == 0 {
			continue
		}
		if err := s.sync(ledger); err != nil {
			return err
		}
		have = copy(buf, buf[done:have])
		binary.LittleEndian.PutUint64(ack[:], uint64(applied))
		if err := writeFull(s.Env, c, ack[:], env.Deadline(s.Env, s.limit())); err != nil {
			return err
		}
	}
}

// apply applies the whole items of a part of a stream, and returns how long they are, how far the
// copy is, and whether they have changes of the ledger. Who closes the sink waits for that.
func (s *Sink) apply(b []byte, c Conn, h *Hello) (done int, applied verbs.Position, ledger bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.stream != c || !s.Member.Takes(h.From) {
		return 0, s.applied, false, errClosed
	}
	if err := s.logLocked(b); err != nil {
		return 0, s.applied, false, err
	}
	for {
		i, n, err := verbs.NextItem(b[done:], uint64(len(s.replica.Memory)))
		if err == nil && n > 0 {
			err = s.replica.Apply(&i)
		}
		if n == 0 || err != nil {
			return done, s.applied, ledger, err
		}
		ledger = ledger || i.Kind == verbs.ItemLedger || i.Kind == verbs.ItemLedgerPart || i.Kind == verbs.ItemLedgerWhole
		if i.Kind == verbs.ItemMark && i.At == h.Join && i.At != 0 {
			s.Member.Marked(h.From)
		}
		done += n
		s.applied += verbs.Position(n)
	}
}

// sync returns when what was applied may be acknowledged. Nothing is held meanwhile: permissions go
// on, and what the source sends next is synced together.
func (s *Sink) sync(ledger bool) error {
	if s.Log == nil {
		return nil
	}
	return s.Log.Sync(ledger)
}

// logLocked logs the whole items of a part of a stream.
func (s *Sink) logLocked(b []byte) error {
	if s.Log == nil {
		return nil
	}
	whole := 0
	for {
		_, n, err := verbs.NextItem(b[whole:], uint64(len(s.replica.Memory)))
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		whole += n
	}
	if whole == 0 {
		return nil
	}
	took, err := s.Log.Take(s.applied, b[:whole])
	if err == nil && !took {
		err = errNoRoom
	}
	return err
}
