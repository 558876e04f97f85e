package pool

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// clock is a client's own. reclaim.go says what it is for, and why the floor is raised before it
// ticks.
type clock struct {
	time  atomic.Uint64 // from 1 on
	floor atomic.Uint64

	// in builds with invariants: a time of which a server was told that no operation follows what
	// is older
	passed atomic.Uint64
}

// tick moves the clock on and says what time it is then.
func (p *Pool) tick() uint64 { return p.clock.time.Add(1) }

// passTime raises the floor to the next time, and then moves the clock on to that. It says what
// time it is then.
func (p *Pool) passTime() uint64 {
	for {
		now := p.clock.time.Load()
		p.raiseFloor(now + 1)
		if p.clock.time.CompareAndSwap(now, now+1) {
			return now + 1
		}
	}
}

// Floor is the stamp below which what a client has cached must not be followed any more. Ask after
// Begin.
func (p *Pool) Floor() uint64 { return p.clock.floor.Load() }

func (p *Pool) raiseFloor(to uint64) { raise(&p.clock.floor, to) }

// raise makes w at least to.
func raise(w *atomic.Uint64, to uint64) {
	for {
		old := w.Load()
		if to <= old || w.CompareAndSwap(old, to) {
			return
		}
	}
}

// Follows says, in builds with invariants, that the operation under way follows a copy with this
// stamp: one that no server was told nobody follows any more.
func (s *Session) Follows(stamp uint64) {
	if invariants.Enabled {
		passed := s.pool.clock.passed.Load()
		invariants.Check(stamp >= passed, "an operation that began at %d follows a copy of %d, and servers were told that nobody follows what is older than %d", s.active.Load(), stamp, passed)
	}
}

// Stamp is what a cache keeps with what the operation under way has read.
func (s *Session) Stamp() uint64 { return s.active.Load() }

// End ends an operation, with whatever error: the session holds no address that the operation got,
// and nothing that it queued is posted any more.
func (s *Session) End() {
	if s.queued > 0 {
		s.drop()
	}
	s.active.Store(0)
}

// allBeganSince reports whether every operation under way began at time since or later.
func (r *sessions) allBeganSince(since uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.open {
		if began := s.active.Load(); began != 0 && began < since {
			return false
		}
	}
	return true
}

// passing is what a keeper knows of the epochs of its server.
type passing struct {
	of     [reaches]pass
	lively int // for how many renewals more it expects another epoch
}

// pass is what it knows of those for memory of one reach.
type pass struct {
	epoch  uint64 // learned last
	since  uint64 // the client's time then
	passed uint64
}

// expectMore is for how many renewals a client hurries after an epoch that it did not ask for:
// where one client has garbage all the time, the others would else let it wait at each epoch.
const expectMore = 16

// epochsFor is what the server is told.
func (ps *passing) epochsFor(p *Pool, s *server) Epochs {
	for r := range ps.of {
		w := &ps.of[r]
		if w.passed == w.epoch || !p.sessions.allBeganSince(w.since) || !p.forgotten(s, w.since) {
			continue
		}
		w.passed = w.epoch
		if invariants.Enabled && reach(r) == cached {
			raise(&p.clock.passed, w.since)
		}
	}
	return Epochs{Passed: ps.of[cached].passed, Wanted: s.epochs[cached].wanted.Load(),
		UncachedPassed: ps.of[uncached].passed, UncachedWanted: s.epochs[uncached].wanted.Load()}
}

// takeRenewal takes the answer. hurry says that the next renewal should come sooner than usual;
// news, that there is something to reap or to sweep.
func (ps *passing) takeRenewal(p *Pool, s *server, r *Renewal) (hurry, news bool) {
	for of, told := range [reaches]struct{ epoch, safe uint64 }{{r.Epoch, r.Safe}, {r.UncachedEpoch, r.UncachedSafe}} {
		w, e := &ps.of[of], &s.epochs[of]
		if told.epoch > w.epoch {
			w.epoch, ps.lively, news = told.epoch, expectMore, true
			e.known.Store(told.epoch)
			p.learned.Add(1) // before the clock ticks: see batch
			if reach(of) == cached {
				w.since = p.passTime()
			} else {
				w.since = p.tick()
			}
		}
		if told.safe > e.safe.Load() {
			e.safe.Store(told.safe)
			news = true
		}
		hurry = hurry || w.passed < w.epoch || e.wanted.Load() > told.safe
	}
	ps.lively = max(0, ps.lively-1)
	return hurry || ps.lively > 0, news
}
