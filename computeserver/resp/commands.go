package resp

import (
	"fmt"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/hash"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// runOnKey runs a command that is one operation on the key behind its name.
func (c *conn) runOnKey(k *command, args [][]byte) {
	op := &c.op
	by, err := c.operation(k, args, op)
	if err != nil {
		c.refuseCommand(err)
		return
	}
	is, key := op.Kind.Traits(), op.Key
	o := &c.outcome
	o.Code, o.Value, o.Number, o.Found, o.Message = rpcv1.Outcome_OK, nil, 0, false, ""
	if is.Changes || !c.answered(o) {
		if err := c.s.core.Check(op); err != nil {
			c.fail(err)
			return
		}
		if c.setsAside(key) {
			c.forwardLater(op, by)
			return
		}
		s := c.holdSession()
		if s == nil {
			return
		}
		if is.Changes && c.time.Deadline > 0 && c.s.core.Sessions.Late(c.time) {
			c.fail(engine.ErrLate)
			return
		}
		var err error
		c.value, err = engine.Run(s, op, c.value, o)
		if means := o.Code.Meaning(); !means.Pair {
			c.failAt(key, err)
			return
		} else if !means.Answer {
			o.Message = err.Error()
		}
	}
	from := len(c.out)
	c.out = c.appendOutcome(c.out, o, by)
	c.noteProvisional(from, op.Kind, o.Code)
}

// operation makes op that of a command which is one operation on the key behind its name, and
// returns how it is replied. An error is an errorReply, or one of the engine.
func (c *conn) operation(k *command, args [][]byte, op *rpcv1.Operation) (by reply, err error) {
	by = k.reply
	op.Kind, op.Key, op.Value, op.Condition, op.Operand, op.Number, op.Expiry = k.kind, args[1], nil, 0, nil, 0, 0
	if k.is.Stores {
		op.Value = args[k.value]
	}
	if k.read != nil {
		if by, err = k.read(args, op, by); err != nil {
			return nil, errorReply(err.Error())
		}
		if is := op.Kind.Traits(); op.Kind != k.kind && !c.scripted && !c.login.User().May(is.Reads, is.Changes, op.Key) {
			return nil, errorReply(noPermission(k, c.login.User()))
		}
	}
	if k.list > 0 {
		return by, c.listed(op, args[k.list:])
	}
	return by, nil
}

// errorReply is an error as it is replied.
type errorReply string

func (e errorReply) Error() string { return string(e) }

// refuseCommand replies an error of operation.
func (c *conn) refuseCommand(err error) {
	if text, ok := err.(errorReply); ok {
		c.replyError(string(text))
		return
	}
	c.fail(err)
}

// listed makes the operation's value the list of the arguments: fields of a hash, and perhaps their
// values.
func (c *conn) listed(op *rpcv1.Operation, args [][]byte) error {
	size := 0
	for _, a := range args { // each behind its length, which takes a byte at least
		size += 1 + len(a)
	}
	if err := c.s.core.CheckSize(size); err != nil {
		return err
	}
	c.list = hash.AppendList(c.list[:0], args)
	op.Value = c.list
	return nil
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

// replyOld is the value that the key had, or null.
func replyOld(c *conn, b []byte, o *rpcv1.Outcome) []byte {
	if !o.Found {
		return c.appendNull(b)
	}
	return redcon.AppendBulk(b, o.Value)
}

// replyNumber is the number of an operation that is always done.
func replyNumber(_ *conn, b []byte, o *rpcv1.Outcome) []byte { return redcon.AppendInt(b, o.Number) }

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

// failAt replies an error of the held session.
func (c *conn) failAt(key []byte, err error) {
	c.out = c.appendFailure(c.out, c.s.core.OutcomeAt(c.s.core.View.Route(), key, err))
	c.tally.Count(count.Error)
	c.noteError(err)
}

func (c *conn) tooLarge(advice string) string {
	return fmt.Sprintf("the reply would be larger than %d bytes; %s", c.s.maxReply, advice)
}

// isWord compares an argument with a word in upper case, whatever its case.
func isWord(arg []byte, word string) bool {
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
