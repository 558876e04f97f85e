package autoscale

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// pool is compute servers that do what is decided, a while later.
type pool struct {
	spec    Spec
	o       Observed
	m       Memory
	until   time.Duration // when the last change is over
	changes []change
}

type change struct {
	at       time.Duration
	from, to int
	reason   string
}

// look lets time pass and decides. misses says what share of operations misses the cache with so
// many servers.
func (p *pool) look(passes time.Duration, rate float64, misses func(n int) float64) {
	p.o.Now += passes
	p.o.Said, p.o.Rate, p.o.Misses = p.o.Replicas, rate, misses(p.o.Replicas)
	p.o.Settled = p.o.Now >= p.until
	if !p.o.Settled {
		p.o.Misses = 1 // caches are cold
	}
	p.decide()
}

func (p *pool) decide() {
	n, reason, next := Decide(p.spec, p.o, p.m)
	p.m = next
	if n != p.o.Replicas {
		p.changes = append(p.changes, change{p.o.Now, p.o.Replicas, n, reason})
		p.o.Replicas, p.until = n, p.o.Now+20*time.Second
	}
}

func drawSpec(t *rapid.T) Spec {
	s := Spec{Min: rapid.IntRange(1, 4).Draw(t, "min")}
	s.Max = s.Min + rapid.IntRange(0, 12).Draw(t, "more")
	if rapid.Bool().Draw(t, "by operations") {
		s.OperationsPerSecond = 1000
	}
	if s.OperationsPerSecond == 0 || rapid.Bool().Draw(t, "by misses") {
		s.CacheMisses = 20
	}
	s.Up = time.Duration(rapid.IntRange(0, 10).Draw(t, "up")) * 30 * time.Second
	s.Down = time.Duration(rapid.IntRange(0, 20).Draw(t, "down")) * 30 * time.Second
	return s
}

func fits(n int) func(int) float64 { // the caches of n servers hold everything
	return func(servers int) float64 { return max(0, 1-float64(servers)/float64(n)) }
}

// TestSteadyLoadComesToRest: under a load that stays about the same the number of servers comes to
// rest, at what the targets ask for.
func TestSteadyLoadComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pool{spec: drawSpec(t), o: Observed{Replicas: rapid.IntRange(1, 16).Draw(t, "replicas")}}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		rate, misses := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(2*fewest, 15000)).Draw(t, "rate"), fits(rapid.IntRange(1, 10).Draw(t, "fits"))
		look := func() { p.look(10*time.Second, rate*(0.96+0.08*random.Float64()), misses) }
		for p.o.Now < 20*p.spec.Down+time.Hour { // the cache may want one less in each window
			look()
		}
		before := len(p.changes)
		for range 3600 / 10 {
			look()
		}
		// every two hours it may find out that fewer servers have too little cache
		if len(p.changes) > before+2 {
			t.Fatalf("it goes on, with %d changes, the last ones %+v", len(p.changes), p.changes[len(p.changes)-3:])
		}
		n := p.o.Replicas
		for _, c := range p.changes { // it may be just finding that out
			if c.at > p.o.Now-15*time.Minute {
				n = max(n, c.from)
			}
		}
		if n < p.spec.Min || n > p.spec.Max {
			t.Fatalf("%d servers, %d to %d are allowed", n, p.spec.Min, p.spec.Max)
		}
		if s := p.spec; s.OperationsPerSecond > 0 && n < s.Max && rate > float64(n)*s.OperationsPerSecond*1.15 {
			t.Fatalf("%d servers for %.0f operations a second", n, rate)
		}
		if s := p.spec; s.CacheMisses == 0 && n > s.Min && rate < float64(n-1)*s.OperationsPerSecond*0.85 {
			t.Fatalf("still %d servers for %.0f operations a second", n, rate)
		}
		if s := p.spec; s.CacheMisses > 0 && n < s.Max && rate > 2*fewest && misses(n)*100 > s.CacheMisses*1.15 {
			t.Fatalf("%d servers, and %.0f%% of the operations miss", n, 100*misses(n))
		}
	})
}

// TestWindows: whatever happens, there are no fewer servers than were wanted at any time within the
// window of scaling down, no more than were wanted all the time within that of scaling up; never
// fewer while a server says nothing; and never more or fewer than allowed.
func TestWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pool{spec: drawSpec(t), o: Observed{Replicas: rapid.IntRange(1, 16).Draw(t, "replicas")}}
		type seen struct {
			at  time.Duration
			ops int
		}
		var past []seen
		born := time.Duration(-1)
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			p.o.Now += time.Duration(rapid.IntRange(1, 40).Draw(t, "passes")) * time.Second
			p.o.Rate = float64(rapid.IntRange(0, 12).Draw(t, "rate")) * 1000
			p.o.Misses = rapid.Float64Range(0, 1).Draw(t, "misses")
			p.o.Settled = rapid.IntRange(0, 4).Draw(t, "settled") > 0
			p.o.Said = max(0, p.o.Replicas-rapid.SampledFrom([]int{0, 0, 0, 1, 16}).Draw(t, "silent"))
			if rapid.IntRange(0, 30).Draw(t, "restart") == 0 {
				p.m, born = Memory{}, -1
			}
			if born < 0 {
				born = p.o.Now
			}
			past = append(past, seen{p.o.Now, int(p.o.Rate / 1000)})
			was := p.o.Replicas
			p.decide()
			is := p.o.Replicas
			if is < p.spec.Min && is != was || is > p.spec.Max && is != was {
				t.Fatalf("%d servers, %d to %d are allowed", is, p.spec.Min, p.spec.Max)
			}
			if was < p.spec.Min || was > p.spec.Max {
				continue // that is mended at once
			}
			if is < was && (p.o.Said < was || !p.o.Settled || p.o.Now-born < p.spec.Down) {
				t.Fatalf("from %d to %d servers: %+v, %v after the start", was, is, p.o, p.o.Now-born)
			}
			if is > was && (!p.o.Settled || p.o.Now-born < p.spec.Up) {
				t.Fatalf("from %d to %d servers: %+v, %v after the start", was, is, p.o, p.o.Now-born)
			}
			if p.spec.OperationsPerSecond == 0 {
				continue
			}
			for _, s := range past {
				if s.at < born {
					continue
				}
				if needs := min(s.ops, p.spec.Max); is < was && s.at > p.o.Now-p.spec.Down && float64(is)*(1+tolerance) < float64(needs) {
					t.Fatalf("%d servers at %v, and %d were needed at %v", is, p.o.Now, needs, s.at)
				}
				if p.spec.CacheMisses == 0 && is > was && s.at > p.o.Now-p.spec.Up && is > max(s.ops, was) {
					t.Fatalf("%d servers at %v, and %d were enough at %v", is, p.o.Now, s.ops, s.at)
				}
			}
		}
	})
}

// TestDecide: what a person would ask.
func TestDecide(t *testing.T) {
	spec := Spec{Min: 2, Max: 10, OperationsPerSecond: 1000, Down: 5 * time.Minute}
	// a look a minute, at such a rate
	f := func(name string, s Spec, want string, looks ...float64) {
		t.Helper()
		p := &pool{spec: s, o: Observed{Replicas: 4}}
		got := ""
		for _, rate := range looks {
			p.look(50*time.Second, rate, fits(6))
			got += " " + string(rune('0'+p.o.Replicas))
		}
		if got != want {
			t.Errorf("%s:%s, want%s %+v", name, got, want, p.changes)
		}
	}
	f("as it should be", spec, " 4 4 4", 3900, 4000, 4300)
	f("more at once", spec, " 6 6", 5500, 5500)
	f("twice as many at most, one after the other", spec, " 8 9", 9000, 9000)
	f("fewer after the window", spec, " 4 4 4 4 4 4 2", 500, 500, 500, 500, 500, 500, 500)
	f("a short pause changes nothing", spec, " 4 4 4 4 4 4 4", 4000, 500, 500, 500, 500, 4000, 500)
	spec.Up = 2 * time.Minute
	f("more after the window", spec, " 4 4 4 6", 5500, 5500, 5500, 5500)
	f("a short peak changes nothing", spec, " 4 4 4 4 4", 5500, 5500, 3900, 5500, 5500)
	f("nothing is known at first", spec, " 4", 1)
	cache := Spec{Min: 1, Max: 10, CacheMisses: 10, Down: 2 * time.Minute}
	// once they are warm; 4 of 6 fit
	f("caches are too small", cache, " 4 4 5 5 5 6", 1000, 1000, 1000, 1000, 1000, 1000)
	f("nobody asks", cache, " 4 4 4 1", 1, 1, 1, 1)
}
