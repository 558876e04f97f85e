package resp

import (
	"bytes"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

func (c *conn) cmdExec(_ [][]byte) {
	if !c.multi.begun {
		c.replyError("ERR EXEC without MULTI")
		return
	}
	was := c.multi
	defer c.discard()
	if was.failed {
		c.replyError("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	ops := make([]*rpcv1.Operation, 0, was.ops)
	for _, w := range was.watched {
		ops = append(ops, w.unchanged())
	}
	size := 0
	for i := range was.queued {
		q := &was.queued[i]
		size += c.readQueued(q)
		ops = append(ops, q.ops...)
	}
	var outcomes []*rpcv1.Outcome
	var err error
	if !was.changed {
		outcomes, err = c.group(ops, size)
	}
	switch {
	case err != nil:
		c.refuseCommand(err)
		return
	case len(ops) > 0 && outcomes == nil:
		c.out = c.appendNullArray(c.out)
		c.tally.Count(count.Miss)
		return
	}
	c.settle() // replies before this one have their places
	c.execFrom = len(c.out) + 1
	defer func() { c.execFrom = 0 }()
	slot := c.tally.Slot
	c.out = redcon.AppendArray(c.out, len(was.queued))
	outcomes = outcomes[len(was.watched):]
	for i := range was.queued {
		q := &was.queued[i]
		c.tally.Slot = q.k.slot
		c.replyQueued(q, outcomes[:len(q.ops)])
		c.s.monitors.show(c.who.address, q.k, q.args)
		outcomes = outcomes[len(q.ops):]
	}
	c.tally.Slot = slot
	c.tally.Count(count.OK)
}

// readQueued makes the operations of a queued command. It returns how many bytes their values have
// at most.
func (c *conn) readQueued(q *queuedCommand) (size int) {
	k := q.k
	switch {
	case k.queue:
	case k.counted:
		size = c.readScript(q)
	case k.isOneOperation(len(q.args)):
		op := &rpcv1.Operation{}
		if q.by, q.err = c.operation(k, q.args, op); q.err != nil {
			return 0
		}
		if k.list > 0 {
			op.Value = bytes.Clone(op.Value)
		}
		q.ops = []*rpcv1.Operation{op}
	case k.keys.step == 2 && len(q.args)%2 == 0:
		q.err = errorReply("ERR wrong number of arguments for '" + k.name + "' command")
	default:
		for i := k.keys.first; i <= k.keys.lastKey(len(q.args)); i += k.keys.step {
			op := &rpcv1.Operation{Kind: k.kind, Key: q.args[i]}
			if k.keys.step == 2 {
				op.Value = q.args[i+1]
			}
			q.ops = append(q.ops, op)
		}
	}
	for _, op := range q.ops {
		is := op.Kind.Traits()
		if is.Value && !k.counted {
			size += c.s.core.Index.MaxValueBytes
		}
		switch {
		case q.err != nil:
		case k.counted && !c.mayRun(k, q.args), // not any more
			!k.counted && !c.scripted && !c.login.User().May(is.Reads, is.Changes, op.Key):
			q.err = errorReply(noPermission(k, c.login.User()))
		default:
			q.err = c.s.core.CheckMember(op)
		}
	}
	if q.err != nil {
		q.ops, q.alone, size = nil, nil, 0
	}
	return size
}

// group does operations in one step. Without an error and outcomes, nothing was done, because a key
// that was watched has changed. Their outcomes have so many bytes at most.
func (c *conn) group(ops []*rpcv1.Operation, size int) ([]*rpcv1.Outcome, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	c.settle() // earlier commands come first, and no session is held while others are waited for
	if err := c.refusal(); err != nil {
		return nil, err
	}
	value, err := rpcv1.AppendGroup(nil, ops)
	if err != nil {
		return nil, err
	}
	if err := c.account.set(holdMany, 2*len(value)+len(ops)*opBytes+2*min(size, engine.MostGroupAnswer)); err != nil {
		return nil, err
	}
	defer c.account.force(holdMany, 0)
	c.touched = true
	key := bytes.Clone(ops[0].Key) // it may lie in the read buffer: see cloneAll
	o := c.s.core.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_GROUP, Key: key, Value: value}}, false, c.timeLeft(true), c.term)[0]
	c.noteWait(o.Code)
	switch o.Code {
	case rpcv1.Outcome_OK:
		return o.GroupOutcomes(len(ops))
	case rpcv1.Outcome_MISMATCH:
		return nil, nil
	}
	return nil, engine.FailureOf(o)
}

// replyQueued replies to a command that was queued.
func (c *conn) replyQueued(q *queuedCommand, outcomes []*rpcv1.Outcome) {
	switch {
	case q.err != nil:
		c.refuseCommand(q.err)
	case q.alone != nil:
		c.replyAlone(q)
	case q.k.queue:
		q.k.run(c, q.args)
	case q.by != nil:
		c.out = c.appendOutcome(c.out, outcomes[0], q.by)
	default:
		c.out = q.k.together(c, c.out, outcomes)
		c.tally.Count(count.OK)
	}
}

// replyAll appends the answer to a command on several keys, from what its operations answered.
type replyAll func(c *conn, b []byte, outcomes []*rpcv1.Outcome) []byte

// countAll is how many keys there were.
func countAll(_ *conn, b []byte, outcomes []*rpcv1.Outcome) []byte {
	n := 0
	for _, o := range outcomes {
		if o.Code == rpcv1.Outcome_OK || o.Code == rpcv1.Outcome_WRONG_TYPE {
			n++
		}
	}
	return redcon.AppendInt(b, int64(n))
}

// valuesOfAll is the values, null for each that is not there, or is no string.
func valuesOfAll(c *conn, b []byte, outcomes []*rpcv1.Outcome) []byte {
	b = redcon.AppendArray(b, len(outcomes))
	for _, o := range outcomes {
		b = replyValue(c, b, o)
	}
	return b
}

func doneAll(_ *conn, b []byte, _ []*rpcv1.Outcome) []byte { return append(b, "+OK\r\n"...) }

// appendNullArray appends the reply "there is none" where there would be several.
func (c *conn) appendNullArray(b []byte) []byte {
	if c.resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "*-1\r\n"...)
}
