package env

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
)

// Real is the world outside: the machine's clock, Go's scheduler and random numbers of the
// operating system's seed.
func Real() Env { return real{theClock()} }

type real struct{ clock *bootClock }

// theClock is the clock of all real worlds of the process.
var theClock = sync.OnceValue(newBootClock)

// Now reads CLOCK_BOOTTIME, which goes on while the machine is suspended; Go's own monotonic clock
// does not.
func (r real) Now() time.Duration { return r.clock.now() }

func (real) Go(_ string, f func()) { go f() }
func (real) Sleep(d time.Duration) { time.Sleep(d) }
func (real) Yield()                { runtime.Gosched() }
func (real) NewMutex() Mutex       { return new(sync.Mutex) }
func (real) NewEvent() Event       { return &realEvent{set: make(chan struct{}, 1)} }
func (real) Uint64() uint64        { return rand.Uint64() }

// realEvent has a channel of one element: the element is there while the event is set.
type realEvent struct {
	set   chan struct{}
	timer *time.Timer // of the one goroutine that may wait; nil = it never had to, with a limit

	waits atomic.Bool // a goroutine waits; kept with invariants only
}

func (e *realEvent) Set() {
	select {
	case e.set <- struct{}{}:
	default:
	}
}

// Wait allocates nothing, but for the first wait with a limit.
func (e *realEvent) Wait(limit time.Duration) bool {
	select {
	case <-e.set:
		return true
	default:
	}
	if limit <= 0 {
		return false
	}
	if invariants.Enabled {
		invariants.Check(!e.waits.Swap(true), "two goroutines wait for one event")
		defer e.waits.Store(false)
	}
	if limit == Forever {
		<-e.set
		return true
	}
	if e.timer == nil {
		e.timer = time.NewTimer(limit)
	} else {
		e.timer.Reset(limit) // what it sent before is gone: its channel keeps nothing over a Reset
	}
	defer e.timer.Stop()
	select {
	case <-e.set:
		return true
	case <-e.timer.C:
		return false
	}
}
