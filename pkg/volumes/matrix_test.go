package volumes

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// TestSeedsOneFailure: after one failure changes are answered again within the time that
// docs/design/volumes.md says, and then the volume is in sync again.
func TestSeedsOneFailure(t *testing.T) {
	const long = 6 * time.Second
	for _, x := range []struct {
		name  string
		limit time.Duration // of the longest time without an answer to a change
		fail  func(w *world, p, b *pod)
	}{
		{"backup: process", 3 * time.Second, func(_ *world, _, b *pod) { b.server.process.Kill() }},
		{"backup: pod", 3 * time.Second, func(w *world, _, b *pod) { w.end(b) }},
		{"backup: frozen", 4 * time.Second, func(w *world, _, b *pod) { w.freeze(b.server.process, long) }},
		{"primary: process", 3 * time.Second, func(_ *world, p, _ *pod) { p.server.process.Kill() }},
		{"primary: pod", 3 * time.Second, func(w *world, p, _ *pod) { w.end(p) }},
		{"primary: frozen", 5 * time.Second, func(w *world, p, _ *pod) { w.freeze(p.server.process, long) }},
		{"stream alone", 4 * time.Second, func(w *world, p, b *pod) { w.sever(wire{p.name, b.name, "stream"}, long) }},
		{"permission alone", 4 * time.Second, func(w *world, p, b *pod) { w.sever(wire{p.name, b.name, "permission"}, long) }},
		{"move of the primary", 500 * time.Millisecond, func(_ *world, p, _ *pod) { p.moving = true }},
		{"move of the backup", 500 * time.Millisecond, func(_ *world, _, b *pod) { b.moving = true }},
		{"operators", 500 * time.Millisecond, func(w *world, _, _ *pod) { w.apiDown++; w.After(5*time.Second, nil, func() { w.apiDown-- }) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			least, most := long, time.Duration(0)
			for seed := range uint64(4) {
				gap, err := pause(seed, x.fail)
				if least, most = min(least, gap), max(most, gap); err != nil || gap > x.limit {
					t.Errorf("seed %d: no change was answered for %v, at most it may be %v: %v", seed, gap, x.limit, err)
				}
			}
			t.Logf("%s: changes wait for %v to %v", x.name, least.Round(10*time.Millisecond), most.Round(10*time.Millisecond))
		})
	}
}

// pause returns the longest time without an answered change within 7 s of a failure.
func pause(seed uint64, fail func(w *world, p, b *pod)) (longest time.Duration, err error) {
	world0 := simenv.New(simenv.Options{Seed: seed, MaxEvents: 2_000_000})
	w := &world{
		Stage: &simtest.Stage{World: world0, Random: rand.New(rand.NewPCG(seed, 89)), Drift: worldDrift}, cuts: map[wire]int{}, slow: map[wire]time.Duration{},
		copies: 2, suspect: 2 * time.Second, quiet: true, calm: true,
		refusals: rand.New(rand.NewPCG(seed, 107)),
	}
	err = world0.Run(func(p *simenv.Process) {
		w.main = p
		w.start()
		for !w.inSync() {
			p.Sleep(10 * time.Millisecond)
		}
		p.Sleep(500*time.Millisecond + w.UpTo(time.Second))
		failed := w.Now()
		fail(w, w.find(w.record.Primary.Pod), w.find(w.record.Backup.Pod))
		p.Sleep(7 * time.Second)
		for last := failed; ; {
			next := w.Now()
			for _, e := range w.log {
				if at := e.at; at > last && at < next && !e.unknown && e.verb != read {
					next = at
				}
			}
			longest = max(longest, next-last)
			if last = next; next == w.Now() {
				break
			}
		}
		w.settle()
		w.over = true
		p.Sleep(2 * time.Second)
	})
	if err == nil {
		w.judge()
		err = w.Problem
	}
	return longest, err
}
