package persist_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// world is a memory server with a directory, in a simulated world. Real are the journal and the
// store; the memory has a few words and ranges that become zero. All changes are kept in the order
// in which they were recorded. Judged is what each process finds: the memory and the ledger behind
// a prefix of the changes, with all that was answered.
type world struct {
	*simtest.Stage
	wrong mistake
	sync  persist.Sync
	disk  *disk
	boot  byte

	server  *server
	over    bool
	history []change // all changes of what is there
	known   int      // so many of them were answered
	ledgers int      // up to here are those of the ledger that were answered
	nothing bool     // the directory is of a copy that did not store that it has the content
	counts  counts
}

// change is one of a word, of several that become zero with all between them, or of the ledger.
type change struct {
	at, n int
	value uint64
}

// counts is what happened.
type counts struct{ answers, boots, powers, checkpoints, failed, lacks, cut, full, taken, discarded, left int }

func (c *counts) add(o counts) {
	c.answers += o.answers
	c.boots += o.boots
	c.powers += o.powers
	c.checkpoints += o.checkpoints
	c.failed += o.failed
	c.lacks += o.lacks
	c.cut += o.cut
	c.full += o.full
	c.taken += o.taken
	c.discarded += o.discarded
	c.left += o.left
}

const (
	size     = 4 * 64 << 10
	words    = 24
	apart    = 9000
	inLedger = -1
)

type run struct {
	seed  uint64
	wrong mistake
	dieAt int  // in that call of the disk; 0 = at random times
	copy  bool // the first life is a copy's
}

type outcome struct {
	err    error
	counts counts
	calls  int
}

func (r run) do() outcome {
	inner := simenv.New(simenv.Options{Seed: r.seed, Preempt: 16, MaxEvents: 4_000_000})
	w := &world{Stage: &simtest.Stage{World: inner, Random: rand.New(rand.NewPCG(r.seed, 53)), Drift: 60_000}, wrong: r.wrong, boot: 1}
	w.sync = persist.Sync(w.Random.IntN(3))
	if w.Random.IntN(2) == 0 {
		w.sync = persist.Always
	}
	w.disk = newDisk(w.Stage, r.wrong)
	w.disk.drops = rand.New(rand.NewPCG(r.seed, 59))
	w.disk.dieAt = r.dieAt
	err := inner.Run(func(p *simenv.Process) {
		lives := 3 + w.Random.IntN(6)
		if r.dieAt > 0 {
			lives = 3
		}
		for n := range lives {
			w.live(p, r.dieAt > 0, r.copy && n == 0)
		}
		w.over = true
	})
	if w.Problem != nil {
		err = fmt.Errorf("seed %d, %v: %w", r.seed, w.sync, w.Problem)
	}
	return outcome{err, w.counts, w.disk.calls}
}

// live is the life of a process, and its end.
func (w *world) live(main *simenv.Process, calm, copies bool) {
	p := w.NewDrifting("server")
	s := &server{w: w, process: p, accounts: p.NewMutex(), memory: make([]byte, size)}
	w.server = s
	w.counts.boots++
	if copies {
		p.Go("main", s.copyMain)
	} else {
		p.Go("main", s.main)
	}
	long := 30*time.Millisecond + w.UpTo(150*time.Millisecond)
	if copies {
		long += 200 * time.Millisecond
	}
	for until := main.Now() + long; main.Now() < until && !p.Dead(); {
		main.Sleep(w.UpTo(10 * time.Millisecond))
		switch {
		case calm:
		case w.OneIn(60):
			w.disk.broken = 1
			w.counts.failed++
		case w.OneIn(20):
			w.disk.full = true
			w.counts.full++
			main.Sleep(w.UpTo(30 * time.Millisecond))
			w.disk.full = false
		}
	}
	w.disk.full, w.disk.broken = false, 0
	if !p.Dead() && w.OneIn(4) {
		s.stop = true
		main.Sleep(200 * time.Millisecond) // an orderly end, unless it is cut off
	}
	p.Kill()
	if w.OneIn(2) || calm {
		w.disk.power()
		w.boot++
		w.counts.powers++
	}
}

// server is a process: a memory server.
type server struct {
	w       *world
	process *simenv.Process
	memory  []byte
	journal *verbs.Journal
	feed    *verbs.Feed
	store   *persist.Store
	stop    bool
	copied  bool // the checkpoint that is written has all its copies

	accounts env.Mutex // held while the ledger changes
	ledger   []byte
}

func (s *server) main() {
	w, p := s.w, s.process
	var err error
	if w.nothing {
		if err = persist.Discard(&mount{w.disk, p}); err != nil {
			p.Kill()
		}
		w.nothing, w.history, w.known, w.ledgers = false, nil, 0, 0
		w.counts.discarded++
	}
	if s.store, err = s.open(s.options()); err != nil {
		w.Report("open: %v", err)
		return
	}
	s.serve()
}

func (s *server) options() persist.Options {
	w, p := s.w, s.process
	return persist.Options{
		Env: p, Sync: w.sync, Boot: [16]byte{w.boot}, CheckpointBytes: 6_000, LogBytes: 20_000, Failed: func(error) { p.Go("end", p.Kill) },
	}
}

// serve lets sessions change what there is, until the end of the process.
func (s *server) serve() {
	p, store := s.process, s.store
	var err error
	s.journal = verbs.NewJournal(p, nil)
	if s.feed, err = s.journal.Feed(func() error { return nil }, nil); err == nil {
		err = store.Begin(s.feed.Start(), s.journal.Ledger)
	}
	if err == nil {
		err = errors.Join(s.feed.Connect(store, s.feed.Start()), s.feed.Await())
	}
	if err != nil {
		p.Kill() // the disk is full, or broken
	}
	p.Go("sync", store.RunSync)
	p.Go("checkpoints", func() { store.RunCheckpoints(s) })
	for range 3 {
		p.Go("session", s.session)
	}
	for !s.stop {
		p.Sleep(time.Millisecond)
	}
	store.Stop()
	if err := s.feed.Follow(nil, s.journal.Last(), 50*time.Millisecond); err == nil {
		store.Close()
	}
	p.Kill()
}

// open opens the directory as a person does who reads what it says.
func (s *server) open(o persist.Options) (store *persist.Store, err error) {
	w := s.w
	mounted := &mount{w.disk, s.process}
	for range 2 {
		if store, err = persist.Open(mounted, persist.Volume{ID: 1, Bytes: size, ChunkBytes: 4096, LockBytes: 8}, o); err != nil {
			break
		}
		clear(s.memory)
		r := verbs.Replica{Memory: s.memory}
		said := store.MayLack()
		err = store.Recover(&r)
		if lacks, says := errors.Is(err, persist.ErrMayLack), errors.Is(said, persist.ErrMayLack); lacks != says && (lacks || err == nil) && (says || said == nil) {
			w.Report("the directory is read with %v, and said %v", err, said)
		}
		if err == nil {
			s.ledger = bytes.Clone(r.Ledger)
			s.judge(o.AcceptLoss)
			return store, nil
		}
		if !errors.Is(err, persist.ErrMayLack) || w.sync == persist.Always {
			break
		}
		w.counts.lacks++
		o.AcceptLoss = true
	}
	if w.disk.broken > 0 || w.disk.full || errors.Is(err, errBroken) {
		s.process.Kill()
	}
	return nil, err
}

// judge looks for the prefix of the changes that was found.
func (s *server) judge(accepted bool) {
	w := s.w
	least := w.known
	if accepted {
		least = w.ledgers
	}
	var now, there [words]uint64
	rest := bytes.Clone(s.memory)
	for i := range there {
		there[i] = binary.LittleEndian.Uint64(rest[i*apart:])
		clear(rest[i*apart:][:8])
	}
	if !bytes.Equal(rest, make([]byte, size)) {
		w.Report("process %d finds something beside the words", w.counts.boots)
	}
	ledger, stored := uint64(0), uint64(0)
	if len(s.ledger) > 0 {
		stored = binary.LittleEndian.Uint64(s.ledger)
	}
	found := -1
	for k := 0; ; k++ {
		if k >= least && stored == ledger && now == there {
			found = k
		}
		if k == len(w.history) {
			break
		}
		switch c := w.history[k]; {
		case c.at == inLedger:
			ledger = c.value
		default:
			for i := c.at / apart; i*apart < c.at+c.n; i++ {
				now[i] = c.value
			}
		}
	}
	if found < 0 {
		w.Report("process %d finds no prefix of %d changes, of which %d were answered", w.counts.boots, len(w.history), least)
		return
	}
	w.counts.cut += len(w.history) - found
	w.history = w.history[:found]
	w.known, w.ledgers = min(w.known, found), min(w.ledgers, found)
}

// session executes what clients ask for.
func (s *server) session() {
	w, p := s.w, s.process
	waiter := s.journal.NewWaiter()
	for !w.over && !s.stop {
		p.Sleep(w.UpTo(time.Millisecond))
		var err error
		switch w.Random.IntN(8) {
		case 0, 1:
			err = s.read(waiter)
		case 2:
			err = s.account(waiter)
		case 3:
			first := w.Random.IntN(words)
			err = s.change(waiter, change{at: first * apart, n: (1 + w.Random.IntN(words-first)) * apart})
		default:
			err = s.change(waiter, change{at: w.Random.IntN(words) * apart, n: 8, value: 1 + w.Random.Uint64N(1<<60)})
		}
		if err == nil {
			w.counts.answers++
		}
	}
}

// answered notes that all of so many changes were, in an answer.
func (s *server) answered(n int) {
	if !s.process.Dead() {
		s.w.known = max(s.w.known, n)
	}
}

func (s *server) change(w *verbs.Waiter, c change) error {
	var data [8]byte
	binary.LittleEndian.PutUint64(data[:], c.value)
	if err := s.journal.Begin(w, verbs.ItemBytes(8)); err != nil {
		return err
	}
	var p verbs.Position
	if c.value == 0 {
		p = s.journal.Zero(uint64(c.at), c.n)
		clear(s.memory[c.at:][:c.n])
	} else {
		p = s.journal.Record(uint64(c.at), data[:])
		copy(s.memory[c.at:], data[:])
	}
	s.w.history = append(s.w.history, c)
	n := len(s.w.history)
	s.journal.Done()
	err := s.journal.Wait(w, p)
	if err == nil {
		s.answered(n)
	}
	return err
}

// read answers with a word, and so with all changes up to its last one.
func (s *server) read(w *verbs.Waiter) error {
	at := s.w.Random.IntN(words) * apart
	n := 0
	for i, c := range s.w.history {
		if c.at != inLedger && c.at <= at && c.at+c.n >= at+8 {
			n = i + 1
		}
	}
	p := s.journal.Seen(uint64(at), 8)
	if s.w.wrong == noNeed {
		p = 0
	}
	err := s.journal.Wait(w, p)
	if err == nil {
		s.answered(n)
	}
	return err
}

func (s *server) account(w *verbs.Waiter) error {
	s.accounts.Lock()
	next := binary.LittleEndian.AppendUint64(nil, 1+s.w.Random.Uint64N(1<<60))
	next = append(next, make([]byte, s.w.Random.IntN(300))...)
	if err := s.journal.BeginNow(verbs.ItemBytes(len(next))); err != nil {
		s.accounts.Unlock()
		return err
	}
	if len(s.ledger) > 8 && s.w.OneIn(2) { // what follows the number stays
		next = append(next[:8], s.ledger[8:]...)
		s.journal.Splice(0, len(s.ledger)-8, next[:8])
	} else {
		s.journal.Splice(0, 0, next)
	}
	s.w.history = append(s.w.history, change{at: inLedger, value: binary.LittleEndian.Uint64(next)})
	n := len(s.w.history)
	s.journal.Done()
	s.ledger = next
	s.accounts.Unlock()
	err := s.journal.Wait(w, s.journal.Ledger())
	if err == nil {
		s.answered(n)
		if !s.process.Dead() {
			s.w.ledgers = max(s.w.ledgers, n)
		}
	}
	return err
}
