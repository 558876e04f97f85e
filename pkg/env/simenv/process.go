package simenv

import (
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Process is a group of goroutines that lives and dies together, with a clock of its own. It
// implements [env.Env].
//
// A process that is killed runs no line of the program any more but its deferred functions: each of
// its goroutines panics where it waits. In those functions waits return at once and locks are had
// for nothing; a provider answers ErrClosed and does nothing.
type Process struct {
	world  *World
	name   string
	dead   bool
	frozen bool
	held   []*Timer // what would have happened while it is frozen
	atKill []func()

	paused   bool // its clock stands still since pausedAt
	pausedAt time.Duration

	// Its clock says base + (the world's time - since) * rate/1e6.
	base, since time.Duration
	rate        int64
}

// NewProcess makes a process without goroutines.
func (w *World) NewProcess(name string) *Process {
	return &Process{world: w, name: name, rate: 1e6}
}

// World is the one that p lives in.
func (p *Process) World() *World { return p.world }

// Name of the process.
func (p *Process) Name() string { return p.name }

// Dead reports whether p was killed.
func (p *Process) Dead() bool { return p.dead }

// Frozen reports whether p stands still.
func (p *Process) Frozen() bool { return p.frozen }

// AtKill has do called when p is killed, before any of its deferred functions.
func (p *Process) AtKill(do func()) { p.atKill = append(p.atKill, do) }

// Kill ends p as SIGKILL does. If the caller is one of its goroutines, Kill does not return.
func (p *Process) Kill() {
	if p.dead {
		return
	}
	p.dead, p.frozen = true, false
	p.held = nil
	for _, do := range p.atKill {
		do()
	}
	w := p.world
	for t := w.tasks.first; t != nil; t = t.after {
		if t.process == p && t != w.current {
			t.leaveQueues()
			w.schedule(&t.timer, w.now)
		}
	}
	if t := w.current; t != nil && t.process == p {
		t.mayRun()
	}
}

// Freeze stops p as SIGSTOP does, or a suspended machine: none of its goroutines runs, while its
// clock goes on.
func (p *Process) Freeze() { p.frozen = !p.dead }

// Pause stops p as Freeze does, and its clock with it: a virtual machine that is paused, and whose
// clock does not catch up. What p waits for ends as if its clock had gone on.
func (p *Process) Pause() {
	if !p.frozen {
		p.paused, p.pausedAt = !p.dead, p.Now()
	}
	p.Freeze()
}

// Thaw lets a frozen p go on.
func (p *Process) Thaw() {
	if !p.frozen {
		return
	}
	p.frozen = false
	if p.paused {
		p.paused = false
		p.base += p.pausedAt - p.Now()
	}
	held := p.held
	p.held = nil
	for _, t := range held {
		p.world.schedule(t, p.world.now)
	}
}

// release forgets a timer that is held.
func (p *Process) release(t *Timer) {
	for i, h := range p.held {
		if h == t {
			p.held = append(p.held[:i], p.held[i+1:]...)
			return
		}
	}
}

// SetDrift makes p's clock run faster than the world's by ppm parts of a million, or slower if ppm
// is negative.
func (p *Process) SetDrift(ppm int64) {
	if ppm <= -1e6 {
		panic(fmt.Sprintf("simenv: a clock that drifts by %d ppm goes back", ppm))
	}
	p.base, p.since = p.Now(), p.world.now
	p.rate = 1e6 + ppm
}

// Jump moves p's clock forward, as when the machine was suspended and nothing else noticed.
func (p *Process) Jump(d time.Duration) { p.base += max(0, d) }

// Now implements env.Env.
func (p *Process) Now() time.Duration { return p.base + scale(p.world.now-p.since, p.rate, 1e6) }

// until is when p's clock will have gone on by d, of the world's time. It is later than now if d is
// positive, however fast the clock is: a wait always takes some time.
func (p *Process) until(d time.Duration) time.Duration {
	return p.world.now + max(scale(min(d, p.world.o.MaxTime), 1e6, p.rate), min(d, 1))
}

// scale is d*num/den, of a d that may be near the largest there is.
func scale(d time.Duration, num, den int64) time.Duration {
	if num == den {
		return d
	}
	return d/time.Duration(den)*time.Duration(num) + d%time.Duration(den)*time.Duration(num)/time.Duration(den)
}

// Go implements env.Env.
func (p *Process) Go(name string, f func()) {
	if !p.dead {
		p.start(name, f)
	}
}

// Sleep implements env.Env.
func (p *Process) Sleep(d time.Duration) { p.pass(max(d, 1), "sleep") }

// Yield implements env.Env.
func (p *Process) Yield() { p.pass(p.world.o.Tick, "its turn") }

func (p *Process) pass(d time.Duration, what string) {
	t := p.world.current
	if t == nil {
		p.world.outside("a wait")
		return
	}
	if t.mayWait() {
		t.pass(p.until(d), what)
	}
}

// NewMutex implements env.Env.
func (p *Process) NewMutex() env.Mutex { return &mutex{world: p.world} }

// NewEvent implements env.Env.
func (p *Process) NewEvent() env.Event { return &event{world: p.world} }

// Uint64 implements env.Env.
func (p *Process) Uint64() uint64 { return p.world.random.Uint64() }

// outside panics unless the run is over: then what closes and cleans up may run outside of any
// goroutine, and waits for nothing.
func (w *World) outside(what string) {
	if !w.ended {
		panic("simenv: " + what + " outside of the world's goroutines")
	}
}

// Until is when p's clock will have gone on by d, as the world's time.
func (p *Process) Until(d time.Duration) time.Duration { return p.until(d) }
