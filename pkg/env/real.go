package env

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Real is the world outside: the machine's clock, Go's scheduler and random numbers of the
// operating system's seed.
func Real() Env { return real{} }

type real struct{}

// Now reads CLOCK_BOOTTIME, which goes on while the machine is suspended; Go's own monotonic clock
// does not.
func (real) Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("env: CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func (real) Go(_ string, f func()) { go f() }
func (real) Sleep(d time.Duration) { time.Sleep(d) }
func (real) Yield()                { runtime.Gosched() }
func (real) NewMutex() Mutex       { return new(sync.Mutex) }
func (real) NewEvent() Event       { return make(realEvent, 1) }
func (real) Uint64() uint64        { return rand.Uint64() }

// realEvent is a channel of one element: the element is there while the event is set.
type realEvent chan struct{}

func (e realEvent) Set() {
	select {
	case e <- struct{}{}:
	default:
	}
}

func (e realEvent) Wait(limit time.Duration) bool {
	select {
	case <-e:
		return true
	default:
	}
	if limit <= 0 {
		return false
	}
	if limit == Forever {
		<-e
		return true
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-e:
		return true
	case <-t.C:
		return false
	}
}
