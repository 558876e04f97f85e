package expiry

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// TestClock: a machine's clock that jumps is followed by a 64th of the time that goes by, one that
// drifts is followed at once, and one that is taken anew counts as it is.
func TestClock(t *testing.T) {
	const year = 365 * 24 * int64(time.Hour/time.Millisecond)
	w := simenv.New(simenv.Options{Seed: 1})
	err := w.Run(func(p *simenv.Process) {
		began, jump, drift := 55*year, int64(0), int64(0) // drift: millionths
		machine := func() int64 {
			now := p.Now().Milliseconds()
			return began + now + jump + now*drift/1_000_000
		}
		c := NewClock(p, machine)
		pass := func(d time.Duration) (ran int64) {
			from, end := c.Now(), p.Now()+d
			for p.Now() < end {
				p.Sleep(250 * time.Millisecond)
				c.Follow()
			}
			return c.Now() - from
		}
		near := func(what string, got, want, most int64) {
			t.Helper()
			if got < want-most || got > want+most {
				t.Errorf("%s: %d ms, want %d, %d more or less", what, got, want, most)
			}
		}
		near("a clock that is right", c.Off(), 0, 1)
		for _, jump = range []int64{year, -year} {
			near("a minute", pass(time.Minute), 60_000, 60_000/followPart+1)
			near("off", c.Off(), jump, 70_000/followPart)
			jump = 0
			near("it is right again", pass(2*time.Minute), 120_000, 60_000/followPart+1)
			near("off by nothing", c.Off(), 0, 1)
		}
		drift = 200
		pass(time.Minute) // what came with the change
		near("a clock that drifts", pass(30*time.Minute), 1_800_000+360, 2)
		jump = year
		c.Set()
		near("taken anew", c.Off(), 0, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
}
