package dex_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/indexsim"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// in runs do in the process of a client and waits; false: the process died, also because a memory
// server did (lostServer).
func (o *owners) in(c *owner, what string, do func() error) (alive bool, err error) {
	if c.p.Dead() {
		return false, nil
	}
	over := o.main.NewEvent()
	c.p.AtKill(over.Set) // it may die before do begins
	c.p.Go(what, func() {
		defer over.Set()
		err = do()
	})
	over.Wait(env.Forever)
	if o.lostServer(c, err) {
		c.p.Kill()
	}
	if c.p.Dead() {
		return false, nil
	}
	return true, err
}

// lostServer reports whether err may be what a client finds since the process of a memory server
// has died and come back. The client is given up then, as a compute server does that opens its
// index again.
func (o *owners) lostServer(c *owner, err error) bool {
	if err == nil || o.restarts() == c.restarts {
		return false
	}
	// ErrRefused: a token ends with the process that gave it
	for _, cause := range []error{index.ErrUnreachable, index.ErrUnknown, index.ErrFenced, index.ErrClosed, verbs.ErrDisconnected, verbs.ErrRefused} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// restarts is how often a memory server's process died.
func (o *owners) restarts() (n int) {
	for id := range o.c.Options.Servers {
		n += o.c.Server(uint16(id + 1)).Restarts()
	}
	return n
}

// switched are the options of a client: in every third run some techniques are off, others with
// each client; in another third every second client caches as the paper does.
func (o *owners) switched() index.Options {
	opts := o.opts
	switch {
	case o.seed%3 == 0 && o.made%2 == 0:
		opts.Switches = map[string]bool{"frequencies": false, "entries": o.seed%2 == 0}
	case o.seed%3 == 2:
		opts.Switches = map[string]bool{}
		for i, name := range dex.Switches {
			opts.Switches[name] = (o.seed>>2+uint64(i*o.made))%3 != 0
		}
	}
	return opts
}

// make makes a client; false: it died.
func (o *owners) make() bool {
	o.made++
	c := &owner{p: o.w.NewProcess(fmt.Sprint("client-", o.made)), restarts: o.restarts()}
	o.all = append(o.all, c)
	alive, err := o.in(c, "open", func() error {
		p, err := o.c.Open(c.p)
		if err != nil {
			return err
		}
		c.client, c.pool = p.Client(), p
		if o.used {
			if err := indexsim.UseMemory(p, []int{64, 128, 192, 256}, 6); err != nil {
				return err
			}
		}
		x, err := dex.Open(p, o.switched())
		if err != nil {
			return err
		}
		c.x = x.(index.Partitioned)
		c.log = c.x.Log()
		return nil
	})
	if err != nil {
		o.w.Fail(err)
	}
	if alive {
		o.living = append(o.living, c)
		return true
	}
	o.died(c)
	return false
}

// died fences a client and makes its ranges orphans.
func (o *owners) died(c *owner) {
	if c.gone {
		return
	}
	c.gone = true
	o.counts.deaths++
	for i, l := range o.living {
		if l == c {
			o.living = append(o.living[:i], o.living[i+1:]...)
			break
		}
	}
	if c.client != 0 {
		for id := range o.c.Options.Servers {
			for o.c.Control(o.main).Fence(uint16(id+1), []uint32{c.client}, time.Second) != nil {
				o.main.Yield()
			}
		}
	}
	for _, g := range o.ranges {
		if g.by == c {
			g.inherits = append(g.inherits, pool.Inherited{Start: g.start, End: g.end, Client: c.client, Epoch: g.epoch, Log: c.log})
			g.by = nil
		}
	}
}

// moveTo gives a range to a client.
func (o *owners) moveTo(g *owned, to *owner) error {
	if g.by == to {
		return nil
	}
	if from := g.by; from != nil {
		o.counts.gives++
		alive, err := o.in(from, "give", func() error { _, err := from.x.Give(g.start, g.end); return err })
		if err != nil {
			return err
		}
		if !alive {
			o.died(from)
		} else {
			g.by = nil
		}
	}
	for g.by == nil {
		if len(o.living) == 0 && !o.make() {
			continue
		}
		if to.p.Dead() {
			to = o.living[o.r.IntN(len(o.living))]
		}
		o.epoch++
		o.counts.takes++
		o.counts.replays += len(g.inherits)
		g.by, g.epoch = to, o.epoch
		alive, err := o.in(to, "take", func() error {
			return to.x.Take(pool.Holding{Start: g.start, End: g.end, Epoch: g.epoch, Inherits: g.inherits})
		})
		if err != nil {
			return err
		}
		if alive {
			g.inherits = nil
		} else {
			o.died(to)
		}
	}
	return nil
}
