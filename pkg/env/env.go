// Package env is where the project's code gets time, goroutines, waiting and randomness.
//
// Index, pool and server code never uses the go statement, channels, select, blocking sync types,
// context timers or the time package's clock; it asks an [Env] instead. The very same code then
// runs on the real machine ([Real]) and under a deterministic simulator that runs one goroutine at
// a time and replays a run exactly from its seed. Lint keeps the rule (hack/lint).
package env

import "time"

// Forever is the limit of a wait that has none. Only shutdown paths and tests use it: every other
// wait has a limit.
const Forever time.Duration = 1<<63 - 1

// Env is one world to run in. All methods may be called from any goroutine of that world.
type Env interface {
	// Now is the time since a fixed but arbitrary point. It never goes back and it goes on while
	// the machine is suspended (CLOCK_BOOTTIME), so a lease is not held across a suspend.
	Now() time.Duration

	// Go starts f on a new goroutine. The name appears in stack dumps of the simulator.
	Go(name string, f func())

	// Sleep blocks the caller for at least d. Code waits for conditions with Event; Sleep is for
	// periodic work and for backing off.
	Sleep(d time.Duration)

	// Yield lets other goroutines run. Every retry loop yields.
	Yield()

	// NewMutex makes a mutual exclusion lock. It may be held across calls that block.
	NewMutex() Mutex

	// NewEvent makes an Event that is not set.
	NewEvent() Event

	// Uint64 is a random number; under the simulator it follows from the seed. Safe for concurrent
	// use.
	Uint64() uint64
}

// Mutex is a mutual exclusion lock. The zero value of an implementation is not usable: see
// [Env.NewMutex].
type Mutex interface {
	Lock()
	Unlock()
}

// Event is a latch that wakes one goroutine. Set is remembered until a Wait consumes it, and
// setting a set event changes nothing, so a waker never loses a wake-up and never blocks. Any
// goroutine may Set; one goroutine at a time may Wait.
type Event interface {
	// Set sets the event and wakes its waiter.
	Set()

	// Wait blocks until the event is set, then clears it and returns true; or returns false once
	// limit has gone by. What happened before the Set happens before the return of the Wait that
	// consumed it. A limit of zero or less only looks.
	Wait(limit time.Duration) bool
}

// WaitGroup waits for a number of goroutines to end. Make it with [NewWaitGroup].
type WaitGroup struct {
	env   Env
	mu    Mutex
	count int
	empty Event
}

// NewWaitGroup makes a group without members.
func NewWaitGroup(e Env) *WaitGroup {
	return &WaitGroup{env: e, mu: e.NewMutex(), empty: e.NewEvent()}
}

// Go runs f on a new goroutine that the group waits for.
func (g *WaitGroup) Go(name string, f func()) {
	g.mu.Lock()
	g.count++
	g.mu.Unlock()
	g.env.Go(name, func() {
		defer g.done()
		f()
	})
}

func (g *WaitGroup) done() {
	g.mu.Lock()
	g.count--
	last := g.count == 0
	g.mu.Unlock()
	if last {
		g.empty.Set()
	}
}

// Wait blocks until every goroutine of the group has ended and returns true, or returns false once
// limit has gone by. Only one goroutine may wait, after all calls of Go but those of members.
func (g *WaitGroup) Wait(limit time.Duration) bool {
	deadline := Deadline(g.env, limit)
	for {
		g.mu.Lock()
		n := g.count
		g.mu.Unlock()
		if n == 0 {
			return true
		}
		if !g.empty.Wait(Remaining(g.env, deadline)) {
			return false
		}
	}
}

// Deadline is the point on e's clock that lies limit from now; Forever stays Forever.
func Deadline(e Env, limit time.Duration) time.Duration {
	now := e.Now()
	if limit > Forever-now {
		return Forever
	}
	return now + limit
}

// Remaining is the time until deadline on e's clock, at least zero; Forever stays Forever.
func Remaining(e Env, deadline time.Duration) time.Duration {
	if deadline == Forever {
		return Forever
	}
	return max(0, deadline-e.Now())
}
