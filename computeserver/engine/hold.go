package engine

import (
	"errors"

	"github.com/dmindex/dmindex/computeserver/ownership"
)

// holdRanges makes the server serve only ranges that it holds: its index is of a design whose
// ranges have owners.
func (c *Engine) holdRanges() {
	open := c.Sessions.open
	c.Sessions.open = func() (ownership.Opened, error) {
		ix, err := open()
		if _, ok := ix.(ownership.Owner); err == nil && !ok {
			err = errors.Join(errors.New("the ranges of this design have owners, and its index does not say how they change hands"), ix.Close())
		}
		return ix, err
	}
	c.Sessions.grouper.Store(true)
	c.Sessions.tables, c.taken = ownership.NewTables(c.Env), ownership.NewTakeOvers(c.Env)
	c.Sessions.hold = func(ix ownership.Opened) (end func(gently bool)) {
		h := ownership.NewManager(ix.(ownership.Owner), ownership.Options{
			Env: c.Env, View: c.View, Tables: c.Sessions.tables, GiveUp: c.Sessions.giveUp, Limit: c.Limit,
			TakeOvers: c.taken, HeldMost: c.heldMost, Log: c.Log,
		})
		c.manager.Store(h)
		c.Env.Go("hold ranges", h.Run)
		return func(gently bool) {
			h.End(gently)
			c.manager.Store(nil)
			c.Sessions.tables.Replace(nil, nil)
			c.View.Serve(nil, nil)
		}
	}
}

// Ranges returns the ranges that this server holds or wants; none in a design that shares all keys,
// and none while the index is not open.
func (c *Engine) Ranges() []ownership.RangeStatus {
	if h := c.manager.Load(); h != nil {
		return h.Status()
	}
	return nil
}
