package computepool

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/pkg/partition"
)

// view is what is decided upon about the pods of a compute pool.
type view struct {
	replicas int    // that there shall be
	identity string // of the index that they shall serve
	template string // that they shall be made of
	paused   bool   // what is lost is replaced; nobody leaves, whatever the template
	now      time.Time
	pods     []podView
}

type podView struct {
	id       int
	going    bool // is being deleted
	ended    bool // will never run again
	leaving  bool // was told to leave
	neverRan bool // its server has not run yet
	ready    bool
	// since when it has been or has not been
	readySince time.Time
	attempt    podstate.Attempt
	identity   string
	template   string
	image      string // that was asked for
}

// actions is what to do next.
type actions struct {
	create int // pods to be made
	former int // so many of them with the image of those that run an old template
	// why they are made, and why others leave
	createWhy, leaveWhy string
	leave               []int // pods to be told to leave: they hand over their ranges first
	remove              []int // pods that serve nothing any more
	// when the next pod may be made, since kubelets refused the last ones
	next time.Time
}

// decide keeps as many servers as asked for. When the template changes, one more is made, and one
// of the old leaves as soon as there are enough without it; so the pool is never below its size.
// When it shrinks, the highest numbers leave.
//
// An old one that serves nothing is nothing that the pool could fall below: one that never ran is
// removed at once, and one that has not been ready for partition.Grace leaves when there are more
// than enough. So a template that cannot run, which is then put right, leaves nobody behind that
// would count as the one more. But it leaves only if enough others are ready, or one of the new
// template: else all may be waiting for memory that is away, and the new template may never run.
//
// Until one of the new template is ready nobody knows whether its image can be had. So there is one
// of it, and whoever is lost meanwhile is replaced by one with an image that runs, which may stay
// though it has not run yet.
func decide(v view) (a actions) {
	var staying, outdated, idle []int
	ready, leaving, works := 0, 0, false // works: a server of the template is ready
	runs := map[string]bool{}            // images of servers of other templates that ran
	for _, p := range v.pods {
		if p.going || p.ended || p.leaving || p.identity != v.identity {
			continue
		}
		works = works || p.ready && p.template == v.template
		runs[p.image] = runs[p.image] || !p.neverRan && p.template != v.template
	}
	var attempts []podstate.Attempt
	for _, p := range v.pods {
		attempts = append(attempts, p.attempt)
		switch {
		case p.going, p.attempt.Refused:
			continue
		case p.ended, p.identity != v.identity:
			a.remove = append(a.remove, p.id)
			continue
		case p.leaving:
			leaving++
			continue
		}
		if p.ready {
			ready++
		}
		old := p.template != v.template && !v.paused
		if old && p.neverRan && (works || !runs[p.image]) {
			a.remove = append(a.remove, p.id)
			continue
		}
		if old && !p.ready && v.now.Sub(p.readySince) > partition.Grace {
			idle = append(idle, p.id)
		}
		if old {
			outdated = append(outdated, p.id)
		} else {
			staying = append(staying, p.id)
		}
	}
	slices.Sort(staying)
	slices.Sort(outdated)
	target := v.replicas
	if len(outdated) > 0 {
		target++
	}
	count := len(staying) + len(outdated)
	a.create, a.createWhy = max(0, target-count), fmt.Sprintf("the pool has %d of %d servers", count, v.replicas)
	if count >= v.replicas {
		a.createWhy = fmt.Sprintf("%d servers run an old template and are replaced", len(outdated))
	}
	a.create, a.remove, a.next = podstate.ReplaceRefused(attempts, a.create, a.remove, v.now)
	if len(outdated) > 0 && !works {
		a.former = max(0, a.create-max(0, 1-len(staying)))
	}

	if v.paused {
		return a
	}
	surplus := max(0, count-target)
	a.leaveWhy = fmt.Sprintf("the pool has %d servers and is to have %d", count, v.replicas)
	if len(outdated) > 0 && surplus == 0 && count > v.replicas && ready > v.replicas && leaving == 0 {
		surplus, a.leaveWhy = 1, "it runs an old template, and a new server is ready"
	}
	if len(idle) > 0 && surplus == 0 && count > v.replicas && (ready >= v.replicas || works) {
		slices.Sort(idle)
		a.leave, a.leaveWhy = idle[len(idle)-1:], "it runs an old template, and is not ready"
		return a
	}
	goers := append(staying, outdated...) // from the end
	for range surplus {
		a.leave = append(a.leave, goers[len(goers)-1])
		goers = goers[:len(goers)-1]
	}
	return a
}
