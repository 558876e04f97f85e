package pool

import (
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// sessions knows the open sessions of a pool and the sum of those that ended.
type sessions struct {
	mu            env.Mutex
	open          []*Session
	ended         verbs.Counters
	endedConflict uint64
	endedHandover uint64
	endedCombined uint64
}

func newSessions(e env.Env) *sessions { return &sessions{mu: e.NewMutex()} }

func (r *sessions) add(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = append(r.open, s)
}

func (r *sessions) remove(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range r.open {
		if o != s {
			continue
		}
		c := s.Counters()
		r.ended.Sum(&c)
		r.endedConflict += s.conflicts.Load()
		r.endedHandover += s.handovers.Load()
		r.endedCombined += s.combined.Load()
		r.open = append(r.open[:i], r.open[i+1:]...)
		return
	}
}

func (r *sessions) counters() verbs.Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := r.ended
	for _, s := range r.open {
		c := s.Published()
		sum.Sum(&c)
	}
	return sum
}

// locks sums what sessions counted of locks.
func (r *sessions) locks() (conflicts, handovers uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conflicts, handovers = r.endedConflict, r.endedHandover
	for _, s := range r.open {
		conflicts += s.conflicts.Load()
		handovers += s.handovers.Load()
	}
	return conflicts, handovers
}

// combined sums the changes that sessions carried out for others.
func (r *sessions) combined() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.endedCombined
	for _, s := range r.open {
		n += s.combined.Load()
	}
	return n
}
