package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// clock is the real world at a time that the test sets, with random numbers that are the same each
// time.
type clock struct {
	env.Env
	now    atomic.Int64
	random *rand.Rand
}

func newClock() *clock { return &clock{Env: env.Real(), random: rand.New(rand.NewPCG(3, 4))} }

func (c *clock) Now() time.Duration { return time.Duration(c.now.Load()) }
func (c *clock) Uint64() uint64     { return c.random.Uint64() }

// still is a session that does nothing.
type still struct{ index.Session }

func (still) Lookup(_, dst []byte) ([]byte, error) { return dst, nil }

// TestLoadFollowsWhatIsAsked: rates and shares come out as they were, and follow when they change;
// a fast server samples no more than a slow one.
func TestLoadFollowsWhatIsAsked(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := newClock()
	l := newLoad(c)
	var sessions []*Session
	var keys [1000][]byte
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%04d", i)
	}
	for range 3 {
		sessions = append(sessions, &Session{Session: still{}, counts: newCounts(l, still{})})
	}
	run := func(seconds, perSecond int, hot string, share float64) {
		for range seconds * 100 {
			c.now.Add(int64(10 * time.Millisecond))
			for range 4 { // a few requests, each of a part of the operations
				s := sessions[random.IntN(len(sessions))]
				s.counts.noteLent()
				for range perSecond / 400 {
					key := []byte(hot)
					if random.Float64() >= share {
						key = keys[random.IntN(len(keys))]
					}
					_, _ = s.Lookup(key, nil)
				}
				s.counts.repaid()
			}
		}
	}
	f := func(seconds, perSecond int, hot string, share float64) {
		t.Helper()
		run(seconds, perSecond, hot, share)
		r := l.report(index.Stats{})
		if math.Abs(r.Rate/float64(perSecond)-1) > 0.1 {
			t.Errorf("%d operations a second are taken for %.0f", perSecond, r.Rate)
		}
		if got := r.rateWithin([]byte(hot), []byte(hot+"\x00")) / r.Rate; math.Abs(got-share) > 0.1 {
			t.Errorf("%s has %.2f of %d a second, not %.2f", hot, got, perSecond, share)
		}
		if got := r.rateWithin(nil, nil); math.Abs(got/r.Rate-1) > 1e-6 {
			t.Errorf("the keys come to %.0f, the server does %.0f", got, r.Rate)
		}
		if len(r.Keys) > loadKeys {
			t.Errorf("%d keys", len(r.Keys))
		}
		for i := 1; i < len(r.Keys); i++ {
			if string(r.Keys[i-1].Key) >= string(r.Keys[i].Key) {
				t.Fatalf("%q stands after %q", r.Keys[i].Key, r.Keys[i-1].Key)
			}
		}
	}
	f(60, 4_000, "key-0500", 0.4)
	f(60, 20_000, "key-0900", 0.3)
	f(120, 1_200, "key-0100", 0.5)
	f(90, 400, "key-0100", 0.1)
	c.now.Add(int64(2 * time.Minute))
	if r := l.report(index.Stats{}); r.Rate > 5 || len(r.Keys) != 0 {
		t.Errorf("after two silent minutes: %.1f a second, %d keys", r.Rate, len(r.Keys))
	}
}

// TestSamplesWeigh: a key stands for the operations that were skipped for it, half as much every 10
// s, and a session that was used at a high rate samples soon at a low one.
func TestSamplesWeigh(t *testing.T) {
	c := newClock()
	l := newLoad(c)
	l.done.Add(1000)
	for range 10 {
		l.sample([]byte("old"), 4, 0)
	}
	c.now.Add(int64(2 * loadHalf))
	for range 10 {
		l.sample([]byte("heavy"), 3, 0)
		l.sample([]byte("light"), 1, 0)
	}
	r := l.report(index.Stats{})
	for key, want := range map[string]float64{"old": 0.2, "heavy": 0.6, "light": 0.2} {
		if got := r.rateWithin([]byte(key), []byte(key+"\x00")) / r.Rate; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s has %.3f of all, not %.1f", key, got, want)
		}
	}
	counts := newCounts(l, still{})
	counts.left = 1 << 20
	if counts.noteLent(); counts.left > 2*l.skip.Load() {
		t.Errorf("the next of %d operations is sampled; of all sessions it is one of %d", counts.left, l.skip.Load())
	}
}

// TestSamplingIsRare: the lock of the sample is taken a few times a second, whatever the rate, from
// the first second on.
func TestSamplingIsRare(t *testing.T) {
	c := newClock()
	l := newLoad(c)
	s := &Session{Session: still{}, counts: newCounts(l, still{})}
	key := []byte("key")
	for second := range 5 {
		sampled, random := 0, s.counts.random
		for range 1_000_000 {
			s.note(key)
			if s.counts.random != random {
				random = s.counts.random
				sampled++
			}
			c.now.Add(1000)
		}
		s.counts.repaid()
		if most := map[bool]int{true: 1200, false: 200}[second == 0]; sampled > most || sampled < 10 {
			t.Errorf("second %d: %d of 1,000,000 were sampled", second, sampled)
		}
	}
}

// BenchmarkCounting is what the measuring of load costs an operation: a call of an index that does
// nothing, without and with it.
func BenchmarkCounting(b *testing.B) {
	key := []byte("src/runtime/proc.go")
	var plain index.Session = still{}
	var counted index.Session = &Session{Session: still{}, counts: newCounts(newLoad(env.Real()), still{})}
	for _, c := range []struct {
		name string
		s    index.Session
	}{{"plain", plain}, {"counted", counted}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = c.s.Lookup(key, nil)
			}
		})
	}
}
