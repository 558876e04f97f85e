package resp

import (
	"strconv"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// headRoom is room for what stands before the elements of a reply whose number is not known yet.
const headRoom = 64

// reserve makes room for n bytes more of replies, and a bit for what stands around them. It returns
// errBudget if the budget has none.
func (c *conn) reserve(n int) error {
	n += len(c.out) + headRoom
	if n <= cap(c.out) {
		return nil
	}
	n = max(n, 2*cap(c.out))
	if err := c.account.set(holdOut, n); err != nil {
		return err
	}
	c.out = append(make([]byte, 0, n), c.out...)
	return nil
}

// body is a reply under construction: elements at the end of conn.out, behind room for their
// head. It is sent or dropped.
type body struct {
	c    *conn
	from int // in out
}

var noHead [headRoom]byte

func (c *conn) newBody() body {
	b := body{c, len(c.out)}
	c.out = append(c.out, noHead[:]...)
	return b
}

// add makes room for n bytes more of the reply, headers included. It fails where that is more than
// one reply, or the budget, has.
func (b body) add(n int, advice string) error {
	if len(b.c.out)-b.from-headRoom+n > b.c.s.maxReply {
		return &engine.Failure{Code: rpcv1.Outcome_INVALID, Message: b.c.tooLarge(advice)}
	}
	return b.c.reserve(n)
}

// send puts the head before the elements.
func (b body) send(head []byte) {
	out := b.c.out
	n := copy(out[b.from:b.from+headRoom], head)
	n += copy(out[b.from+n:], out[b.from+headRoom:])
	b.c.out = out[:b.from+n]
	b.c.tally.Count(count.OK)
}

// drop forgets it.
func (b body) drop() { b.c.out = b.c.out[:b.from] }

// fail replies an error instead.
func (b body) fail(err error) {
	b.drop()
	b.c.fail(err)
}

// appendHead appends the head of an array of n elements.
func appendHead(dst []byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, '*'), int64(n), 10), '\r', '\n')
}
