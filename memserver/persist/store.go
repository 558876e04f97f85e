package persist

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Options of a Store.
type Options struct {
	Env  env.Env
	Sync Sync
	// Boot is the run of the machine; zeroes = not known.
	Boot [16]byte
	// AcceptLoss opens what may lack acknowledged changes (ErrMayLack).
	AcceptLoss bool
	// CheckpointBytes is how long the log becomes before there is another checkpoint. 0 = half of
	// the region, and no less than 32 MiB.
	CheckpointBytes uint64
	// LogBytes is how long it becomes at most: changes wait for the checkpoint then. 0 = twice the
	// region, and no less than 128 MiB.
	LogBytes uint64
	// Report is told of what goes wrong and may come right again. Nil = nobody is.
	Report func(error)
	// Failed is told once why nothing is acknowledged any more. Nil = nobody is.
	Failed func(error)
}

// A Store is what a directory has of a volume, and the link over which a journal's feed sends it
// changes. [Open] it, then Recover, then Begin; then connect the feed, and run RunSync and
// RunCheckpoints until Stop. Close comes last.
//
// Send, Receive and Close are called as those of any link are. The other methods are for one
// goroutine at a time, but for Stop.
type Store struct {
	env     env.Env
	fs      FS
	volume  Volume
	options Options
	set     [16]byte
	end     uint64
	begun   bool   // the log has gone on behind end
	base    uint64 // of the stream's positions in those of the directory
	ledger  func() verbs.Position
	wrote   env.Event // for who receives
	last    uint64    // that Receive returned
	stopped atomic.Bool

	// The order of locks: mu, then syncing.
	mu     env.Mutex // of writes; guards what follows
	buf    []byte
	offset int64
	full   bool // the last write found no room
	turn   turn

	syncing env.Mutex // held while a log is synced, and while another takes its place
	log     atomic.Pointer[segment]
	at      atomic.Uint64 // written up to here; changes under mu
	synced  atomic.Uint64 // on disk up to here; changes under syncing
	start   atomic.Uint64 // of the newest checkpoint
	number  uint64        // its number
	needed  atomic.Uint64 // the log may become this long whatever the limit
	failed  atomic.Pointer[error]

	waits    atomic.Bool   // there was no room for what came last
	syncs    atomic.Uint64 // of logs
	syncTime atomic.Int64  // that they took
}

// segment is a log that is written.
type segment struct {
	file  File
	start uint64
}

// turn asks for another log, from a position on.
type turn struct {
	wanted bool
	at     uint64
	err    error
}

const (
	receiveWait = time.Millisecond
	fullPause   = 10 * time.Millisecond
	soon        = 5 * time.Millisecond
)

// Open looks at a directory, and makes what is missing if it is empty. Errors say what to do.
func Open(fs FS, v Volume, o Options) (*Store, error) {
	if o.CheckpointBytes == 0 {
		o.CheckpointBytes = max(v.Bytes/2, 32<<20)
	}
	if o.LogBytes == 0 {
		o.LogBytes = max(2*v.Bytes, 128<<20)
	}
	s := &Store{
		env: o.Env, fs: fs, volume: v, options: o, wrote: o.Env.NewEvent(), mu: o.Env.NewMutex(), syncing: o.Env.NewMutex(),
		buf: make([]byte, partHead),
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("persistent memory: %w", err)
	}
	return s, nil
}

func (s *Store) report(err error) {
	if s.options.Report != nil {
		s.options.Report(err)
	}
}

// fail is final: what was not acknowledged never is.
func (s *Store) fail(err error) error {
	err = fmt.Errorf("persistent memory: %w; nothing is acknowledged any more, since nobody knows what is on disk: check the disk, then start again, which reads what is there", err)
	if s.failed.CompareAndSwap(nil, &err) {
		if s.options.Sync != Always && s.log.Load() != nil {
			s.leaveWord()
		}
		if s.options.Failed != nil {
			s.options.Failed(err)
		}
	}
	return s.Err()
}

// Err is why nothing is acknowledged any more; nil = it is.
func (s *Store) Err() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Begin lets the log go on, behind what was recovered or taken, with the stream of a feed from
// start on. ledger is the position of the journal's last change of the ledger. It can be repeated
// if it fails.
func (s *Store) Begin(start verbs.Position, ledger func() verbs.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger = ledger
	return s.beginLocked(start)
}

// beginLocked begins another stream. RunSync and RunCheckpoints of the one before have ended.
func (s *Store) beginLocked(start verbs.Position) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if !s.begun {
		s.begun = true
		s.at.Store(s.end)
		s.synced.Store(s.end)
	}
	err := s.syncLocked()
	if err == nil {
		s.stopped.Store(false)
		s.last = s.at.Load()
		s.base = s.last - uint64(start)
		err = s.nextLogLocked()
	}
	if err != nil {
		return fmt.Errorf("persistent memory: %w", err)
	}
	return nil
}

// nextLogLocked lets the log go on in another file. The caller has mu and syncing, and has synced
// the one before.
func (s *Store) nextLogLocked() error {
	at := s.at.Load()
	h := head{set: s.set, position: at, number: uint64(s.options.Sync), boot: s.options.Boot, volume: s.volume}
	f, err := s.make(numbered(logName, at), h.append(nil, magicLog))
	if err != nil {
		return fmt.Errorf("begin another log: %w", err)
	}
	if before := s.log.Load(); before != nil {
		before.file.Close() // it was synced
	}
	s.log.Store(&segment{f, at})
	s.offset = headBytes
	s.synced.Store(at)
	return nil
}

// make makes a file that is on disk when it has its name.
func (s *Store) make(name string, content []byte) (File, error) {
	f, err := s.fs.Create(name + newSuffix)
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(content, 0); err == nil {
		err = s.name(f, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// name puts a file on disk, and then gives it its name. Where it is not known whether it has that,
// the store has failed: a log that is there ends the one before.
func (s *Store) name(f File, name string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	err := s.fs.Rename(name+newSuffix, name)
	if err == nil {
		err = s.fs.Sync()
	}
	if err != nil {
		return s.fail(fmt.Errorf("give %q its name: %w", name, err))
	}
	return nil
}

// Send implements verbs.Link: it writes a frame. It takes nothing while the disk is full, or the
// log too long.
func (s *Store) Send(b []byte) (int, error) {
	s.mu.Lock()
	n, err := s.sendLocked(b)
	s.waits.Store(n == 0 && err == nil && len(b) > 0)
	s.mu.Unlock()
	if n > 0 {
		s.wrote.Set()
	} else if err == nil {
		s.env.Sleep(fullPause)
	}
	return n, err
}

func (s *Store) sendLocked(b []byte) (int, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	at := s.at.Load()
	n := uint64(min(len(b), maxFrame))
	if most := max(s.start.Load()+s.options.LogBytes, s.needed.Load()); at+n > most {
		n = max(most, at) - at
	}
	if s.turn.wanted && s.turn.at > at {
		n = min(n, s.turn.at-at)
	}
	if n &^= 7; n == 0 {
		return 0, nil
	}
	if wrote, err := s.writeLocked(at, b[:n]); !wrote {
		return 0, err
	}
	s.at.Store(at + n)
	if s.turn.wanted && s.turn.at == at+n {
		s.turnLocked()
	}
	return int(n), nil
}

// writeLocked writes a frame. False without an error: there is no room, and it may be written
// again.
func (s *Store) writeLocked(at uint64, data []byte) (bool, error) {
	p := part{kind: kindFrame, bytes: len(data), at: at, known: s.synced.Load(), sum: verbs.Sum(data)}
	p.put(s.buf, &s.set)
	s.buf = append(s.buf[:partHead], data...)
	if _, err := s.log.Load().file.WriteAt(s.buf, s.offset); err != nil {
		if !isNoSpace(err) {
			return false, s.fail(fmt.Errorf("write the log: %w", err))
		}
		if !s.full {
			s.full = true
			s.report(fmt.Errorf("the disk of persistent memory is full: changes wait until there is room: %w", err))
		}
		return false, nil
	}
	s.full = false
	s.offset += int64(len(s.buf))
	return true, nil
}

// turnLocked lets the log go on in another file, where somebody asked for that. The caller has mu.
func (s *Store) turnLocked() {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.turn.wanted = false
	if s.turn.err = s.syncLocked(); s.turn.err == nil {
		s.turn.err = s.nextLogLocked()
	}
}

// Receive implements verbs.Link: it returns what may be acknowledged.
func (s *Store) Receive() (verbs.Position, error) {
	if err := s.Err(); err != nil {
		return 0, err
	}
	at, synced := s.at.Load(), s.synced.Load()
	// A change of the ledger is on disk before it is acknowledged, whatever the mode: numbers of
	// clients are never given twice. One before the last may be written where the last is not.
	ledger := s.base + uint64(s.ledger())
	if s.options.Sync == Always || ledger > synced {
		if at > synced {
			if err := s.Flush(); err != nil {
				return 0, err
			}
		}
		at = s.synced.Load()
	}
	if at == s.last {
		s.wrote.Wait(receiveWait)
		return 0, nil
	}
	s.last = at
	return verbs.Position(at - s.base), nil
}

// Flush puts on disk what is written.
func (s *Store) Flush() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	return s.syncLocked()
}

func (s *Store) syncLocked() error {
	if err := s.Err(); err != nil {
		return err
	}
	at := s.at.Load() // of this log: no other takes its place meanwhile
	if at == s.synced.Load() {
		return nil
	}
	began := s.env.Now()
	if err := s.log.Load().file.Sync(); err != nil {
		return s.fail(fmt.Errorf("put the log on disk: %w", err))
	}
	s.syncs.Add(1)
	s.syncTime.Add(int64(s.env.Now() - began))
	s.synced.Store(at)
	return nil
}

// RunSync syncs what nobody waits for, until Stop.
func (s *Store) RunSync() {
	for !s.stopped.Load() && s.Err() == nil {
		s.env.Sleep(soon)
		if s.options.Sync == Soon {
			_ = s.Flush() // the store has failed then
		}
	}
}

// Stop ends RunSync and RunCheckpoints soon, until the next Begin.
func (s *Store) Stop() { s.stopped.Store(true) }

// Close implements verbs.Link, and ends the store: it puts on disk what is there, and writes that
// this is all. A second call does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	log := s.log.Swap(nil)
	if log == nil {
		return nil
	}
	if s.Err() == nil {
		s.endLocked(log)
	}
	closed := fmt.Errorf("persistent memory is closed: %w", verbs.ErrClosed)
	s.failed.CompareAndSwap(nil, &closed)
	return log.file.Close()
}

// endLocked writes the last frame. Without it the next process does not know that this is all.
func (s *Store) endLocked(log *segment) {
	at := s.at.Load()
	err := log.file.Sync()
	if err == nil {
		p := part{kind: kindFrame, at: at, known: at}
		p.put(s.buf, &s.set)
		_, err = log.file.WriteAt(s.buf[:partHead], s.offset)
	}
	if err == nil {
		err = log.file.Sync()
	}
	if err != nil {
		s.report(fmt.Errorf("end the log: %w", err))
	}
}
