package resp

import (
	"bytes"
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// Commands in one step whose changes depend on what the keys have. They are two groups:
//
//	1  reads the pairs, and a digest of each. Nothing is changed
//	2  makes the changes, if each pair has the digest of 1 still
//
// If a pair has another one, it begins again at 1. So the command takes effect at the moment of 2,
// and what it went by is what the pairs have then. A server that dies, or keys that have moved
// meanwhile, change nothing about that: 2 compares wherever it runs. A command that has nothing to
// change takes effect at the moment of 1.

// mostCompared is how often such a command begins. It begins again without a pause: it failed since
// another command took effect on the same keys meanwhile, so of those that compete one goes on each
// time, and a pause would only leave the keys to others for longer. All attempts together have the
// time of one command.
const mostCompared = 64

// compared runs looks in one step, and then what change makes of their outcomes, in another one,
// which begins with the digests. No changes (nil) end it. looks have answers of so many bytes.
func (c *conn) compared(looks []*rpcv1.Operation, size int, change func(found []*rpcv1.Outcome) ([]*rpcv1.Operation, error)) (done bool, err error) {
	for range mostCompared {
		found, err := c.group(looks, size)
		if engine.CodeOf(err) == rpcv1.Outcome_UNKNOWN { // it changes nothing
			err = &engine.Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "nothing was done: " + err.Error()}
		}
		if err != nil {
			return false, err
		}
		changes, err := change(found)
		if err != nil || changes == nil {
			return false, err
		}
		outcomes, err := c.group(changes, 0)
		switch {
		case err != nil:
			return false, err
		case outcomes != nil:
			return true, wholly(changes, outcomes)
		}
	}
	return false, errorReply(fmt.Sprintf("UNAVAILABLE other commands changed the keys each of %d times, and nothing was done; try again", mostCompared))
}

// wholly returns an error if a part of a group was not done. All of it was checked before, so none
// should fail by itself, as a command of a transaction may: the pair could be gone.
func wholly(changes []*rpcv1.Operation, outcomes []*rpcv1.Outcome) error {
	for i, o := range outcomes {
		if !o.Code.Meaning().Answer {
			return halfDone(o, fmt.Sprintf("it was done but for the %s of %.64q", changes[i].Kind.Label(), changes[i].Key))
		}
	}
	return nil
}

// isThere reports whether there is a pair, of which a DIGEST found this.
func isThere(found *rpcv1.Outcome) bool { return !bytes.Equal(found.Value, engine.DigestOfNone) }

var (
	errNoSuchKey = errors.New("ERR no such key")
	errSameKeys  = errors.New("ERR source and destination objects are the same")
)

// cmdRename is RENAME and RENAMENX.
func (c *conn) cmdRename(args [][]byte) {
	only := isWord(args[0], "RENAMENX")
	done, err := c.transfer(args, false, !only)
	switch {
	case err != nil:
		c.refuseCommand(err)
	case only:
		c.replyDone(done)
	case !done:
		c.replyError(errNoSuchKey.Error())
	default:
		c.replyOK()
	}
}

// cmdCopy is COPY source destination [DB 0] [REPLACE].
func (c *conn) cmdCopy(args [][]byte) {
	replace := false
	for rest := args[3:]; len(rest) > 0; rest = rest[1:] {
		switch {
		case isWord(rest[0], "REPLACE"):
			replace = true
		case isWord(rest[0], "DB") && len(rest) > 1:
			switch n, ok := engine.ParseInteger(rest[1]); {
			case !ok:
				c.replyError(errNotInteger.Error())
				return
			case n != 0:
				c.replyError("ERR DB index is out of range")
				return
			}
			rest = rest[1:]
		default:
			c.replyError(errSyntax.Error())
			return
		}
	}
	if bytes.Equal(args[1], args[2]) {
		c.replyError(errSameKeys.Error())
		return
	}
	done, err := c.transfer(args, true, replace)
	if err != nil {
		c.refuseCommand(err)
		return
	}
	c.replyDone(done)
}

func (c *conn) replyDone(done bool) {
	if done {
		c.replyInt(1)
		return
	}
	c.replyInt(0)
}

// transfer gives the pair of one key, with type and deadline, to another one, and with keep leaves
// it to the first one, too. It reports false where there is none, unless the command is RENAMENX:
// that is an error then. Without replace it does nothing, and reports false, where the other key is
// there.
func (c *conn) transfer(args [][]byte, keep, replace bool) (done bool, err error) {
	k := lookupCommand(args[0])
	if err := c.allTogether(k, args); err != nil {
		return false, err
	}
	from, to := bytes.Clone(args[1]), bytes.Clone(args[2])
	look := &rpcv1.Operation{Kind: rpcv1.Operation_DIGEST, Key: from}
	none := watchedKey{to, engine.DigestOfNone}.unchanged()
	for _, op := range []*rpcv1.Operation{look, none} {
		if err := c.s.core.Check(op); err != nil {
			return false, err
		}
	}
	looks := []*rpcv1.Operation{look, {Kind: rpcv1.Operation_LOOKUP, Key: to}, {Kind: rpcv1.Operation_LOOKUP, Key: from}}
	if c.s.core.Index.Expires() {
		looks = append(looks, &rpcv1.Operation{Kind: rpcv1.Operation_HASH_READ, Key: from}, &rpcv1.Operation{Kind: rpcv1.Operation_DEADLINE, Key: from, Expiry: rpcv1.Operation_AT})
	}
	done, err = c.compared(looks, 2*c.s.core.Index.MaxValueBytes, func(found []*rpcv1.Outcome) ([]*rpcv1.Operation, error) {
		switch {
		case !isThere(found[0]) && k.name == "renamenx":
			return nil, errorReply(errNoSuchKey.Error())
		case !isThere(found[0]), !replace && found[1].Code != rpcv1.Outcome_NOT_FOUND:
			return nil, nil
		}
		changes := []*rpcv1.Operation{watchedKey{from, found[0].Value}.unchanged()}
		if bytes.Equal(from, to) {
			return changes, nil
		}
		if !replace {
			changes = append(changes, none)
		}
		gets, err := pairOf(to, found[2:])
		if err != nil {
			return nil, err
		}
		if !keep {
			changes = append(changes, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: from})
		}
		return append(changes, gets), nil
	})
	if engine.CodeOf(err) == rpcv1.Outcome_WRONG_TYPE {
		err = errorReply("ERR a sorted set cannot get another key, as its members lie on several servers, and nothing was done; read it, and add its members to a set of the other key")
	}
	return done, err
}

// pairOf is the operation that gives a key what was found by LOOKUP and, in an index whose pairs
// may expire, by HASH_READ and DEADLINE.
func pairOf(key []byte, found []*rpcv1.Outcome) (*rpcv1.Operation, error) {
	op := &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: key}
	value := found[0]
	if len(found) > 1 {
		op.Kind, op.Expiry = rpcv1.Operation_STORE, rpcv1.Operation_NEVER
		if value.Code == rpcv1.Outcome_WRONG_TYPE {
			op.Kind, value = rpcv1.Operation_HASH_STORE, found[1]
		}
		if at := found[2].Number; at >= 0 {
			op.Expiry, op.Number = rpcv1.Operation_AT, at
		}
	}
	op.Value = value.Value
	return op, engine.FailureOf(value)
}

// eachPaired calls visit with the keys of a command whose first argument says how many pairs of key
// and value follow, until it returns false.
func eachPaired(args [][]byte, visit func(key []byte) bool) {
	n, _ := engine.ParseInteger(args[1]) // an error is replied where it is run
	for i := int64(0); i < min(n, int64(len(args)-2)/2); i++ {
		if !visit(args[2+2*i]) {
			return
		}
	}
}

// cmdMSetEx is MSETEX numkeys key value [key value ...] [NX|XX] [EX s|PX ms|EXAT s|PXAT
// ms|KEEPTTL]: all pairs in one step, or none.
func (c *conn) cmdMSetEx(args [][]byte) {
	n, ok := engine.ParseInteger(args[1])
	switch {
	case !ok || n < 1:
		c.replyError("ERR invalid numkeys value")
		return
	case n > int64(len(args)-2)/2:
		c.replyError("ERR wrong number of key-value pairs")
		return
	case 2*n > rpcv1.MaxGroup:
		c.replyError(fmt.Sprintf("ERR MSETEX has at most %d keys, and nothing was done; divide it", rpcv1.MaxGroup/2))
		return
	}
	pairs, options := args[2:2+2*n], args[2+2*n:]
	one, condition, err := pairOptions(options)
	if err != nil {
		c.replyError(err.Error())
		return
	}
	c.storeAll(args, pairs, one, condition)
}

// storeAll stores pairs of a command in one step, each with the kind and the deadline of one, if
// the condition is true of every key, and replies 1; else it stores none and replies 0.
func (c *conn) storeAll(args, pairs [][]byte, one *rpcv1.Operation, condition rpcv1.Operation_Condition) {
	if err := c.allTogether(lookupCommand(args[0]), args); err != nil {
		c.refuseCommand(err)
		return
	}
	var looks, guards, changes []*rpcv1.Operation
	for ; len(pairs) > 0; pairs = pairs[2:] {
		op := &rpcv1.Operation{Kind: one.Kind, Key: pairs[0], Value: pairs[1], Expiry: one.Expiry, Number: one.Number}
		if err := c.s.core.Check(op); err != nil {
			c.refuseCommand(err)
			return
		}
		changes = append(changes, op)
		switch condition {
		case rpcv1.Operation_ABSENT:
			guards = append(guards, watchedKey{pairs[0], engine.DigestOfNone}.unchanged())
		case rpcv1.Operation_PRESENT:
			looks = append(looks, &rpcv1.Operation{Kind: rpcv1.Operation_DIGEST, Key: pairs[0]})
		}
	}
	var done bool
	var err error
	if condition == rpcv1.Operation_PRESENT {
		done, err = c.compared(looks, 0, func(found []*rpcv1.Outcome) ([]*rpcv1.Operation, error) {
			ops := make([]*rpcv1.Operation, 0, len(found)+len(changes))
			for i, o := range found {
				if !isThere(o) {
					return nil, nil
				}
				ops = append(ops, watchedKey{looks[i].Key, o.Value}.unchanged())
			}
			return append(ops, changes...), nil
		})
	} else {
		var outcomes []*rpcv1.Outcome
		changes = append(guards, changes...)
		outcomes, err = c.group(changes, 0)
		if done = outcomes != nil; done {
			err = wholly(changes, outcomes)
		}
	}
	if err != nil {
		c.refuseCommand(err)
		return
	}
	c.replyDone(done)
}

// pairOptions are the options of MSETEX: the kind and the deadline of each store, and what has to
// be true of each key.
func pairOptions(options [][]byte) (one *rpcv1.Operation, condition rpcv1.Operation_Condition, err error) {
	one = &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT}
	for rest := options; len(rest) > 0; rest = rest[1:] {
		expiry, unit := expiryOption(rest[0])
		switch timed := one.Kind == rpcv1.Operation_STORE; {
		case isWord(rest[0], "NX") && condition == rpcv1.Operation_ALWAYS:
			condition = rpcv1.Operation_ABSENT
		case isWord(rest[0], "XX") && condition == rpcv1.Operation_ALWAYS:
			condition = rpcv1.Operation_PRESENT
		case isWord(rest[0], "KEEPTTL") && !timed:
			one.Kind = rpcv1.Operation_STORE
		case unit != 0 && len(rest) > 1 && !timed:
			one.Kind = rpcv1.Operation_STORE
			if err := readExpiry(one, expiry, rest[1], unit, false, "msetex"); err != nil {
				return one, condition, err
			}
			rest = rest[1:]
		default:
			return one, condition, errSyntax
		}
	}
	return one, condition, nil
}
