package resp

import (
	"fmt"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// A command on several keys is several operations: each is linearizable by itself, all of them
// together are not one step. They are run in parts, so that what they take of memory is bounded,
// and in the order of the arguments where they are on the same key. A part in which an operation
// failed is the last one.

// manyBytes is about what the operations of one part may take, with their outcomes.
const manyBytes = 1 << 20

// several is what came of a command on several keys.
type several struct {
	kind   rpcv1.Operation_Kind
	all    int            // operations
	done   int            // those that were done, or found their key
	failed *rpcv1.Outcome // the first one that failed; nil if none did
	doubt  bool           // a change may have been made by one that failed
}

// multiKey runs one operation for each key, wherever the keys belong, and calls visit with the
// outcomes, in their order, until it returns an error. args are the keys; or with step 2, keys and
// values. An error came before anything was done, or is that of visit.
func (c *conn) multiKey(kind rpcv1.Operation_Kind, args [][]byte, step int, visit func(o *rpcv1.Outcome) error) (several, error) {
	core := c.s.core
	n := several{kind: kind, all: len(args) / step}
	each := 0
	for i := 0; i < len(args); i += step {
		err := core.CheckKey(args[i])
		size := len(args[i])
		if err == nil && step == 2 {
			err = core.CheckValue(args[i+1])
			size += len(args[i+1])
		}
		each = max(each, size)
		if err != nil {
			return n, err
		}
	}
	c.settle() // earlier commands come first, and no session is held while others are waited for
	each += opBytes
	if kind.Traits().Value {
		each += core.Index.MaxValueBytes
	}
	part := min(max(manyBytes/each, 1), engine.MaxForward, n.all)
	if err := c.account.set(holdMany, part*each); err != nil {
		return n, err
	}
	defer c.account.force(holdMany, 0)
	ops, slab := make([]*rpcv1.Operation, part), make([]rpcv1.Operation, part)
	for len(args) > 0 && n.failed == nil {
		ops = ops[:min(part, len(args)/step)]
		now := args[:len(ops)*step]
		args = args[len(now):]
		if !core.View.Any {
			now, slab = cloneAll(now), make([]rpcv1.Operation, len(ops))
		}
		for i := range ops {
			op := &slab[i]
			op.Kind, op.Key, ops[i] = kind, now[i*step], op
			if step == 2 {
				op.Value = now[i*step+1]
			}
		}
		for _, o := range core.Do(ops, false, c.timeLeft(kind.Traits().Changes), c.term) {
			c.noteWait(o.Code)
			switch {
			case o.Code == rpcv1.Outcome_OK, o.Code == rpcv1.Outcome_WRONG_TYPE && !kind.Traits().Changes:
				n.done++ // the key is there
			case o.Code.Meaning().Answer: // the pair was not as it has to be
			default:
				if n.failed == nil {
					n.failed = o
				}
				n.doubt = n.doubt || o.Code == rpcv1.Outcome_UNKNOWN
			}
			if n.failed == nil && visit != nil {
				if err := visit(o); err != nil {
					return n, err
				}
			}
		}
	}
	return n, nil
}

// cloneAll copies slices, into one array. The arguments of a command lie in the read buffer, which
// is used again once the command is replied; a stream to another server may still hold then what it
// did not answer in time (dostream.Stream.Do).
func cloneAll(from [][]byte) [][]byte {
	size := 0
	for _, b := range from {
		size += len(b)
	}
	data, to := make([]byte, 0, size), make([][]byte, len(from))
	for i, b := range from {
		at := len(data)
		data = append(data, b...)
		to[i] = data[at:len(data):len(data)]
	}
	return to
}

// failure is the error of a command of which an operation failed; done says what the others did.
func (n *several) failure(done string) error {
	if !n.kind.Traits().Changes || n.done == 0 && !n.doubt {
		return engine.FailureOf(n.failed)
	}
	others := "were not"
	if n.doubt {
		others = "may have been, too"
	}
	return halfDone(n.failed, fmt.Sprintf("%d of %d %s, others %s", n.done, n.all, done, others))
}

// halfDone is the error of a command that an outcome ended when it had changed something, or may
// have. It must not be answered as if nothing was done: it is UNKNOWN whatever the reason was,
// unless data was lost.
func halfDone(by *rpcv1.Outcome, done string) error {
	code := rpcv1.Outcome_UNKNOWN
	if by.Code == rpcv1.Outcome_DATA_LOST {
		code = by.Code
	}
	return &engine.Failure{Code: code, Message: done + ": " + by.Message}
}

func (c *conn) cmdDel(args [][]byte) {
	c.countMany(rpcv1.Operation_DELETE, args[1:])
}

func (c *conn) cmdExists(args [][]byte) {
	c.countMany(rpcv1.Operation_LOOKUP, args[1:])
}

// countMany replies for how many keys the operation found something.
func (c *conn) countMany(kind rpcv1.Operation_Kind, keys [][]byte) {
	n, err := c.multiKey(kind, keys, 1, nil)
	if err == nil && n.failed != nil {
		err = n.failure("keys were deleted")
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.replyInt(int64(n.done))
}

func (c *conn) cmdMGet(args [][]byte) {
	c.settle()
	b := c.newBody()
	n, err := c.multiKey(rpcv1.Operation_LOOKUP, args[1:], 1, func(o *rpcv1.Outcome) error {
		if err := b.add(len(o.Value)+16, "ask for fewer keys"); err != nil {
			return err
		}
		if o.Code == rpcv1.Outcome_OK {
			c.out = redcon.AppendBulk(c.out, o.Value)
		} else {
			c.out = c.appendNull(c.out)
		}
		return nil
	})
	if err == nil && n.failed != nil {
		err = n.failure("")
	}
	if err != nil {
		b.fail(err)
		return
	}
	b.send(appendHead(nil, n.all))
}

func (c *conn) cmdMSet(args [][]byte) {
	if len(args)%2 != 1 {
		c.replyError("ERR wrong number of arguments for 'mset' command")
		return
	}
	n, err := c.multiKey(rpcv1.Operation_UPSERT, args[1:], 2, nil)
	if err == nil && n.failed != nil {
		err = n.failure("pairs were stored")
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.replyOK()
}
