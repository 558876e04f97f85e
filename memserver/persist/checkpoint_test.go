package persist_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// checkpointed calls f with a server whose directory is empty, and that does what is wrong. Nothing
// sends the log but who waits.
func checkpointed(t *testing.T, wrong mistake, f func(p *simenv.Process, d *disk, s *server)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	err := w.Run(func(p *simenv.Process) {
		stage := &simtest.Stage{World: w, Random: rand.New(rand.NewPCG(1, 2))}
		d := newDisk(stage, noMistake)
		s := &server{
			w: &world{Stage: stage, wrong: wrong}, process: p, accounts: p.NewMutex(), memory: make([]byte, size), journal: verbs.NewJournal(p, nil),
		}
		var err error
		s.store, err = recovered(p, d, &verbs.Replica{Memory: s.memory})
		if err == nil {
			s.feed, err = s.journal.Feed(func() error { return nil }, nil)
		}
		if err == nil {
			err = s.store.Begin(s.feed.Start(), s.journal.Ledger)
		}
		if err == nil {
			err = errors.Join(s.feed.Connect(s.store, s.feed.Start()), s.feed.Await())
		}
		if err != nil {
			t.Fatal(err)
		}
		f(p, d, s)
	})
	if err != nil {
		t.Fatal(err)
	}
}

var seven = binary.LittleEndian.AppendUint64(nil, 7)

// TestCheckpointHasChangesUnderWay: a change that is recorded before a checkpoint begins, and is
// made only while the checkpoint is written, is in the checkpoint: the log that had it goes.
func TestCheckpointHasChangesUnderWay(t *testing.T) {
	checkpointed(t, noMistake, func(p *simenv.Process, d *disk, s *server) {
		if err := s.journal.Begin(nil, verbs.ItemBytes(8)); err != nil {
			t.Fatal(err)
		}
		at := s.journal.Record(0, seven)
		var err error
		over := p.NewEvent()
		p.Go("checkpoint", func() {
			err = s.store.Checkpoint(s)
			over.Set()
		})
		p.Sleep(100 * time.Millisecond) // its processor is taken from the session
		copy(s.memory, seven)
		s.journal.Done()
		if err := s.journal.Wait(nil, at); err != nil {
			t.Fatal(err)
		}
		if !over.Wait(time.Second) || err != nil {
			t.Fatal("there is no checkpoint: ", err)
		}
		r := verbs.Replica{Memory: make([]byte, size)}
		if _, err := recovered(p, d, &r); err != nil {
			t.Fatal(err)
		}
		if v := binary.LittleEndian.Uint64(r.Memory); v != 7 {
			t.Errorf("the word is %d, and 7 was answered", v)
		}
	})
}

// changing changes a word once a checkpoint has begun, and waits for nothing.
type changing struct{ *server }

func (c changing) Pieces(f func(at, n uint64) bool) {
	if c.journal.Begin(nil, verbs.ItemBytes(8)) == nil {
		c.journal.Record(0, seven)
		copy(c.memory, seven)
		c.journal.Done()
	}
	c.server.Pieces(f)
}

// TestCheckpointNeedsItsLog: the log has what a checkpoint copied before the checkpoint counts. One
// whose log ends earlier is refused.
func TestCheckpointNeedsItsLog(t *testing.T) {
	for _, wrong := range []mistake{noMistake, noFlush} {
		checkpointed(t, wrong, func(p *simenv.Process, d *disk, s *server) {
			if err := s.store.Checkpoint(changing{s}); err != nil {
				t.Fatal(err)
			}
			r := verbs.Replica{Memory: make([]byte, size)}
			_, err := recovered(p, d, &r)
			switch {
			case wrong == noFlush && (err == nil || !strings.Contains(err.Error(), "the checkpoint needs it up to")):
				t.Errorf("without its log: %v", err)
			case wrong == noMistake && (err != nil || binary.LittleEndian.Uint64(r.Memory) != 7):
				t.Errorf("the word is %d, was 7: %v", r.Memory[0], err)
			}
		})
	}
}
