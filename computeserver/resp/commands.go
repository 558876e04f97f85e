package resp

import (
	"errors"
	"fmt"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// one runs a command that is one operation on the key behind its name.
func (c *conn) one(k *command, args [][]byte) {
	op, by, key := &c.op, k.reply, args[1]
	op.Kind, op.Key, op.Value = k.kind, key, nil
	is := k.kind.Traits()
	if is.Stores {
		op.Value = args[2]
	}
	if k.read != nil {
		var err error
		if by, err = k.read(args, op, by); err != nil {
			c.replyError(err.Error())
			return
		}
		is = op.Kind.Traits()
	}
	o := &c.outcome
	o.Code, o.Value = rpcv1.Outcome_OK, nil
	if !c.answered(o) {
		if err := c.s.core.Check(op); err != nil {
			c.fail(err)
			return
		}
		if c.elsewhere(key) {
			c.forwardLater(op, by)
			return
		}
		s := c.hold()
		if s == nil {
			return
		}
		if is.Changes && c.time.Deadline > 0 && c.s.core.Sessions.Late(c.time) {
			c.fail(engine.ErrLate)
			return
		}
		var err error
		if c.value, err = engine.Run(s, op, c.value, o); !o.Code.Meaning().Answer {
			c.failAt(key, err)
			return
		}
	}
	from := len(c.out)
	c.out = c.appendOutcome(c.out, o, by)
	c.owes(from, op.Kind, o.Code)
}

// reply appends the answer to an operation, which is one of the index (rpcv1.Meaning).
type reply func(c *conn, b []byte, o *rpcv1.Outcome) []byte

// replyValue is the value, or null.
func replyValue(c *conn, b []byte, o *rpcv1.Outcome) []byte {
	if o.Code != rpcv1.Outcome_OK {
		return c.appendNull(b)
	}
	return redcon.AppendBulk(b, o.Value)
}

// replyDone is OK, or null where a condition did not hold.
func replyDone(c *conn, b []byte, o *rpcv1.Outcome) []byte {
	if o.Code != rpcv1.Outcome_OK {
		return c.appendNull(b)
	}
	return append(b, "+OK\r\n"...)
}

// replyCount is 1, or 0 where the key was not as it had to be.
func replyCount(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	if o.Code != rpcv1.Outcome_OK {
		return append(b, ":0\r\n"...)
	}
	return append(b, ":1\r\n"...)
}

// appendOutcome appends the reply to an operation, and counts it.
func (c *conn) appendOutcome(b []byte, o *rpcv1.Outcome, by reply) []byte {
	c.tally.Count(engine.KindOf(o))
	if !o.Code.Meaning().Answer {
		return c.appendFailure(b, o)
	}
	return by(c, b, o)
}

// setOptions reads the options of SET.
func setOptions(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	for _, o := range args[3:] {
		switch {
		case is(o, "NX") && op.Kind != rpcv1.Operation_UPDATE:
			op.Kind = rpcv1.Operation_INSERT
		case is(o, "XX") && op.Kind != rpcv1.Operation_INSERT:
			op.Kind = rpcv1.Operation_UPDATE
		case is(o, "KEEPTTL"): // nothing here ever expires
		case is(o, "EX"), is(o, "PX"), is(o, "EXAT"), is(o, "PXAT"):
			return nil, fmt.Errorf("ERR keys of this index do not expire; use SET without %s", o)
		case is(o, "GET"):
			return nil, errors.New("ERR this index cannot replace a value and return it in one step; use GET, then SET")
		default:
			return nil, errors.New("ERR syntax error")
		}
	}
	return by, nil
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
