package resp

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// provisional is a reply in conn.out that came from the held session: it may be sent if nothing
// withholds it when the session goes back (engine.Sessions.Repay).
type provisional struct {
	from, to int
	slot     int // of the command, for the tally
	kind     rpcv1.Operation_Kind
	code     rpcv1.Outcome_Code // that says something of the pair (rpcv1.Meaning)
}

// noteProvisional notes that what was replied since out had from bytes came from the held session.
func (c *conn) noteProvisional(from int, kind rpcv1.Operation_Kind, code rpcv1.Outcome_Code) {
	c.provisional = append(c.provisional, provisional{from, len(c.out), c.tally.Slot, kind, code})
}

// takeBack puts errors into the places of the replies that came from the held session.
func (c *conn) takeBack(why error) {
	rebuilt := make([]byte, 0, 2*len(c.out))
	from, moved := 0, 0
	for _, u := range c.provisional {
		moved = c.moveHoles(moved, u.from, len(rebuilt)-from)
		rebuilt = append(rebuilt, c.out[from:u.from]...)
		o := &rpcv1.Outcome{Code: u.code}
		rebuilt = c.appendFailure(rebuilt, engine.Withheld(u.kind, o, why))
		from = u.to
		c.tally.Recount(u.slot, engine.KindOf(o), count.Error)
	}
	c.moveHoles(moved, len(c.out), len(rebuilt)-from)
	c.out = append(rebuilt, c.out[from:]...)
}

// moveHoles moves the holes of what was set aside, from the given one on and up to a place in out,
// by so many bytes. It returns the first that lies beyond.
func (c *conn) moveHoles(first, upTo, by int) int {
	for ; first < len(c.forwards.holes) && c.forwards.holes[first].at <= upTo; first++ {
		c.forwards.holes[first].at += by
	}
	return first
}
