package simtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// Stage is a world with a judge, and with chance for what the plan of the adversary does not say.
type Stage struct {
	*simenv.World
	Random *rand.Rand
	Drift  int64 // how fast or slow clocks of processes are at most, in parts of a million

	Problem error // the first one that was reported
}

// Report ends the run: something is wrong. The first report counts.
func (s *Stage) Report(format string, args ...any) {
	if s.Problem == nil {
		s.Problem = fmt.Errorf("at %v: %w", s.Now(), fmt.Errorf(format, args...))
		s.Fail(s.Problem)
	}
}

// UpTo is a time from 0 to d.
func (s *Stage) UpTo(d time.Duration) time.Duration {
	return time.Duration(s.Random.Int64N(int64(d) + 1))
}

// OneIn is true once in n times.
func (s *Stage) OneIn(n int) bool { return s.Random.IntN(n) == 0 }

// NewDrifting makes a process whose clock drifts.
func (s *Stage) NewDrifting(name string) *simenv.Process {
	p := s.NewProcess(name)
	p.SetDrift(s.Random.Int64N(2*s.Drift+1) - s.Drift)
	return p
}

// Disk has what a process stored, over its lives. Saving takes its time, and the process may die
// before, between and after.
type Disk struct {
	Stored []byte // nil = nothing yet
	// Record, where it is not nil, is told of each change, and how to take it back: see sim.Mirror.
	Record func(undo func())
}

// Save stores a copy of b in the place of what was stored. full reports whether the disk is full
// just now, and nothing is stored; forgets, which may be nil, whether it says that it stored b and
// does not.
func (d *Disk) Save(s *Stage, p *simenv.Process, b []byte, full, forgets func() bool) error {
	p.Sleep(s.UpTo(100 * time.Microsecond))
	if full() {
		return errors.New("no space left on the simulated device")
	}
	if forgets == nil || !forgets() {
		before := d.Stored
		if d.Record != nil {
			d.Record(func() { d.Stored = before })
		}
		d.Stored = append(d.Stored[:0:0], b...)
	}
	p.Sleep(s.UpTo(50 * time.Microsecond))
	return nil
}
