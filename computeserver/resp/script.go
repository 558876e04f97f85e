package resp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/pubsub"
	"github.com/dmindex/dmindex/computeserver/script"
)

// EVAL and EVALSHA send a script as a GROUP of one operation, to the server that has its keys. So
// everything that multi.go says of EXEC is true of a script, and between MULTI and EXEC it is one
// more operation of the group.
//
// What a script calls comes back here (Call), at the server where it runs: the command is read as
// one of a client is, its operations run on the copies of the group, and its reply is made as ever.
// A script may call what may stand in a transaction.
//
// A script without keys touches nothing, and runs at the server that was asked.
//
// Each server keeps the scripts that it was sent, or has run, as far as there is room. EVALSHA of
// one that it does not have is NOSCRIPT, upon which clients send EVAL. SCRIPT LOAD, EXISTS and
// FLUSH are about this server alone. The text travels with each call, so the server that runs it
// needs none.

// countedKeys are the keys of a command whose second argument says how many there are. An error is
// replied as it is.
func countedKeys(args [][]byte) ([][]byte, error) {
	n, ok := engine.ParseInteger(args[2])
	switch {
	case !ok:
		return nil, errorReply(errNotInteger.Error())
	case n < 0:
		return nil, errorReply("ERR Number of keys can't be negative")
	case n > int64(len(args)-3):
		return nil, errorReply("ERR Number of keys can't be greater than number of args")
	}
	return args[3 : 3+n], nil
}

// eachKey calls visit with the keys of a command until it returns false.
func (k *command) eachKey(args [][]byte, visit func(key []byte) bool) {
	if k.counted {
		keys, _ := countedKeys(args) // what is wrong is replied where it is run
		for _, key := range keys {
			if !visit(key) {
				return
			}
		}
		return
	}
	if k.paired {
		eachPaired(args, visit)
		return
	}
	for i := k.keys.first; k.keys.step > 0 && i <= k.keys.lastKey(len(args)); i += k.keys.step {
		if !visit(args[i]) {
			return
		}
	}
}

// scriptAsked reads the arguments of EVAL and its like. It finds the text of EVALSHA, and compiles
// the script.
func (c *conn) scriptAsked(k *command, args [][]byte) (*rpcv1.Script, error) {
	keys, err := countedKeys(args)
	if err != nil {
		return nil, err
	}
	if len(keys) > rpcv1.MaxGroup {
		return nil, errorReply(fmt.Sprintf("ERR a script has at most %d keys, and nothing was done; divide its work", rpcv1.MaxGroup))
	}
	text := args[1]
	if k.bySum {
		if text = c.s.core.ScriptText(lowerHex(args[1])); text == nil {
			return nil, errorReply("NOSCRIPT No matching script. Please use EVAL.")
		}
	}
	if err := c.compile(text); err != nil {
		return nil, err
	}
	return &rpcv1.Script{Text: text, Keys: keys, Args: args[3+len(keys):], Resp3: c.resp3, Channels: c.login.User().Channels()}, nil
}

// compile compiles a script, and keeps it.
func (c *conn) compile(text []byte) error {
	if len(text) > script.MaxText {
		return errorReply(fmt.Sprintf("ERR a script has at most %d bytes, and nothing was done; divide it", script.MaxText))
	}
	if err := c.account.set(holdMany, compiledBytes*len(text)); err != nil {
		return err
	}
	defer c.account.force(holdMany, 0)
	if _, err := c.s.core.Program(text); err != nil {
		return errorReply("ERR " + err.Error())
	}
	return nil
}

// compiledBytes is what the text of a script takes for each byte while it is compiled, at most: the
// parser's stack has some 250 bytes for each bracket that is open, and is copied when it grows.
const compiledBytes = 700

// lowerHex is the name of a script as programs have it; empty if it is none.
func lowerHex(name []byte) string {
	var sum [20]byte
	if n, err := hex.Decode(sum[:min(len(name)/2, 20)], name[:min(len(name), 40)]); err != nil || n != 20 || len(name) != 40 {
		return ""
	}
	return hex.EncodeToString(sum[:])
}

// readScript makes the operation of a script that has keys.
func (c *conn) readScript(q *queuedCommand) (size int) {
	asked, err := c.scriptAsked(q.k, q.args)
	if err != nil {
		q.err = err
		return 0
	}
	q.by = replyScript
	if size = script.MaxReply; len(asked.Channels) > 0 {
		size += engine.MostPublished
	}
	if len(asked.Keys) == 0 {
		q.alone = asked
		return size
	}
	value, err := rpcv1.AppendScript(nil, asked)
	if err != nil {
		q.err = err
		return 0
	}
	q.ops = []*rpcv1.Operation{{Kind: q.k.kind, Key: bytes.Clone(asked.Keys[0]), Value: value}}
	return size
}

// replyScript is what the script returned, which is a reply. What it published is published now:
// the group was done, and is durable.
func replyScript(c *conn, b []byte, o *rpcv1.Outcome) []byte {
	reply, messages, err := o.Published()
	if err != nil {
		c.s.core.Count.Undelivered.Add(1)
		c.s.core.Log.Warn("what a script published cannot be read, and is lost", "error", err)
	}
	c.publishAll(messages)
	return append(b, reply...)
}

// publishAll publishes what a script published.
func (c *conn) publishAll(messages []*rpcv1.PublishedMessage) {
	for _, m := range messages {
		c.s.publish(&pubsub.Message{Channel: m.Channel, Payload: m.Payload, Sharded: m.Sharded})
	}
}

// cmdEval is EVAL and its like.
func (c *conn) cmdEval(args [][]byte) {
	k := lookupCommand(args[0])
	if err := c.allTogether(k, args); err != nil {
		c.refuseCommand(err)
		return
	}
	q := queuedCommand{k: k, args: args}
	size := c.readQueued(&q)
	if q.err != nil || q.alone != nil {
		c.settle()
		c.replyQueued(&q, nil)
		return
	}
	outcomes, err := c.group(q.ops, size)
	if err != nil {
		c.refuseCommand(err)
		return
	}
	c.replyQueued(&q, outcomes)
}

// replyAlone runs a script without keys, and replies.
func (c *conn) replyAlone(q *queuedCommand) {
	if c.ended.Load() { // between the scripts of a transaction
		c.refuseCommand(errorReply("UNAVAILABLE this connection is ended"))
		return
	}
	reply, messages, err := c.s.core.RunWithoutKeys(q.alone, !q.k.is.Changes)
	if err == nil {
		c.publishAll(messages)
		err = c.reserve(len(reply)) // a transaction may have a thousand of them
	}
	if err != nil {
		c.refuseCommand(err)
		return
	}
	c.out = append(c.out, reply...)
	c.tally.Count(count.OK)
}

// cmdScript is SCRIPT.
func (c *conn) cmdScript(args [][]byte) {
	switch sub := args[1]; {
	case isWord(sub, "LOAD") && len(args) == 3:
		if err := c.compile(args[2]); err != nil {
			c.refuseCommand(err)
			return
		}
		c.replyBulk([]byte(script.Sum(args[2])))
	case isWord(sub, "EXISTS") && len(args) > 2:
		c.out = redcon.AppendArray(c.out, len(args)-2)
		for _, name := range args[2:] {
			there := 0
			if c.s.core.ScriptText(lowerHex(name)) != nil {
				there = 1
			}
			c.out = append(strconv.AppendInt(append(c.out, ':'), int64(there), 10), "\r\n"...)
		}
		c.tally.Count(count.OK)
	case isWord(sub, "FLUSH") && (len(args) == 2 || len(args) == 3 && (isWord(args[2], "ASYNC") || isWord(args[2], "SYNC"))):
		if user := c.login.User(); !changesAll(user) {
			c.replyError(fmt.Sprintf("NOPERM User %s may not forget scripts, which others use, too: it needs the rights to read and to write every key", user.Name()))
			return
		}
		c.s.core.ForgetScripts()
		c.replyOK()
	case isWord(sub, "KILL") && len(args) == 2:
		c.replyError("NOTBUSY No scripts in execution right now.")
	default:
		c.replyError(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.64s'. LOAD, EXISTS, FLUSH and KILL are possible.", sub))
	}
}

// Call implements engine.Commands.
func (s *Server) Call(args [][]byte, host engine.ScriptHost) []byte {
	k := lookupCommand(args[0])
	c := &conn{s: s, scripted: true}
	if why := uncallable(k, args); why != "" {
		c.replyError(why)
		return c.out
	}
	switch {
	case k.name == "time":
		now := host.Now()
		c.out = redcon.AppendArray(c.out, 2)
		c.out = redcon.AppendBulkString(c.out, strconv.FormatInt(now/1e3, 10))
		c.out = redcon.AppendBulkString(c.out, strconv.FormatInt(now%1e3*1e3, 10))
	case k.name == "ping" && len(args) == 1:
		c.out = append(c.out, "+PONG\r\n"...)
	case k.name == "echo", k.name == "ping":
		c.out = redcon.AppendBulk(c.out, args[1])
	case k.needs == toPublish:
		if err := publishFor(host, args); err != nil {
			c.refuseCommand(err)
		} else {
			c.replyInt(0) // it is published later, and perhaps at another server
		}
	default:
		q := queuedCommand{k: k, args: args}
		c.readQueued(&q)
		outcomes := make([]*rpcv1.Outcome, len(q.ops))
		for i, op := range q.ops {
			outcomes[i] = host.Do(op)
		}
		for _, o := range outcomes {
			if q.by == nil && !o.Code.Meaning().Answer && o.Code != rpcv1.Outcome_WRONG_TYPE {
				q.err = engine.FailureOf(o)
				break
			}
		}
		c.replyQueued(&q, outcomes)
	}
	s.monitors.show("lua", k, args)
	return c.out
}

// publishFor notes a message of a script.
func publishFor(host engine.ScriptHost, args [][]byte) error {
	if err := checkChannel(args[1]); err != nil {
		return err
	}
	return host.Publish(&rpcv1.PublishedMessage{Channel: bytes.Clone(args[1]), Payload: bytes.Clone(args[2]), Sharded: isWord(args[0], "SPUBLISH")})
}

// uncallable is why a script may not call a command with these arguments; empty if it may.
func uncallable(k *command, args [][]byte) string {
	switch {
	case k == nil:
		return "ERR Unknown Redis command called from script"
	case !k.allowsArgs(len(args)):
		return "ERR Wrong number of args calling Redis command from script"
	case k.name == "time", k.name == "echo", k.name == "ping" && len(args) <= 2, k.needs == toPublish:
		return ""
	case k.kind.Traits().Set:
		return fmt.Sprintf("ERR '%s' cannot be called from a script: the members of a sorted set lie on several servers", k.name)
	case k.counted, k.reply == nil && k.together == nil:
		return fmt.Sprintf("ERR '%s' cannot be called from a script", k.name)
	}
	return ""
}
