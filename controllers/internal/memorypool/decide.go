package memorypool

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/controllers/internal/podstate"
)

// view is what is decided upon about the pods of a memory pool.
type view struct {
	servers int // that there shall be
	image   string
	returns bool // pods that end come back with the same number (claims.go)
	paused  bool // what is lost is replaced; no image is changed
	now     time.Time
	pods    []podView
	probes  []imageProbeView
}

type podView struct {
	id         int
	going      bool // is being deleted
	ended      bool // will never run again
	attempt    podstate.Attempt
	unfit      bool // its server cannot start on its node, or with its image
	stuck      bool // its container does not run, and will not with its image
	idle       bool // its container has run for long, and serves nothing
	ready      bool
	readySince time.Time
	image      string // that was asked for
	node       string
	restarted  time.Time // when its image was last changed in place
}

// actions is what to do next.
type actions struct {
	create int // pods to be made
	// why they are made, and why one is restarted
	createWhy, restartWhy string
	remove                []int // pods that ended
	restart               int   // pod whose image is to be changed in place; -1 = none
	probe                 int   // pod on whose node the image is to be proven; -1 = none
	drop                  []int // probes that are of no use, by their places in the view
	// when the next pod may be made, since kubelets refused the last ones
	next time.Time
}

// decide replaces what is lost and changes images one server after the other. It never
// takes a server away: it holds data. A server that serves nothing does not wait for its turn to
// get the image that is wanted, so that a server whose image was the reason heals.
//
// No image is changed before it is proven on the server's node (image.go).
func decide(v view) actions {
	a := decideServers(v)
	a.prove(v)
	return a
}

// returnAfter is how long after it was made a pod is made again, at the earliest.
const returnAfter = 10 * time.Second

// comeBack decides about pods that come back with the same number: one that ended, or was refused
// by its kubelet, is deleted after a while, and one is made in its place when it is gone.
func (a *actions) comeBack(v view) {
	a.create, a.createWhy, a.remove = max(0, v.servers-len(v.pods)), fmt.Sprintf("the pool has %d of %d pods", len(v.pods), v.servers), nil
	for _, p := range v.pods {
		switch at := p.attempt.Created.Add(returnAfter); {
		case !p.ended || p.going:
		case v.now.Before(at):
			a.next = at
		default:
			a.remove = append(a.remove, p.id)
		}
	}
}

// decideServers is all of it but the proof of images.
func decideServers(v view) actions {
	a := actions{restart: -1}
	there, quiet, outdated := 0, true, -1
	var attempts []podstate.Attempt
	for _, p := range v.pods {
		attempts = append(attempts, p.attempt)
		if p.ended && !p.going && !p.attempt.Refused {
			a.remove = append(a.remove, p.id)
		}
		if p.ended || p.going {
			continue
		}
		there++
		if p.image != v.image && outdated < 0 {
			outdated = p.id
		}
		back := p.restarted.IsZero() || p.readySince.After(p.restarted) || v.now.Sub(p.restarted) > podstate.RestartLimit
		if !p.ready || !back {
			quiet = false
		}
	}
	a.create, a.createWhy = max(0, v.servers-there), fmt.Sprintf("the pool has %d of %d servers", there, v.servers)
	if v.returns {
		a.comeBack(v)
	} else {
		a.create, a.remove, a.next = podstate.ReplaceRefused(attempts, a.create, a.remove, v.now)
	}
	if v.paused {
		return a
	}
	if quiet && a.create == 0 {
		a.restart, a.restartWhy = outdated, "its image is not that of the pool"
	}
	useless := func(p podView) bool { return p.unfit || p.stuck }
	if !slices.ContainsFunc(v.pods, useless) {
		useless = func(p podView) bool { return p.idle }
	}
	for _, p := range v.pods {
		// Whoever serves nothing need not wait for its turn: perhaps the image was the reason.
		if useless(p) && p.image != v.image && !p.ended && !p.going && a.restart < 0 {
			a.restart, a.restartWhy = p.id, "it serves nothing, and its image is not that of the pool"
		}
	}
	return a
}
