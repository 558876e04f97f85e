package volumes

import (
	"slices"
	"time"
)

// Memory is what the caller of Step keeps from one step to the next. It affects when a process is
// missed, when a copy joins again, and whether an earlier primary is named again.
type Memory struct {
	silent []silence
	lost   []loss
	served uint64 // number of the view in which its primary was seen to serve last
	join   join   // that was seen last
}

type silence struct {
	pod   string
	since time.Duration
}

// loss says that a copy was not reached, and for how long it may not join again.
type loss struct {
	pod      string
	at, wait time.Duration
}

// join is a copy that a primary was seen to send its memory to, in a view.
type join struct {
	view          uint64
	primary, copy Proc
}

// next returns the memory after an observation. A loss is remembered for some time after the copy
// may join again, so that the next one counts as one in a row.
func (m Memory) next(o Observed) (next Memory) {
	for _, l := range m.lost {
		if o.Now-l.at < 4*l.wait {
			next.lost = append(next.lost, l)
		}
	}
	next.served, next.join = m.served, m.join
	for _, p := range o.Pods {
		if r := p.Report; r != nil && p.Name == o.Record.Primary.Pod && r.Role == Primary && r.View.Number == o.Record.Number {
			next.served = o.Record.Number
		}
		if p.Report != nil || p.Gone {
			continue
		}
		since := o.Now
		if i := slices.IndexFunc(m.silent, func(s silence) bool { return s.pod == p.Name }); i >= 0 {
			since = m.silent[i].since
		}
		next.silent = append(next.silent, silence{p.Name, since})
	}
	return next
}

// lose remembers that a copy was not reached.
func (s *step) lose(pod string) {
	l := loss{pod, s.Now, s.JoinBackoff}
	lost := &s.a.Memory.lost
	if i := slices.IndexFunc(*lost, func(l loss) bool { return l.pod == pod }); i >= 0 {
		l.wait = min(2*(*lost)[i].wait, 32*s.JoinBackoff)
		*lost = slices.Delete(*lost, i, i+1)
	}
	*lost = append(*lost, l)
}

// joined remembers the join that is seen. If the one before has ended, and its copy is as free as
// it was, the primary did not reach the copy or was refused, as by one that cannot open its memory.
func (s *step) joined() {
	p := s.pod(s.Record.Primary.Pod)
	if p == nil || p.Report == nil {
		return
	}
	before, r := s.a.Memory.join, p.Report
	s.a.Memory.join = join{}
	if r.Role == Primary && r.View.Number == s.Record.Number && r.Joins != (Proc{}) {
		s.a.Memory.join = join{r.View.Number, r.Proc, r.Joins}
	}
	if r.Joins != (Proc{}) || before != (join{r.View.Number, r.Proc, before.copy}) {
		return
	}
	for _, q := range s.Pods {
		if c := q.Report; c != nil && !q.Gone && c.Proc == before.copy && c.Role == Joining && c.Source == (Proc{}) {
			s.lose(q.Name)
		}
	}
}

// mayJoin reports whether a copy may join again.
func (s *step) mayJoin(pod string) bool {
	return !slices.ContainsFunc(s.a.Memory.lost, func(l loss) bool { return l.pod == pod && s.Now-l.at < l.wait })
}

// hasEnded reports whether the process of a pod has ended, so that nobody need wait until it is
// missed for long: its address refuses the operator, and the other copy, which has a role, has not
// heard it for a moment. Either alone may be a fault of the network. Where both are, a view more
// was recorded than need be.
func (s *step) hasEnded(p, other *Pod, role Role) bool {
	return p != nil && p.Report == nil && p.Refuses && other != nil && other.Report != nil && other.Report.Role == role &&
		other.Report.Misses >= min(unheard, s.SuspectAfter)
}

// Silent returns the memory with a pod that has not answered since a moment, and is not known to be
// silent yet.
func (m Memory) Silent(pod string, since time.Duration) Memory {
	if !m.IsSilent(pod) {
		m.silent = append(slices.Clone(m.silent), silence{pod, since})
	}
	return m
}

// IsSilent reports whether a pod did not answer when it was observed last.
func (m Memory) IsSilent(pod string) bool {
	return slices.ContainsFunc(m.silent, func(s silence) bool { return s.pod == pod })
}

// SilentSince is since when a pod has not answered; false if it did when it was observed last.
func (m Memory) SilentSince(pod string) (since time.Duration, silent bool) {
	for _, s := range m.silent {
		if s.pod == pod {
			return s.since, true
		}
	}
	return 0, false
}

// isMissed reports whether a pod has not answered for long.
func (s *step) isMissed(p *Pod) bool { return s.isSilentFor(p, s.SuspectAfter) }

// isLongMissed reports whether a backup has missed its primary for so long that an operator which
// has just begun to look need not miss that for as long itself. The primary has had no permission
// since then, so it answers nothing, and the backup has all that was answered. An operator that has
// looked for longer has decided before, and drops the backup of a primary that it reaches. A backup
// that stood still counts that time as well, until it has read what came meanwhile: so the operator
// asks for a moment.
func (s *step) isLongMissed(p, backup *Pod) bool {
	return backup.Report.Misses >= 2*s.SuspectAfter && s.isSilentFor(p, min(unheard, s.SuspectAfter))
}

func (s *step) isSilentFor(p *Pod, d time.Duration) bool {
	if p == nil {
		return false
	}
	since, silent := s.a.Memory.SilentSince(p.Name)
	return silent && s.Now-since >= d
}
