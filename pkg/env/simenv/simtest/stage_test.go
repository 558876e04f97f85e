package simtest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// TestOneByOne: the seeds come in order, and no other.
func TestOneByOne(t *testing.T) {
	s := Seeds{First: 10, Count: 3}
	if got := slices.Collect(s.OneByOne()); !slices.Equal(got, []uint64{10, 11, 12}) {
		t.Errorf("seeds %v", got)
	}
}

// TestStage: a disk keeps what was saved, unless it is full or forgets; the first report ends the
// world, and is its error.
func TestStage(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	s := &Stage{World: w, Random: rand.New(rand.NewPCG(1, 1)), Drift: 1000}
	var d Disk
	yes, no := func() bool { return true }, func() bool { return false }
	err := w.Run(func(p *simenv.Process) {
		b := []byte("first")
		if err := d.Save(s, p, b, no, nil); err != nil || string(d.Stored) != "first" {
			t.Errorf("saved %q: %v", d.Stored, err)
		}
		b[0] = 'F'
		if err := d.Save(s, p, []byte("second"), yes, nil); err == nil || string(d.Stored) != "first" {
			t.Errorf("saved %q on a full disk: %v", d.Stored, err)
		}
		if err := d.Save(s, p, []byte("third"), no, yes); err != nil || string(d.Stored) != "first" {
			t.Errorf("saved %q on a disk that forgets: %v", d.Stored, err)
		}
		s.NewDrifting("other").Go("main", func() {})
		if d := s.UpTo(time.Second); d < 0 || d > time.Second {
			t.Errorf("up to a second: %v", d)
		}
		s.Report("client %d answers", 7)
		s.Report("client %d answers", 8)
	})
	if s.Problem == nil || err == nil || !strings.Contains(err.Error(), "client 7 answers") {
		t.Errorf("%v, the world ended with %v", s.Problem, err)
	}
}
