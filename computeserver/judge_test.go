package computeserver

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/pkg/env"
)

// The judge of programs: the store tells it every change at the moment when it is made, so it knows
// what each key was at any time, and compares with that what programs were told. It needs no
// search: a read must have seen what was there at some moment of it, a change that was acknowledged
// must have been made within its call, and one that is said not to be done, never.

// version is what a key was from a moment on.
type version struct {
	at    time.Duration
	value string
	there bool
}

// told is what a program was told of one operation on one key.
type told struct {
	op        string // get, put, insert, update, delete
	key       string
	value     string // put, or got
	call, ret time.Duration
	err       error // nil, or client.ErrNotFound, ErrExists, ErrUnknown, or another one: not done
}

// judge collects both.
type judge struct {
	env env.Env

	mu      sync.Mutex
	changes map[string][]version
	all     []told
	chains  []chain
	faults  int // connections cut, and the like
}

func newJudge() *judge { return &judge{env: env.Real(), changes: map[string][]version{}} }

// changed is for memindex.Store.Watch.
func (j *judge) changed(key, value []byte, there bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes[string(key)] = append(j.changes[string(key)], version{j.env.Now(), string(value), there})
}

// note adds what a program was told.
func (j *judge) note(t ...told) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, t...)
}

// saw reports whether a key was like that at some moment of a call.
func (j *judge) saw(t told, value string, there bool) bool {
	was := version{} // not there, to begin with
	for _, v := range j.changes[t.key] {
		if v.at >= t.call && was.there == there && was.value == value {
			return true
		}
		if v.at > t.ret {
			return false
		}
		was = v
	}
	return was.there == there && was.value == value
}

// sentence is what is wrong with all that was said; nil if nothing is.
func (j *judge) sentence() (wrong []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	made := map[string][]time.Duration{} // by value, which no two changes have in common
	for _, versions := range j.changes {
		for _, v := range versions {
			made[v.value] = append(made[v.value], v.at)
		}
	}
	for _, t := range j.all {
		if what := j.fault(t, made[t.value]); what != "" {
			wrong = append(wrong, fmt.Sprintf("%s %q %q, called at %v, returned at %v with %v: %s", t.op, t.key, t.value, t.call, t.ret, t.err, what))
		}
	}
	for _, c := range j.chains {
		if what := j.broken(c); what != "" {
			wrong = append(wrong, what)
		}
	}
	for key := range j.changes {
		wrong = append(wrong, j.deletes(key)...)
	}
	return wrong
}

// fault is what is wrong with one operation, whose value was stored at these moments.
func (j *judge) fault(t told, made []time.Duration) string {
	absent := errors.Is(t.err, client.ErrNotFound)
	switch {
	case t.op == "get" && t.err == nil && !j.saw(t, t.value, true):
		return "the key never had this value meanwhile"
	case absent && !j.saw(t, "", false):
		return "the key was there all the time"
	case errors.Is(t.err, client.ErrExists):
		if !slices.ContainsFunc(j.changes[t.key], func(v version) bool { return v.there && j.saw(t, v.value, true) }) {
			return "the key was never there meanwhile"
		}
		if len(made) > 0 {
			return "it was done itself"
		}
		return ""
	case t.op == "get" || t.op == "delete":
		return ""
	}
	within, after := 0, 0
	for _, at := range made {
		switch {
		case at < t.call:
			return "it was done before it was asked for"
		case at <= t.ret:
			within++
		default:
			after++
		}
	}
	switch n := within + after; {
	case t.err == nil && within == 0:
		return fmt.Sprintf("it was not done, or %d times too late", after)
	case t.err != nil && !errors.Is(t.err, client.ErrUnknown) && n > 0:
		return fmt.Sprintf("it was done %d times", n)
	case n > 1 && t.op != "put":
		return fmt.Sprintf("it was done %d times", n)
	case j.faults == 0 && (n > 1 || errors.Is(t.err, client.ErrUnknown)):
		return fmt.Sprintf("nothing was cut, and it was done %d times", n)
	}
	return ""
}

// deletes says what is wrong with the deletions of a key, which have no value to be known by: each
// that was acknowledged takes one that was made within its call, the one that ended first before
// others; those that are left belong to calls in doubt, one each.
func (j *judge) deletes(key string) (wrong []string) {
	var acknowledged, doubtful []told
	for _, t := range j.all {
		switch {
		case t.op != "delete" || t.key != key:
		case t.err == nil:
			acknowledged = append(acknowledged, t)
		case errors.Is(t.err, client.ErrUnknown):
			doubtful = append(doubtful, t)
		}
	}
	left := 0
	for _, v := range j.changes[key] {
		if v.there {
			continue
		}
		best := -1
		for i, t := range acknowledged {
			if t.call <= v.at && v.at <= t.ret && (best < 0 || t.ret < acknowledged[best].ret) {
				best = i
			}
		}
		if best < 0 {
			left++
			continue
		}
		acknowledged = slices.Delete(acknowledged, best, best+1)
	}
	if len(acknowledged) > 0 || left > len(doubtful) {
		wrong = append(wrong, fmt.Sprintf("key %q: %d deletions were acknowledged and never made, %d were made that nobody asked for beside %d in doubt", key, len(acknowledged), left, len(doubtful)))
	}
	return wrong
}
