package persist_test

import (
	"bytes"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

var errBroken = syscall.EIO

// The server as a persist.Source.

func (s *server) Last() verbs.Position {
	s.copied = false
	return s.journal.Last()
}

func (s *server) Flush(p verbs.Position) error {
	if s.w.wrong == noFlush && s.copied {
		return nil
	}
	return s.feed.Follow(nil, p, 5*time.Second)
}

func (s *server) Pieces(f func(at, n uint64) bool) {
	const piece = 64 << 10
	for at := 0; at < size; at += piece {
		if s.w.wrong == half && at >= size/2 {
			return
		}
		if !bytes.Equal(s.memory[at:][:piece], make([]byte, piece)) && !f(uint64(at), piece) {
			return
		}
	}
	s.w.counts.checkpoints++
}

func (s *server) Copy(at uint64, b []byte) (verbs.Position, error) {
	if err := s.journal.Begin(nil, 0); err != nil {
		return 0, err
	}
	defer s.journal.Done()
	copy(b, s.memory[at:])
	return s.journal.Last(), nil
}

func (s *server) Ledger(b []byte) ([]byte, verbs.Position, bool) {
	s.accounts.Lock()
	defer s.accounts.Unlock()
	s.copied = true
	b = append(b, s.ledger...)
	if s.w.wrong == lateOf {
		s.accounts.Unlock()
		s.process.Sleep(s.w.UpTo(5 * time.Millisecond))
		s.accounts.Lock()
	}
	return b, s.journal.Last(), true
}

// TestSeeds: whatever ends processes and machines, the next process has the memory and the ledger
// behind a prefix of the changes, with all that was answered.
func TestSeeds(t *testing.T) {
	seeds := simtest.Read(t, "persist", "memserver/persist", 25)
	var mu sync.Mutex
	var sum counts
	begun := time.Now()
	done, failed := seeds.Each(func(seed uint64) (passed bool) {
		o := run{seed: seed}.do()
		if o.err != nil {
			t.Errorf("%v\n%s", o.err, seeds.Replay(seed))
		}
		mu.Lock()
		defer mu.Unlock()
		sum.add(o.counts)
		return o.err == nil
	})
	t.Logf("persist: %d seeds, %.0f a second, %d failed; %+v", done, float64(done)/time.Since(begun).Seconds(), failed, sum)
	if seeds.Count >= 25 && (sum.checkpoints == 0 || sum.failed == 0 || sum.lacks == 0 || sum.cut == 0 || sum.full == 0) {
		t.Error("the adversary is tame")
	}
}

// TestEveryCall: the process dies in each call that changes something on the disk, and the machine
// with it, also while a directory is made and read.
func TestEveryCall(t *testing.T) {
	step := simtest.Step(t, 41)
	for _, seed := range []uint64{1} {
		n := run{seed: seed, dieAt: 1 << 30}.do()
		if n.err != nil || n.calls < 100 {
			t.Fatalf("%d calls, %v", n.calls, n.err)
		}
		for at := 1; at <= n.calls; at++ {
			if at > 30 && at%step != 0 {
				continue
			}
			if o := (run{seed: seed, dieAt: at}).do(); o.err != nil {
				t.Fatalf("dies in call %d: %v", at, o.err)
			}
		}
	}
}

// mistake is a fault put in on purpose.
type mistake string

const (
	noMistake mistake = ""
	noSync    mistake = "nothing is put on disk"
	noNames   mistake = "names are not put on disk"
	noRewrite mistake = "what an earlier process did not know to be on disk is not written again"
	noFlush   mistake = "a checkpoint counts before the log is as far as its pieces"
	noNeed    mistake = "an answer does not wait for what it READ"
	lateOf    mistake = "the ledger of a checkpoint is taken for a later one"
	half      mistake = "half of the memory has pieces"
	ackedSoon mistake = "what a copy took is acknowledged before it is on disk"
	noWord    mistake = "a disk that failed leaves no word of it"
	partWhole mistake = "a part of the ledger is taken for all of it"
)

// planted are the faults that are put in on purpose, and the seed from which on each is looked for:
// shortly before the first one that finds it. noFlush is not among them: the log is behind for
// moments only (TestCheckpointNeedsItsLog).
var planted = map[mistake]uint64{noWord: 0, noSync: 0, noNames: 0, noRewrite: 0, noNeed: 150, lateOf: 0, half: 0, ackedSoon: 0, partWhole: 0}

// ofCopies are those of a copy.
var ofCopies = map[mistake]bool{ackedSoon: true, partWhole: true}

// TestSeedsCatchMistakes: each fault that is put in on purpose is found.
func TestSeedsCatchMistakes(t *testing.T) {
	const within = 300
	for wrong, from := range planted {
		t.Run(string(wrong), func(t *testing.T) {
			t.Parallel()
			for seed := from; seed < from+within; seed++ {
				if o := (run{seed: seed, wrong: wrong, copy: ofCopies[wrong]}).do(); o.err != nil {
					t.Logf("%s: %.300v", wrong, o.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds from %d on", within, from)
		})
	}
}
