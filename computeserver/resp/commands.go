package resp

import (
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/pkg/index"
)

func (c *conn) cmdGet(args [][]byte) {
	key := args[1]
	value, err, known := c.answered()
	if !known {
		if err := c.s.core.CheckKey(key); err != nil {
			c.fail(err)
			return
		}
		if c.elsewhere(key) {
			c.forwardLater(rpcv1.Operation_LOOKUP, key, nil, replyValue)
			return
		}
		s := c.hold()
		if s == nil {
			return
		}
		value, err = s.Lookup(key, c.value[:0])
		c.value = value[:0]
	}
	from := len(c.out)
	switch {
	case err == nil:
		c.replyBulk(value)
		c.owes(from, rpcv1.Operation_LOOKUP, rpcv1.Outcome_OK)
	case errors.Is(err, index.ErrNotFound):
		c.replyNull()
		c.owes(from, rpcv1.Operation_LOOKUP, rpcv1.Outcome_NOT_FOUND)
	default:
		c.failAt(key, err)
	}
}

func (c *conn) cmdSet(args [][]byte) {
	kind, err := setKind(args[3:])
	if err != nil {
		c.replyError(err.Error())
		return
	}
	c.change(kind, args[1], args[2], replyDone)
}

// setKind reads the options of SET.
func setKind(options [][]byte) (rpcv1.Operation_Kind, error) {
	kind := rpcv1.Operation_UPSERT
	for _, o := range options {
		switch {
		case is(o, "NX") && kind != rpcv1.Operation_UPDATE:
			kind = rpcv1.Operation_INSERT
		case is(o, "XX") && kind != rpcv1.Operation_INSERT:
			kind = rpcv1.Operation_UPDATE
		case is(o, "KEEPTTL"): // nothing here ever expires
		case is(o, "EX"), is(o, "PX"), is(o, "EXAT"), is(o, "PXAT"):
			return 0, fmt.Errorf("ERR keys of this index do not expire; use SET without %s", o)
		case is(o, "GET"):
			return 0, errors.New("ERR this index cannot replace a value and return it in one step; use GET, then SET")
		default:
			return 0, errors.New("ERR syntax error")
		}
	}
	return kind, nil
}

func (c *conn) cmdSetNX(args [][]byte) {
	c.change(rpcv1.Operation_INSERT, args[1], args[2], replyCount)
}

// change runs one operation that changes a pair.
func (c *conn) change(kind rpcv1.Operation_Kind, key, value []byte, reply replyKind) {
	err := c.s.core.CheckKey(key)
	if err == nil {
		err = c.s.core.CheckValue(value)
	}
	if err != nil {
		c.fail(err)
		return
	}
	if c.elsewhere(key) {
		c.forwardLater(kind, key, value, reply)
		return
	}
	s := c.hold()
	if s == nil {
		return
	}
	if c.time.Deadline > 0 && c.s.core.Sessions.Late(c.time) {
		c.fail(engine.ErrLate)
		return
	}
	switch kind {
	case rpcv1.Operation_INSERT:
		err = s.Insert(key, value)
	case rpcv1.Operation_UPDATE:
		err = s.Update(key, value)
	case rpcv1.Operation_DELETE:
		err = s.Delete(key)
	default:
		err = s.Upsert(key, value)
	}
	done, from := err == nil, len(c.out)
	switch {
	case !done && !errors.Is(err, index.ErrNotFound) && !errors.Is(err, index.ErrExists):
		c.failAt(key, err)
		return
	case reply == replyCount && done:
		c.replyInt(1)
	case reply == replyCount:
		c.out = append(c.out, ":0\r\n"...)
		c.tally.Count(count.Miss)
	case done:
		c.replyOK()
	default:
		c.replyNull()
	}
	c.owes(from, kind, engine.CodeOf(err))
}

// failAt replies an error of the held session.
func (c *conn) failAt(key []byte, err error) {
	o := engine.OutcomeOf(err)
	o.Message = c.s.core.At(c.s.core.View.Route(), key, o.Message)
	c.out = c.appendFailure(c.out, o)
	c.tally.Count(count.Error)
	c.used(err)
}

func (c *conn) tooLarge(advice string) string {
	return fmt.Sprintf("the reply would be larger than %d bytes; %s", c.s.maxReply, advice)
}

// is compares an argument with a word in upper case, whatever its case.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i := range len(word) {
		b := arg[i]
		if b >= 'a' && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}
