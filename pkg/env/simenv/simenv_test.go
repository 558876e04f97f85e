package simenv_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

var _ env.Env = (*simenv.Process)(nil)

// run runs main in a world of a seed and ends the test if that fails.
func run(t *testing.T, seed uint64, main func(p *simenv.Process)) *simenv.World {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: seed, Preempt: 4})
	if err := w.Run(main); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestTimePassesOnlyByWaiting(t *testing.T) {
	run(t, 1, func(p *simenv.Process) {
		start := p.Now()
		p.Sleep(time.Minute)
		if got := p.Now() - start; got != time.Minute {
			t.Errorf("a sleep of a minute took %v", got)
		}
		e := p.NewEvent()
		p.Go("setter", func() { p.Sleep(time.Second); e.Set() })
		if !e.Wait(time.Minute) || p.Now()-start != time.Minute+time.Second {
			t.Errorf("waited until %v", p.Now()-start)
		}
		if e.Wait(time.Second) || p.Now()-start != time.Minute+2*time.Second {
			t.Errorf("the limit of a wait ended at %v", p.Now()-start)
		}
		if e.Set(); !e.Wait(0) || e.Wait(0) {
			t.Error("a set is there once")
		}
	})
}

func TestMutexExcludes(t *testing.T) {
	for seed := range uint64(50) {
		run(t, seed, func(p *simenv.Process) {
			mu, inside, total := p.NewMutex(), 0, 0
			g := env.NewWaitGroup(p)
			for i := range 10 {
				g.Go(fmt.Sprint(i), func() {
					for range 20 {
						mu.Lock()
						if inside++; inside != 1 {
							t.Errorf("%d hold the mutex", inside)
						}
						p.Yield()
						inside--
						total++
						mu.Unlock()
					}
				})
			}
			if !g.Wait(time.Hour/2) || total != 200 {
				t.Errorf("%d of 200 rounds", total)
			}
		})
	}
}

// story is a mixture of all that a world offers; it returns what happened.
func story(t *testing.T, seed uint64) (hash uint64, order string) {
	var b strings.Builder
	w := run(t, seed, func(p *simenv.Process) {
		mu, wake := p.NewMutex(), p.NewEvent()
		g := env.NewWaitGroup(p)
		for i := range 20 {
			q := p.World().NewProcess(fmt.Sprint("p", i))
			q.SetDrift(int64(i * 1000))
			g.Go(fmt.Sprint(i), func() {
				for range 100 {
					q.Sleep(time.Duration(q.Uint64() % 1000))
					mu.Lock()
					fmt.Fprintf(&b, "%d ", i)
					mu.Unlock()
					if q.Uint64()%8 == 0 {
						wake.Set()
					}
				}
			})
		}
		g.Go("waiter", func() {
			for range 50 {
				fmt.Fprintf(&b, "%v ", wake.Wait(500))
			}
		})
		g.Wait(time.Hour / 2)
	})
	return w.Hash(), b.String()
}

func TestSeedReplays(t *testing.T) {
	hashes := map[uint64]bool{}
	for seed := range uint64(20) {
		h1, o1 := story(t, seed)
		h2, o2 := story(t, seed)
		if h1 != h2 || o1 != o2 {
			t.Errorf("seed %d: two runs, hashes %#x and %#x", seed, h1, h2)
		}
		hashes[h1] = true
	}
	if len(hashes) != 20 {
		t.Errorf("20 seeds made %d different runs", len(hashes))
	}
}

func TestDeadlockNamesWhoWaits(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 7})
	err := w.Run(func(p *simenv.Process) {
		mu := p.NewMutex()
		mu.Lock()
		p.Go("second", func() { mu.Lock() })
		p.NewEvent().Wait(env.Forever)
	})
	if !errors.Is(err, simenv.ErrDeadlock) {
		t.Fatalf("the world ended with %v", err)
	}
	for _, want := range []string{"seed 7", "main/main waits for an event", "main/second waits for a mutex"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestLimits(t *testing.T) {
	w := simenv.New(simenv.Options{MaxEvents: 1000})
	if err := w.Run(func(p *simenv.Process) {
		for {
			p.Yield()
		}
	}); !errors.Is(err, simenv.ErrLimit) {
		t.Errorf("an endless loop ended with %v", err)
	}
	w = simenv.New(simenv.Options{MaxTime: time.Minute})
	if err := w.Run(func(p *simenv.Process) {
		for {
			p.Sleep(time.Second)
		}
	}); !errors.Is(err, simenv.ErrLimit) {
		t.Errorf("an endless wait ended with %v", err)
	}
}

func TestPanicIsReported(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 9})
	err := w.Run(func(p *simenv.Process) {
		p.Go("clumsy", func() { panic("fell") })
		p.Sleep(time.Second)
		t.Error("main goes on")
	})
	if !errors.Is(err, simenv.ErrPanic) || !strings.Contains(err.Error(), "main/clumsy: fell") || !strings.Contains(err.Error(), "seed 9") {
		t.Errorf("a panic ended with %v", err)
	}
}

func TestKillUnwinds(t *testing.T) {
	for seed := range uint64(100) {
		run(t, seed, func(p *simenv.Process) {
			victim := p.World().NewProcess("victim")
			mu, wake := victim.NewMutex(), victim.NewEvent()
			var unwound, after int
			hooks := 0
			victim.AtKill(func() { hooks++ })
			for i := range 3 {
				victim.Go(fmt.Sprint("locker", i), func() {
					for {
						func() {
							mu.Lock()
							defer func() { mu.Unlock(); unwound++ }()
							victim.Sleep(time.Second)
							after++
						}()
					}
				})
			}
			victim.Go("waiter", func() {
				defer func() {
					victim.Sleep(time.Hour) // a deferred function does not wait
					mu.Lock()
					if wake.Wait(env.Forever) {
						t.Error("an event that nobody set is set")
					}
					mu.Unlock()
					unwound++
				}()
				wake.Wait(env.Forever)
			})
			p.Sleep(1500 * time.Millisecond)
			if after != 1 || unwound != 1 {
				t.Fatalf("before the kill: %d, %d", after, unwound)
			}
			victim.Kill()
			now := p.Now()
			p.Sleep(time.Millisecond)
			victim.Go("late", func() { t.Error("a dead process starts a goroutine") })
			p.Sleep(time.Minute)
			// One held the lock and one waited for its event; who waited for the lock never had it.
			if !victim.Dead() || after != 1 || unwound != 3 || hooks != 1 || p.Now() != now+time.Minute+time.Millisecond {
				t.Errorf("after the kill: %d, %d unwound, %d hooks", after, unwound, hooks)
			}
		})
	}
}

func TestKillOneself(t *testing.T) {
	run(t, 1, func(p *simenv.Process) {
		q := p.World().NewProcess("q")
		last := false
		q.Go("suicide", func() {
			defer func() { last = true }()
			q.Kill()
			t.Error("Kill of oneself returned")
		})
		p.Sleep(1)
		if !last {
			t.Error("the deferred function did not run")
		}
	})
}

func TestFreezeAndThaw(t *testing.T) {
	run(t, 3, func(p *simenv.Process) {
		q := p.World().NewProcess("q")
		rounds := 0
		q.Go("counter", func() {
			for {
				q.Sleep(time.Second)
				rounds++
			}
		})
		p.Sleep(2500 * time.Millisecond)
		q.Freeze()
		p.Sleep(time.Minute)
		if rounds != 2 || q.Now() != p.Now() {
			t.Errorf("frozen after 2 rounds, it made %d; its clock says %v of %v", rounds, q.Now(), p.Now())
		}
		q.Thaw()
		p.Sleep(1)
		if rounds != 3 {
			t.Errorf("%d rounds right after it thawed, want 3", rounds)
		}
		q.Freeze()
		q.Kill()
		p.Sleep(time.Minute)
		if rounds != 3 {
			t.Errorf("%d rounds after it was killed", rounds)
		}
	})
}

func TestClocksDrift(t *testing.T) {
	run(t, 3, func(p *simenv.Process) {
		fast, slow := p.World().NewProcess("fast"), p.World().NewProcess("slow")
		fast.SetDrift(100_000)
		slow.SetDrift(-500_000)
		start := p.Now()
		slow.Sleep(time.Second) // by its own clock
		if got := p.Now() - start; got != 2*time.Second {
			t.Errorf("a second of a clock at half speed took %v", got)
		}
		if got := fast.Now() - start; got != 2200*time.Millisecond {
			t.Errorf("in two seconds the fast clock went on by %v", got)
		}
		fast.SetDrift(0)
		was := fast.Now()
		p.Sleep(time.Second)
		fast.Jump(time.Hour)
		if got := fast.Now() - was; got != time.Hour+time.Second {
			t.Errorf("it went on by %v", got)
		}
	})
}

func TestTenThousandGoroutines(t *testing.T) {
	run(t, 5, func(p *simenv.Process) {
		mu, n := p.NewMutex(), 0
		g := env.NewWaitGroup(p)
		for i := range 10_000 {
			g.Go(fmt.Sprint(i), func() {
				p.Sleep(time.Duration(p.Uint64() % 1000))
				mu.Lock()
				n++
				mu.Unlock()
			})
		}
		if !g.Wait(time.Minute) || n != 10_000 {
			t.Errorf("%d of 10000 ended", n)
		}
	})
}

func BenchmarkSwitch(b *testing.B) {
	w := simenv.New(simenv.Options{Ordered: true, MaxEvents: 1 << 60, MaxTime: 1 << 60})
	if err := w.Run(func(p *simenv.Process) {
		for i := range 176 {
			p.Go(fmt.Sprint(i), func() {
				for {
					p.Sleep(2000)
				}
			})
		}
		b.ResetTimer()
		for w.Events() < uint64(b.N) {
			p.Sleep(2000)
		}
	}); err != nil {
		b.Fatal(err)
	}
}

// TestShortWaitsOnAFastClockEnd: the shortest waits take some of the world's time, and end.
func TestShortWaitsOnAFastClockEnd(t *testing.T) {
	run(t, 1, func(p *simenv.Process) {
		fast := p.World().NewProcess("fast")
		fast.SetDrift(900_000)
		done := p.NewEvent()
		fast.Go("waits", func() {
			for range 10 {
				fast.NewEvent().Wait(1)
				fast.Sleep(1)
			}
			done.Set()
		})
		if begun := p.World().Now(); !done.Wait(time.Second) || p.World().Now() == begun {
			t.Error("waits of a nanosecond do not end, or take no time")
		}
	})
}
