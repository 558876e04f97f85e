package resp

import (
	"bytes"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
)

// Between MULTI and EXEC commands are queued. EXEC sends all of them as one operation, a GROUP, to
// the server that has their keys, and replies what it answers.
//
//   - A command that would make the group one that no server can do is refused when it comes, and
//     not answered QUEUED: clients exist that wait for the results of what was. Such are commands
//     on keys of another server than the first one, commands that a group does not have, and one
//     too many. EXEC says then that nothing was done.
//   - What is wrong with a command's arguments is said behind EXEC, in its place, and the others
//     are done, as in Redis. So is what a command finds wrong with the pair.
//   - MULTI is accepted by every index: clients send the commands behind it without waiting for
//     its reply, and after an error they would be run one by one.
//
// WATCH asks for a digest of each pair, and EXEC sends the digests along: the group is done if the
// pairs have the same ones then. So nothing is remembered for it but by the connection, and it
// holds across servers that die and ranges that move. A pair that was changed and got its former
// value, type and deadline back counts as unchanged, where Redis counts it as changed. So what the
// connection reads of a watched key must be what was watched, too, or EXEC does nothing: the read
// and the look at the digest are one step (readWatched). Otherwise a program could go by a value
// that was there in between. Then what it saw is right when EXEC takes effect.
type transaction struct {
	begun  bool
	failed bool // a command was refused
	queued []queuedCommand
	ops    int // of the commands, and one of each watched key
	bytes  int // of all that

	key     []byte // one of those that commands are on, or are watched; nil = there is none
	watched []watchedKey
	changed bool // a read met another pair than was watched
}

// queuedCommand is a command behind MULTI.
type queuedCommand struct {
	k    *command
	args [][]byte
	// Of EXEC: its operations, and how their outcomes are replied; or why it is not done.
	ops []*rpcv1.Operation
	by  reply
	err error
	// A script without keys, which is run behind EXEC, as it touches nothing.
	alone *rpcv1.Script
}

// watchedKey is a key with the digest that its pair had.
type watchedKey struct{ key, digest []byte }

// unchanged is the operation that fails if the pair has another digest.
func (w watchedKey) unchanged() *rpcv1.Operation {
	return &rpcv1.Operation{Kind: rpcv1.Operation_DIGEST, Key: w.key, Operand: w.digest}
}

// maxQueuedBytes bounds what a transaction may take: commands, keys that are watched, and some for
// each of them and of their arguments. Its operations are fewer than these bytes, and a GROUP has
// room for them.
const maxQueuedBytes = rpcv1.MaxGroupBytes

// Bytes that commands and arguments count for beside their own.
const (
	queuedBytes   = 64
	queuedArgHead = argBytes
)

// reject refuses a command before it is run. Between MULTI and EXEC that fails the transaction.
func (c *conn) reject(text string) {
	c.multi.failed = c.multi.begun
	c.replyError(text)
}

// discard ends the transaction, and watches no key.
func (c *conn) discard() {
	c.multi = transaction{}
	c.account.force(holdQueue, 0)
}

func (c *conn) cmdMulti(_ [][]byte) {
	if c.multi.begun {
		c.replyError("ERR MULTI calls can not be nested")
		return
	}
	c.multi.begun = true
	c.replyOK()
}

func (c *conn) cmdDiscard(_ [][]byte) {
	if !c.multi.begun {
		c.replyError("ERR DISCARD without MULTI")
		return
	}
	c.discard()
	c.replyOK()
}

// queue queues a command behind MULTI.
func (c *conn) queue(k *command, args [][]byte) {
	m := &c.multi
	keys := 0
	switch {
	case k.queue:
	case k.kind.Traits().Set:
		c.reject(fmt.Sprintf("ERR '%s' cannot stand between MULTI and EXEC, as the members of a sorted set lie on several servers, and nothing of this transaction will be done; send it before or behind it", k.name))
		return
	case k.reply == nil && k.together == nil && !k.counted:
		c.reject(fmt.Sprintf("ERR '%s' cannot stand between MULTI and EXEC, and nothing of this transaction will be done; send it before or behind it", k.name))
		return
	case !c.mayServe(): // which has replied why
		m.failed = true
		return
	default:
		first := m.key
		var split error
		k.eachKey(args, func(key []byte) bool {
			if split = c.checkOneServer(first, key); split != nil {
				return false
			}
			if keys++; first == nil {
				first = key
			}
			return true
		})
		if split != nil {
			c.reject(split.Error())
			return
		}
	}
	size := queuedBytes
	for _, a := range args {
		size += queuedArgHead + len(a)
	}
	if err := c.holdQueued(keys, size); err != nil {
		c.reject(err.Error())
		return
	}
	m.queued = append(m.queued, queuedCommand{k: k, args: cloneAll(args)})
	if keys > 0 && m.key == nil {
		k.eachKey(m.queued[len(m.queued)-1].args, func(key []byte) bool { m.key = key; return false })
	}
	c.out = append(c.out, "+QUEUED\r\n"...)
	c.tally.Count(count.OK)
}

// checkOneServer returns an error, as it is replied, if a key belongs to another server than the
// first one of its transaction, or is another one where the design does not change several in one
// step. No first one (nil) goes with any. While there is no map, EXEC finds out.
func (c *conn) checkOneServer(first, key []byte) error {
	own := c.s.core.View
	m := own.Route()
	switch {
	case first == nil || bytes.Equal(first, key):
		return nil
	case !c.s.core.Sessions.Groups():
		return errorReply("ERR " + engine.ErrNoGroups.Error())
	}
	place, server := own.Place(m, key)
	if _, of := own.Place(m, first); place != ownership.Unknown && server != of {
		return errorReply("CROSSSLOT " + engine.SplitGroup(first, key).Error())
	}
	return nil
}

// allTogether is together for all keys of a command.
func (c *conn) allTogether(k *command, args [][]byte) (err error) {
	var first []byte
	k.eachKey(args, func(key []byte) bool {
		err = c.checkOneServer(first, key)
		first = key
		return err == nil
	})
	return err
}

// holdQueued notes so many more operations and bytes. It returns an error, as it is replied, if
// they are too many.
func (c *conn) holdQueued(ops, size int) error {
	m := &c.multi
	switch {
	case m.ops+ops > rpcv1.MaxGroup || m.bytes+size > maxQueuedBytes:
		return errorReply(fmt.Sprintf("ERR a transaction has at most %d keys and %d bytes, keys that are watched included, and nothing of this one will be done; divide it", rpcv1.MaxGroup, maxQueuedBytes))
	case c.account.set(holdQueue, m.bytes+size) != nil:
		return errorReply("UNAVAILABLE " + errBudget.Error())
	}
	m.ops, m.bytes = m.ops+ops, m.bytes+size
	return nil
}

func (c *conn) cmdWatch(args [][]byte) {
	if c.multi.begun {
		c.replyError("ERR WATCH inside MULTI is not allowed")
		return
	}
	size, first := 0, c.multi.key
	for _, key := range args[1:] {
		if err := c.checkOneServer(first, key); err != nil {
			c.replyError(err.Error())
			return
		}
		if size += queuedBytes + len(key); first == nil {
			first = key
		}
	}
	if err := c.holdQueued(len(args)-1, size); err != nil {
		c.replyError(err.Error())
		return
	}
	c.settle() // earlier commands come first
	keys := cloneAll(args[1:])
	ops := make([]*rpcv1.Operation, len(keys))
	for i, key := range keys {
		ops[i] = &rpcv1.Operation{Kind: rpcv1.Operation_DIGEST, Key: key}
	}
	outcomes := c.s.core.Do(ops, false, c.timeLeft(false), c.term)
	c.noteWaits(outcomes)
	for _, o := range outcomes {
		if err := engine.FailureOf(o); err != nil {
			c.fail(err)
			return
		}
	}
	for i, key := range keys { // of a key that is watched twice the first one counts, as in Redis
		c.multi.watched = append(c.multi.watched, watchedKey{key, outcomes[i].Value})
	}
	if c.multi.key == nil {
		c.multi.key = keys[0]
	}
	c.replyOK()
}

// watchedBy is the digests of the watched keys that a command reads, if it changes nothing and
// could stand in a transaction.
func (c *conn) watchedBy(k *command, args [][]byte) (ops []*rpcv1.Operation) {
	if c.multi.begun || k.now || k.is.Changes || k.reply == nil && k.together == nil && !k.counted {
		return nil
	}
	for _, w := range c.multi.watched {
		k.eachKey(args, func(key []byte) bool {
			if bytes.Equal(key, w.key) {
				ops = append(ops, w.unchanged())
				return false
			}
			return true
		})
	}
	return ops
}

// readWatched runs a command that reads watched keys, in one step with the looks at them. It
// reports false where it did not reply: as the keys have changed, or as the arguments are wrong.
func (c *conn) readWatched(k *command, args [][]byte, looks []*rpcv1.Operation) bool {
	q := queuedCommand{k: k, args: args}
	size := c.readQueued(&q)
	if q.err != nil || len(q.ops) == 0 {
		return false
	}
	outcomes, err := c.group(append(looks, q.ops...), size)
	switch {
	case err != nil:
		c.refuseCommand(err)
	case outcomes == nil:
		c.multi.changed = true
		return false
	default:
		c.replyQueued(&q, outcomes[len(looks):])
	}
	return true
}

func (c *conn) cmdUnwatch(_ [][]byte) {
	if !c.multi.begun {
		c.discard()
	}
	c.replyOK()
}
