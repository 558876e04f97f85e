package simenv_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/schedule"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// These toys prove that schedule points find what they are for: races between two accesses of
// goroutines that wait for nothing in between. Each is caught within a few hundred seeds; mended,
// it passes thousands. Their points are written by hand, where hack/schedule would put them.

const (
	caughtWithin = 400
	mendedPasses = 1000
)

// stopToy is a small protocol of goroutines of one process; right chooses the mended form. It
// returns what went wrong.
type stopToy struct {
	name string
	run  func(y *stopWorld, right bool)
}

var stopToys = []stopToy{
	{"ClockThatGoesBackwards", backwards},
	{"CheckBeforeTheLock", checkBeforeLock},
	{"TickBeforeTheFloor", tickBeforeFloor},
}

// stopWorld has what toys use.
type stopWorld struct {
	*simenv.Process
	wrong string
}

// The sites of the toys. Most points that a run reaches are noise: of loops that share nothing.
const (
	stopSites  = 400
	firstNoise = 20
)

func siteTable() []schedule.Site {
	var sites []schedule.Site
	for i := range uint64(stopSites) {
		k := schedule.Other
		if i < firstNoise || i%8 == 0 {
			k = schedule.Access
		}
		sites = append(sites, schedule.Site{Name: fmt.Sprintf("toys/file%d.go:%d", i/firstNoise, i), Hash: (i + 1) * 0x9E3779B97F4A7C15, Kind: k})
	}
	return sites
}

// work is what goroutines do besides; each time a little of what they wait for comes.
func (y *stopWorld) work() {
	for i := range uint32(stopSites - firstNoise) {
		schedule.Point(firstNoise + i)
	}
	y.Sleep(time.Microsecond)
}

func (y *stopWorld) report(format string, args ...any) {
	if y.wrong == "" {
		y.wrong = fmt.Sprintf(format, args...)
	}
}

// together runs goroutines until all have ended.
func (y *stopWorld) together(do ...func()) {
	g := env.NewWaitGroup(y)
	for i, f := range do {
		g.Go(fmt.Sprint("player-", i), f)
	}
	g.Wait(env.Forever)
}

// play runs a toy.
func (y *stopToy) play(seed uint64, right bool) (wrong string, w *simenv.World, err error) {
	w = simenv.New(simenv.Options{Seed: seed, Sites: siteTable(), MaxEvents: 1_000_000})
	s := &stopWorld{}
	err = w.Run(func(p *simenv.Process) {
		s.Process = p
		y.run(s, right)
	})
	return s.wrong, w, err
}

func TestStopsCatchToys(t *testing.T) {
	for _, y := range stopToys {
		t.Run(y.name, func(t *testing.T) {
			for seed := range uint64(caughtWithin) {
				if wrong, w, err := y.play(seed, false); err != nil {
					t.Fatal(err)
				} else if wrong != "" {
					t.Logf("caught by seed %d%s: %s", seed, w.Stops(), wrong)
					return
				}
			}
			t.Errorf("not caught by %d seeds", caughtWithin)
		})
	}
}

func TestStopsLetMendedToysPass(t *testing.T) {
	seeds := uint64(mendedPasses)
	if testing.Short() {
		seeds = 200
	}
	for _, y := range stopToys {
		t.Run(y.name, func(t *testing.T) {
			stopped := 0
			for seed := range seeds {
				wrong, w, err := y.play(seed, true)
				if err != nil || wrong != "" {
					t.Fatalf("seed %d: %s, %v", seed, wrong, err)
				}
				if strings.Contains(w.Stops(), "stops") {
					stopped++
				}
			}
			if stopped < int(seeds/2) {
				t.Errorf("only %d of %d seeds stopped a goroutine", stopped, seeds)
			}
		})
	}
}

// TestWithoutStopsToysPass: it is the points that find the faults.
func TestWithoutStopsToysPass(t *testing.T) {
	for _, y := range stopToys {
		for seed := range uint64(caughtWithin) {
			w := simenv.New(simenv.Options{Seed: seed, MaxEvents: 1_000_000})
			s := &stopWorld{}
			if err := w.Run(func(p *simenv.Process) { s.Process = p; y.run(s, false) }); err != nil || s.wrong != "" {
				t.Fatalf("%s, seed %d: %s, %v", y.name, seed, s.wrong, err)
			}
		}
	}
}

// TestStopsReplay: same seed, same run, to the last event.
func TestStopsReplay(t *testing.T) {
	for _, y := range stopToys {
		differ := map[uint64]bool{}
		for seed := range uint64(20) {
			_, a, _ := y.play(seed, false)
			_, b, _ := y.play(seed, false)
			if a.Hash() != b.Hash() || a.Stops() != b.Stops() {
				t.Errorf("%s, seed %d: hash %#x%s, then %#x%s", y.name, seed, a.Hash(), a.Stops(), b.Hash(), b.Stops())
			}
			differ[a.Hash()] = true
		}
		if len(differ) < 15 {
			t.Errorf("%s: only %d different runs of 20 seeds", y.name, len(differ))
		}
	}
}

// TestStoppedGoroutinesDie: a process is killed while one of its goroutines is stopped, and that
// one does not go on.
func TestStoppedGoroutinesDie(t *testing.T) {
	killed := 0
	for seed := range uint64(200) {
		w := simenv.New(simenv.Options{Seed: seed, Sites: siteTable()})
		if err := w.Run(func(p *simenv.Process) {
			q, at := w.NewProcess("victim"), time.Duration(-1)
			q.Go("works", func() {
				y := &stopWorld{Process: q}
				for {
					at = w.Now()
					y.work()
					schedule.Point(0)
				}
			})
			for range 100 {
				p.Sleep(10 * time.Microsecond)
				if at >= 0 && w.Now()-at > 5*time.Microsecond { // it is stopped
					q.Kill()
					killed++
					last := at
					if p.Sleep(time.Second); at != last {
						t.Errorf("seed %d: it goes on after its death", seed)
					}
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if killed < 20 {
		t.Errorf("only %d were killed while they were stopped", killed)
	}
}

// backwards: several goroutines count a clock up and note its time in one place; a reader who saw
// an earlier time looks whether something was noted after it. Mended: the place never goes back.
func backwards(y *stopWorld, right bool) {
	var clock, last uint64
	note := func() {
		schedule.Point(0)
		clock++
		t := clock
		schedule.Point(1)
		if !right || t > last {
			last = t
		}
	}
	writer := func() {
		for range 30 {
			y.work()
			note()
		}
	}
	y.together(writer, writer, func() {
		for range 30 {
			schedule.Point(2)
			since := clock
			note()
			y.work() // it READs
			schedule.Point(3)
			if last <= since {
				y.report("nothing was noted after %d, says %d", since, last)
			}
			y.work()
		}
	})
}

// checkBeforeLock: a leaf is the caller's while its range is; who gives the range away takes the
// lock of the leaf once. Mended: who changes the leaf looks at the range with the lock held.
func checkBeforeLock(y *stopWorld, right bool) {
	mine, others, over := true, false, false
	mu := y.NewMutex()
	y.together(func() {
		for !over {
			y.work()
			schedule.Point(4)
			if !mine {
				continue
			}
			schedule.Point(5)
			mu.Lock()
			schedule.Point(6)
			if (!right || mine) && others {
				y.report("a leaf is changed that is another's")
			}
			mu.Unlock()
		}
	}, func() {
		for range 10 {
			y.work()
			schedule.Point(7)
			mine = false
			schedule.Point(8)
			mu.Lock()
			schedule.Point(9)
			mu.Unlock()
			schedule.Point(10)
			others = true
			y.work()
			others, mine = false, true // it comes back
		}
		over = true
	})
}

// tickBeforeFloor: an operation shows the time when it began, then follows copies from the floor
// on. The keeper raises the floor to a time, and once each operation under way shows a later one,
// it says that nobody follows copies from before. Mended: the time is read after the floor was
// raised to what it was before.
func tickBeforeFloor(y *stopWorld, right bool) {
	var clock, floor, active uint64 = 1, 0, 0
	said, over := uint64(0), false
	y.together(func() {
		for range 40 {
			schedule.Point(11)
			active = clock
			schedule.Point(12)
			from := floor
			for range 4 {
				y.work()
				if from < said {
					y.report("an operation follows copies from %d on, and the keeper said %d", from, said)
				}
			}
			schedule.Point(13)
			active = 0
			y.work()
		}
		over = true
	}, func() {
		for !over {
			schedule.Point(14)
			clock++
			since := clock
			schedule.Point(15)
			floor = since
			if right {
				schedule.Point(16)
				clock++
				since = clock
			}
			for !over {
				schedule.Point(17)
				if active == 0 || active >= since {
					said = floor
					break
				}
				y.work()
			}
			y.work()
		}
	})
}
