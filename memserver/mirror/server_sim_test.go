package mirror_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dmindex/dmindex/memserver/mirror"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// pod is what outlives its processes.
type pod struct {
	name   string
	moving bool
	server *server // that runs; nil = none
	stored volumes.State
	memory []byte
	ledger []byte
}

// ready reports whether a process of the pod has begun.
func (d *pod) ready() bool { return d.server != nil && d.server.primary != nil }

// server is a process of a pod: a memory server.
type server struct {
	w       *world
	pod     *pod
	process *simenv.Process
	member  *volumes.Member
	journal *verbs.Journal
	primary *mirror.Primary
	sink    *mirror.Sink

	accounts env.Mutex // held while the ledger changes
	sessions []*session
	problem  error
}

func (w *world) newPod() {
	d := &pod{name: fmt.Sprint("pod-", len(w.pods)+1), stored: volumes.State{Process: firstNumber}}
	w.pods = append(w.pods, d)
	w.After(w.UpTo(50*time.Millisecond), nil, func() { w.boot(d) })
}

func (w *world) boot(d *pod) {
	p := w.NewDrifting(d.name)
	s := &server{w: w, pod: d, process: p, accounts: p.NewMutex()}
	d.server = s
	p.AtKill(func() {
		d.server = nil
		w.After(w.UpTo(time.Millisecond), nil, func() {
			for _, c := range w.sockets {
				if c.dead() {
					c.reset()
				}
			}
			w.sockets = slices.DeleteFunc(w.sockets, func(c *socket) bool { return c.broken })
		})
		if !w.over {
			w.After(w.UpTo(200*time.Millisecond), nil, func() { w.boot(d) })
		}
	})
	p.Go("main", s.main)
}

func (s *server) main() {
	d, p := s.pod, s.process
	m, err := volumes.New(p, d.name, d.stored, s)
	if err != nil {
		panic(err)
	}
	if m.Empty() {
		d.memory, d.ledger = make([]byte, size), nil
	}
	s.member = m
	s.journal = verbs.NewJournal(p, s.may)
	s.sink = mirror.NewSink(p, m, verbs.Replica{Memory: d.memory}, mirror.Shape{})
	s.sink.Limit = 3 * time.Second
	primary := mirror.NewPrimary(p, m, s.journal)
	primary.Shape, primary.Settle, primary.Walk, primary.Limit = mirror.Shape{Size: size}, s.settle, s.walk, 3*time.Second
	primary.Dial = func(to volumes.Proc) (mirror.Conn, error) { return s.w.dial(s, to) }
	primary.Report = func(to volumes.Proc, err error) {
		if err == nil {
			return
		}
		s.problem = fmt.Errorf("%v: %w", to, err)
		if errors.Is(err, verbs.ErrGone) {
			s.w.counts.dropped++
		}
	}
	s.primary = primary
	s.journal.Halt(true)
	if err := m.Start(); err != nil {
		panic(err)
	}
	p.Go("primary", s.primary.Run)
	for range 4 {
		k := &session{s: s, waiter: s.journal.NewWaiter()}
		s.sessions = append(s.sessions, k)
		p.Go("session", k.run)
	}
	for m.Role() != volumes.Replaced {
		p.Sleep(10 * time.Millisecond)
	}
	p.Kill()
}

func (s *server) may(p verbs.Position) bool {
	return s.member.MayAnswer(uint64(p)) || s.w.wrong == noPermit && s.member.Role() == volumes.Primary
}

func (s *server) obey(v volumes.View) {
	if s.member.Role() == volumes.Backup && v.Primary == s.member.Self() {
		s.w.counts.opened++
	}
	_ = s.member.Obey(v) // it is told again
}

// Save implements volumes.Host.
func (s *server) Save(st volumes.State) error {
	s.process.Sleep(s.w.UpTo(2 * time.Millisecond))
	s.pod.stored = st
	if st.Content == volumes.Taken && !s.w.quiet && s.w.OneIn(8) {
		s.process.Kill()
	}
	s.process.Sleep(s.w.UpTo(time.Millisecond))
	return nil
}

// Close implements volumes.Host. The ledger is stored before it is stored that the content is here:
// a later process goes on from there.
func (s *server) Close() {
	s.sink.Close()
	s.process.Sleep(s.w.UpTo(time.Millisecond))
	if s.w.wrong != lateStore {
		s.pod.ledger = bytes.Clone(s.sink.Ledger())
	}
}

// Prepare implements volumes.Host.
func (s *server) Prepare() error {
	if s.w.wrong == lateStore {
		s.pod.ledger = bytes.Clone(s.sink.Ledger())
	}
	s.process.Sleep(s.w.UpTo(2 * time.Millisecond))
	return nil
}

// Drain implements volumes.Host.
func (s *server) Drain(backup volumes.Proc) error { return s.primary.Drain(backup) }

// Return implements volumes.Host.
func (s *server) Return(backup volumes.Proc, turn uint64) { s.primary.Return(backup, turn) }

// settle waits until each list is over that is being executed.
func (s *server) settle() error {
	if s.w.wrong == noSettle {
		return nil
	}
	for _, k := range s.sessions {
		for seen := k.checks; seen%2 != 0 && k.checks == seen; {
			s.process.Sleep(50 * time.Microsecond)
		}
	}
	return nil
}

// walk makes items of the memory, and of the ledger.
func (s *server) walk(f *verbs.Feed, w *verbs.Waiter) (verbs.Position, error) {
	end := size
	if s.w.wrong == half {
		end = size / 2
	}
	const piece = 256
	for at := 0; at < end; at += piece {
		b := bytes.Clone(s.pod.memory[at:][:piece])
		if s.w.wrong == aside {
			s.process.Sleep(s.w.UpTo(2 * time.Millisecond))
		}
		if err := s.journal.Begin(w, verbs.ItemBytes(piece)); err != nil {
			return 0, err
		}
		if s.w.wrong != aside {
			b = s.pod.memory[at:][:piece]
		}
		p := s.journal.Record(uint64(at), b)
		s.journal.Done()
		if err := f.Wait(w, max(p, 1000)-1000); err != nil {
			return 0, err
		}
	}
	s.accounts.Lock()
	defer s.accounts.Unlock()
	n := len(s.pod.ledger) / 2
	if err := s.journal.Begin(w, verbs.ItemBytes(n)); err != nil {
		return 0, err
	}
	s.journal.LedgerPart(0, s.pod.ledger[:n])
	s.journal.Done()
	if err := s.journal.Begin(w, 2*verbs.ItemBytes(len(s.pod.ledger))); err != nil {
		return 0, err
	}
	defer s.journal.Done()
	if s.w.wrong != noLedger {
		s.journal.LedgerPart(n, s.pod.ledger[n:])
		s.journal.LedgerWhole(len(s.pod.ledger), 0, nil)
	}
	return s.journal.Last(), nil
}

// session executes what a client asks for.
type session struct {
	s      *server
	waiter *verbs.Waiter
	checks int
}

// cutOne cuts a session that may wait: another one takes its place.
func (s *server) cutOne() {
	if len(s.sessions) == 0 {
		return // it has just begun
	}
	n := s.w.Random.IntN(len(s.sessions))
	s.sessions[n].waiter.Cut()
	s.w.counts.cut++
}

func (k *session) run() {
	w, s, p := k.s.w, k.s, k.s.process
	for !w.over {
		p.Sleep(w.UpTo(8 * time.Millisecond))
		if s.journal.Mode().Halted() || w.pause {
			p.Sleep(w.UpTo(40 * time.Millisecond))
			continue
		}
		var err error
		begun := p.Now()
		switch w.Random.IntN(5) {
		case 0, 1:
			err = k.add(w.Random.IntN(1 + w.Random.IntN(1+w.Random.IntN(words))))
		case 2, 3:
			err = k.read(w.Random.IntN(words))
		case 4:
			err = k.account()
		}
		if took := p.Now() - begun; took > verbs.WaitLimit+time.Second {
			w.Report("a session waited for %v", took)
		}
		switch {
		case err == nil:
			w.counts.answers++
		case errors.Is(err, verbs.ErrHalted):
			w.counts.refused++
		default:
			w.counts.late++
			k.waiter = s.journal.NewWaiter() // the next client's
		}
	}
}

// begin is what a provider does before a list that records n bytes of items.
func (k *session) begin(n int) (ordered bool, err error) {
	j := k.s.journal
	for {
		mode := j.Mode()
		if mode.Halted() {
			return false, verbs.ErrHalted
		}
		if ordered = mode.Records() && n > 0; ordered {
			if err := j.Begin(k.waiter, n); err != nil {
				return false, err
			}
		}
		k.late(ordered)
		k.checks++
		if j.Mode() == mode || k.s.w.wrong == oldMode {
			return ordered, nil
		}
		k.checks++
		if ordered {
			j.Done()
		}
	}
}

// late lets a session that has not taken the order come late.
func (k *session) late(ordered bool) {
	if k.s.process.Yield(); !ordered && k.s.w.OneIn(3) {
		k.s.process.Sleep(k.s.w.UpTo(5 * time.Millisecond))
	}
}

// word is where a word lies.
func (s *server) word(n int) []byte { return s.pod.memory[n*apart:][:8] }

func (k *session) add(n int) error {
	s, j := k.s, k.s.journal
	ordered, err := k.begin(verbs.ItemBytes(8))
	if err != nil {
		return err
	}
	k.late(ordered)
	now := binary.LittleEndian.Uint64(s.word(n)) + 1
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], now)
	var need verbs.Position
	if ordered {
		need = j.Record(uint64(n*apart), b[:])
		s.process.Yield()
	}
	copy(s.word(n), b[:])
	k.checks++
	if ordered {
		j.Done()
	}
	return k.answer(n, now, max(need, j.Seen(uint64(n*apart), 8)), 0)
}

func (k *session) read(n int) error {
	s, before := k.s, k.s.w.known[n]
	if _, err := k.begin(0); err != nil {
		return err
	}
	now := binary.LittleEndian.Uint64(s.word(n))
	s.process.Yield()
	need := s.journal.Seen(uint64(n*apart), 8)
	k.checks++
	if s.w.wrong == noNeed {
		need = 0
	}
	return k.answer(n, now, need, before)
}

// answer answers that a word had a value; least is what was answered when the request came.
func (k *session) answer(n int, now uint64, need verbs.Position, least uint64) error {
	if err := k.s.journal.Wait(k.waiter, need); err != nil {
		return err
	}
	defer k.s.point()
	if now < least {
		k.s.w.Report("%v answers that word %d is %d, and it was %d", k.s.member.Self(), n, now, least)
	}
	k.s.w.known[n] = max(k.s.w.known[n], now)
	return nil
}

// account changes the ledger, and answers what it says.
func (k *session) account() error {
	s, j, least := k.s, k.s.journal, k.s.w.ledger
	s.accounts.Lock()
	if j.Mode().Halted() {
		s.accounts.Unlock()
		return verbs.ErrHalted
	}
	count := 0
	if len(s.pod.ledger) > 0 {
		var err error
		if count, err = strconv.Atoi(string(bytes.TrimSpace(s.pod.ledger))); err != nil {
			s.w.Report("%v has the ledger %q", s.member.Self(), s.pod.ledger)
		}
	}
	next := fmt.Appendf(nil, "%*d", 8+count/4, count+1)
	err := j.BeginNow(verbs.ItemBytes(len(next)))
	if err == nil {
		s.pod.ledger = next
		j.Splice(0, 0, next)
		j.Done()
	}
	need := j.Ledger()
	s.accounts.Unlock()
	if err == nil {
		err = j.Wait(k.waiter, need)
	}
	if err != nil {
		return err
	}
	defer s.point()
	if uint64(count) < least {
		s.w.Report("%v answers that the ledger says %d, and it said %d", s.member.Self(), count, least)
	}
	s.w.ledger = max(s.w.ledger, uint64(count+1))
	return nil
}

// point is where a process may die.
func (s *server) point() {
	if !s.w.quiet && s.w.OneIn(600) {
		s.process.Kill()
	}
}
