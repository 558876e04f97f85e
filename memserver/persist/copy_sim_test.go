package persist_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// In runs with a copy the first life of the directory is that of one: another process, which has
// changes of its own already, sends it its memory and its changes. That process dies at some time.
// If the copy lives longer, it stores that it has the content, and may serve. If both die at once,
// and the copy was in sync, its directory has what was answered. Else it counts for nothing, and is
// emptied.

// sink is the copy, and the link over which the other process sends it changes.
type sink struct {
	*server
	mu      env.Mutex // held while items are applied
	replica verbs.Replica
	applied verbs.Position
	acked   verbs.Position
	pipe    []byte
	closed  bool
}

const pipeBytes = 30_000

// Send implements verbs.Link. The other process may die at any time, so it takes no lock here.
func (k *sink) Send(b []byte) (int, error) {
	k.w.Current().Process().Sleep(k.w.UpTo(200 * time.Microsecond))
	if k.process.Dead() {
		return 0, verbs.ErrClosed
	}
	n := min(len(b), pipeBytes-len(k.pipe))
	k.pipe = append(k.pipe, b[:n]...)
	return n, nil
}

// Receive implements verbs.Link.
func (k *sink) Receive() (verbs.Position, error) {
	k.w.Current().Process().Sleep(k.w.UpTo(200 * time.Microsecond))
	if k.process.Dead() {
		return 0, verbs.ErrClosed
	}
	return k.acked, nil
}

// take applies what comes, until the sink is closed.
func (k *sink) take() {
	for !k.closed {
		done, ledger := k.apply(min(len(k.pipe), 1+k.w.Random.IntN(9_000)))
		if !done {
			k.process.Sleep(k.w.UpTo(time.Millisecond))
		} else if k.w.wrong == ackedSoon || k.store.SyncTaken(ledger) == nil {
			k.acked = k.applied
		}
	}
}

// apply applies the whole items of the next n bytes, and reports whether it did, and whether
// changes of the ledger are among them.
func (k *sink) apply(n int) (done, ledger bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.Clone(k.pipe[:n])
	whole := 0
	for {
		_, n, err := verbs.NextItem(all[whole:], size)
		if err != nil {
			k.w.Report("the stream of a copy: %v", err)
		}
		if n == 0 || err != nil {
			break
		}
		whole += n
	}
	if whole == 0 {
		return false, false
	}
	if took, err := k.store.Take(k.applied, all[:whole]); err != nil || !took {
		return false, false
	}
	k.process.Yield()
	for done := 0; done < whole; {
		i, n, _ := verbs.NextItem(all[done:], size)
		if err := k.replica.Apply(&i); err != nil {
			k.w.Report("the copy does not apply what it took: %v", err)
			return false, false
		}
		ledger = ledger || i.Kind == verbs.ItemLedger || i.Kind == verbs.ItemLedgerPart || i.Kind == verbs.ItemLedgerWhole
		done += n
	}
	k.applied += verbs.Position(whole)
	k.pipe = k.pipe[whole:]
	return true, ledger
}

// Close implements verbs.Link.
func (k *sink) Close() error { return nil }

// The copy as a persist.Source.

func (k *sink) Last() verbs.Position       { return k.store.Taken() }
func (k *sink) Flush(verbs.Position) error { return nil }

func (k *sink) Copy(at uint64, b []byte) (verbs.Position, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	copy(b, k.memory[at:])
	return k.store.Taken(), nil
}

func (k *sink) Ledger(b []byte) ([]byte, verbs.Position, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append(b, k.replica.Ledger...), k.store.Taken(), k.replica.Known || k.w.wrong == partWhole
}

// copyMain is the life of a copy.
func (s *server) copyMain() {
	w, p := s.w, s.process
	w.nothing = true
	var err error
	options := s.options()
	options.CheckpointBytes, options.LogBytes = 20_000, 60_000 // whole pieces of memory come
	if s.store, err = s.open(options); err != nil {
		w.Report("open: %v", err)
		return
	}
	k := &sink{server: s, mu: p.NewMutex(), replica: verbs.Replica{Memory: s.memory}}
	source := w.NewDrifting("source")
	defer source.Kill()
	p.AtKill(source.Kill)
	o := &server{w: w, process: source, accounts: source.NewMutex(), memory: make([]byte, size), journal: verbs.NewJournal(source, nil)}
	for range 3 {
		source.Go("session", o.session)
	}
	source.Sleep(w.UpTo(20 * time.Millisecond))
	feed, err := o.journal.Feed(func() error { return nil }, nil)
	if err != nil || s.store.BeginCopy(feed.Start()) != nil {
		p.Kill() // the disk is full, or broken
	}
	k.applied, k.acked = feed.Start(), feed.Start()
	running := env.NewWaitGroup(p)
	running.Go("sync", s.store.RunSync)
	running.Go("checkpoints", func() { s.store.RunCheckpoints(k) })
	running.Go("take", k.take)
	joined := false
	source.Go("join", func() { joined = o.join(k, feed) == nil })
	p.Sleep(w.UpTo(250 * time.Millisecond))
	source.Kill()
	if joined && w.OneIn(2) {
		w.nothing = false // it was stored before anything was answered beside it
		w.counts.left++
		p.Kill()
	}
	k.closed = true
	s.store.Stop()
	running.Wait(env.Forever)
	if !joined {
		p.Kill() // nobody names it
	}
	if err := s.store.Flush(); err != nil {
		p.Kill()
	}
	s.ledger = bytes.Clone(k.replica.Ledger)
	s.judge(false)
	w.nothing = false
	w.counts.taken++
	w.known, w.ledgers = len(w.history), len(w.history)
	if w.OneIn(3) {
		p.Kill()
	}
	s.serve()
}

// join sends a copy memory and ledger, and lets answers wait for it.
func (s *server) join(k *sink, f *verbs.Feed) error {
	if err := f.Connect(k, f.Start()); err != nil {
		return err
	}
	s.process.Go("drive", func() {
		for f.Err() == nil {
			_ = f.Follow(nil, s.journal.Last(), time.Millisecond)
			s.process.Sleep(time.Millisecond)
		}
	})
	const piece = 4 << 10
	for at := 0; at < size; at += piece {
		if bytes.Equal(s.memory[at:][:piece], make([]byte, piece)) {
			continue
		}
		if err := s.journal.Begin(nil, verbs.ItemBytes(piece)); err != nil {
			return err
		}
		s.journal.Record(uint64(at), s.memory[at:][:piece])
		s.journal.Done()
		s.process.Sleep(s.w.UpTo(time.Millisecond))
	}
	s.accounts.Lock()
	snapshot := bytes.Clone(s.ledger)
	s.accounts.Unlock()
	for at := 0; at < len(snapshot); at += 100 {
		part := snapshot[at:min(at+100, len(snapshot))]
		if err := s.journal.Begin(nil, verbs.ItemBytes(len(part))); err != nil {
			return err
		}
		s.journal.LedgerPart(at, part)
		s.journal.Done()
		s.process.Sleep(s.w.UpTo(3 * time.Millisecond))
	}
	s.accounts.Lock()
	edits, _ := verbs.AppendEdits(nil, snapshot, s.ledger, verbs.MaxItem)
	err := s.journal.BeginNow(verbs.ItemBytes(len(edits)))
	if err == nil {
		s.journal.LedgerWhole(0, 0, edits)
		s.journal.Done()
	}
	s.accounts.Unlock()
	if err == nil {
		err = f.Await()
	}
	mark := verbs.Position(0)
	if err == nil {
		mark, err = s.journal.Mark(1)
	}
	if err == nil {
		err = f.Wait(nil, mark)
	}
	return err
}

// TestCopySeeds: a directory that a copy wrote has all that it had taken when it stored that it has
// the content, whatever ended processes and machines.
func TestCopySeeds(t *testing.T) {
	seeds := simtest.Read(t, "persist", "memserver/persist", 25)
	var mu sync.Mutex
	var sum counts
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		o := run{seed: seed, copy: true}.do()
		if o.err != nil {
			t.Errorf("%v\n%s", o.err, seeds.Replay(seed))
		}
		mu.Lock()
		defer mu.Unlock()
		sum.add(o.counts)
		return o.err == nil
	})
	t.Logf("persist, with a copy: %d seeds, %d failed; %+v", done, failed, sum)
	if seeds.Count >= 25 && (sum.taken == 0 || sum.left == 0 || sum.discarded == 0 || sum.powers == 0) {
		t.Error("the adversary is tame")
	}
}
