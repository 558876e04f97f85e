package engine

import (
	"bytes"
	"math"
	"slices"
	"sync/atomic"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Bounds of what is recorded of a server's load.
const (
	loadKeys      = 512              // of the sample
	loadKeyBytes  = 128              // of each; longer keys are cut off
	loadPerTick   = 64               // keys that are sampled in a tick, about
	loadTick      = time.Second      // between two measurements of the rate
	loadHalf      = 10 * time.Second // after which old load counts half
	loadForgotten = time.Minute      // after which a sampled key counts no more
	loadSkipMost  = 1 << 20
)

// load measures what a server does in its index: operations a second, their keys, and cache hits.
// Sessions count for themselves, and report their counts when they are returned. One of every n
// operations, at random, gives its key to a sample of bounded size. n follows from the rate, so
// that the lock of the sample is acquired about 64 times a second at any load.
//
// A full sample evicts at random, so each operation is as likely to be in it as any other of the
// same age. The weight of a key is the number of operations that were skipped for it, halved every
// 10 s.
type load struct {
	env  env.Env
	done atomic.Uint64 // operations
	skip atomic.Uint32 // one of so many operations is sampled, on average
	pace atomic.Int64  // how long an operation of a session lasts, recently, in nanoseconds

	mu     env.Mutex
	keys   [loadKeys]sampledKey
	used   int
	taken  uint32 // keys since the last tick
	ticked time.Duration
	seen   uint64  // of done, then
	rate   float64 // operations a second
	known  bool

	looked time.Duration // at the index's counters
	last   index.Stats
	hits   float64 // a share of operations
	reads  float64 // an operation
	warm   bool    // it was measured twice
}

// sampledKey is a key of the sample.
type sampledKey struct {
	at     time.Duration
	stands float64 // the operations that it stands for
	n      int
	key    [loadKeyBytes]byte
}

// noteDurations notes how long operations lasted. The average is a hint, so a note that gets lost
// does no harm.
func (l *load) noteDurations(each time.Duration) {
	before := l.pace.Load()
	l.pace.Store(before + (int64(each)-before)/8)
}

func newLoad(e env.Env) *load {
	l := &load{env: e, mu: e.NewMutex(), ticked: e.Now(), looked: e.Now()}
	l.skip.Store(1)
	return l
}

// sample adds a key that stands for some operations, and returns how many to skip until the next
// one, on average.
func (l *load) sample(key []byte, stands uint32, random uint64) (skip uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.env.Now()
	l.tick(now)
	place := l.used
	if place < loadKeys {
		l.used++
	} else {
		place = int(random % loadKeys)
	}
	k := &l.keys[place]
	k.at, k.stands = now, float64(stands)
	k.n = copy(k.key[:], key)
	skip = l.skip.Load()
	if l.taken++; l.taken >= loadPerTick { // faster than it was in the last tick
		l.taken = 0
		skip = min(2*skip, loadSkipMost)
		l.skip.Store(skip)
	}
	return skip
}

// tick measures the rate, if it is time. Called under mu.
func (l *load) tick(now time.Duration) {
	passed := now - l.ticked
	if passed < loadTick {
		return
	}
	done := l.done.Load()
	rate := float64(done-l.seen) / passed.Seconds()
	if !l.known {
		l.rate, l.known = rate, true
	} else {
		l.rate += (rate - l.rate) * newestWeight(passed)
	}
	l.ticked, l.seen, l.taken = now, done, 0
	l.skip.Store(uint32(min(max(1, rate*loadTick.Seconds()/loadPerTick), loadSkipMost)))
}

// newestWeight is the weight of the last period against all earlier ones.
func newestWeight(passed time.Duration) float64 {
	return 1 - math.Exp2(-passed.Seconds()/loadHalf.Seconds())
}

// watch reads the counters of the open index, if it is time. Called under mu.
func (l *load) watch(now time.Duration, s index.Stats) {
	passed := now - l.looked
	if passed < loadTick {
		return
	}
	was, part := l.last, newestWeight(passed)
	l.last, l.looked = s, now
	operations, reads := s.Operations-was.Operations, s.Verbs.Requests[verbs.Read]-was.Verbs.Requests[verbs.Read]
	// another client, or no operations
	if s.Operations < was.Operations || s.Verbs.Requests[verbs.Read] < was.Verbs.Requests[verbs.Read] || operations == 0 {
		return
	}
	if !l.warm {
		part, l.warm = 1, true
	}
	hits := float64(s.CacheHits-min(s.CacheHits, was.CacheHits)) / float64(operations)
	l.hits += (min(hits, 1) - l.hits) * part
	l.reads += (float64(reads)/float64(operations) - l.reads) * part
}

// Load is the recent load of a server's index.
type Load struct {
	Rate  float64 // operations a second
	Hits  float64 // the share of them that the cache led straight to their leaf
	Reads float64 // READs an operation
	Keys  []KeyLoad
}

// KeyLoad is a key of the sample and its weight.
type KeyLoad struct {
	Key  []byte
	Rate float64 // operations a second; all of a sample come to the rate of the server
}

// report returns the present load. s are the counters of the open index.
func (l *load) report(s index.Stats) Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.env.Now()
	l.tick(now)
	l.watch(now, s)
	r := Load{Rate: l.rate, Hits: l.hits, Reads: l.reads}
	sum := 0.0
	for i := range l.used {
		k := &l.keys[i]
		if age := now - k.at; age < loadForgotten {
			stands := k.stands * math.Exp2(-age.Seconds()/loadHalf.Seconds())
			sum += stands
			r.Keys = append(r.Keys, KeyLoad{bytes.Clone(k.key[:k.n]), stands})
		}
	}
	slices.SortStableFunc(r.Keys, func(a, b KeyLoad) int { return bytes.Compare(a.Key, b.Key) })
	merged := r.Keys[:0]
	for _, k := range r.Keys {
		k.Rate *= r.Rate / sum
		if n := len(merged); n > 0 && bytes.Equal(merged[n-1].Key, k.Key) {
			merged[n-1].Rate += k.Rate
			continue
		}
		merged = append(merged, k)
	}
	r.Keys = merged
	return r
}

// encode returns the load for the Describe call.
func (r *Load) encode(s index.Stats) *rpcv1.ComputeLoad {
	e := &rpcv1.ComputeLoad{OperationsPerSecond: r.Rate, HitRatio: r.Hits, ReadsPerOperation: r.Reads, CacheHits: s.CacheHits, CacheMisses: s.CacheMisses}
	for _, k := range r.Keys {
		e.Keys = append(e.Keys, &rpcv1.KeyLoad{Key: k.Key, OperationsPerSecond: k.Rate})
	}
	return e
}

// rateWithin returns the load on keys from start up to end.
func (r *Load) rateWithin(start, end []byte) (rate float64) {
	for _, k := range r.Keys {
		if keyrange.Contains(start, end, k.Key) {
			rate += k.Rate
		}
	}
	return rate
}
