package expiry

import (
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Clock is the time by which the pairs of a server expire: milliseconds since 1970.
//
// The clock of a machine may be set, by hand or by a daemon that found it wrong. If it jumped ahead
// by a day, a server that went by it would remove each pair that it meets and that has less than a
// day left, for good. So a Clock takes the machine's time when the index is opened, and then counts
// by a clock that nobody sets (env.Env.Now). It follows the machine's by a 64th of the time that
// goes by, at most. So, while the index is open:
//
//   - A pair that this server lets expire in a time from now lasts that long, a 64th more or less,
//     whatever becomes of the machine's clock.
//   - A machine's clock that is wrong for a minute moves what expires by less than a second.
//   - A machine's clock that is corrected little by little is followed.
//
// A Clock does not know that the machine's clock is wrong when the index is opened, and nothing
// bounds how far the clocks of two servers are apart.
type Clock struct {
	env     env.Env
	machine func() int64
	ahead   atomic.Int64 // of env.Now, in milliseconds

	followed time.Duration // when; belongs to the caller of Set and Follow
}

const (
	followEvery = time.Second
	followPart  = 64
)

// NewClock returns a clock that was Set. machine is the machine's: milliseconds since 1970.
func NewClock(e env.Env, machine func() int64) *Clock {
	c := &Clock{env: e, machine: machine}
	c.Set()
	return c
}

// Now is the time. It may be called by any goroutine.
func (c *Clock) Now() int64 { return c.env.Now().Milliseconds() + c.ahead.Load() }

// Off is how far the machine's clock is ahead, in milliseconds.
func (c *Clock) Off() int64 { return c.machine() - c.Now() }

// Set takes the machine's time.
func (c *Clock) Set() {
	c.followed = c.env.Now()
	c.ahead.Store(c.machine() - c.followed.Milliseconds())
}

// Follow goes towards the machine's time. It is called now and then, by the goroutine that calls
// Set.
func (c *Clock) Follow() {
	now := c.env.Now()
	if gone := now - c.followed; gone >= followEvery {
		most := gone.Milliseconds() / followPart
		c.ahead.Add(max(-most, min(c.Off(), most)))
		c.followed = now
	}
}
