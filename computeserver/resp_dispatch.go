package computeserver

import (
	"fmt"
	"strings"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// command is one RESP command.
type command struct {
	name  string // lower case
	arity int    // with the name itself, as in Redis: n = exactly n, -n = at least n
	run   func(c *respConn, args [][]byte)
	open  bool // may be used before AUTH
	data  bool // touches the index: refused while draining ends, and when data was lost
	now   bool // runs between MULTI and EXEC, too, where others are queued
	slot  int  // in tallies
}

// commands by name in upper case. The table is filled once and not changed.
var commands = map[string]*command{}

// commandNames are the names by slot.
var commandNames []string

func init() {
	for _, k := range []command{
		{name: "get", arity: 2, run: (*respConn).cmdGet, data: true},
		{name: "set", arity: -3, run: (*respConn).cmdSet, data: true},
		{name: "setnx", arity: 3, run: (*respConn).cmdSetNX, data: true},
		{name: "del", arity: -2, run: (*respConn).cmdDel, data: true},
		{name: "unlink", arity: -2, run: (*respConn).cmdDel, data: true},
		{name: "exists", arity: -2, run: (*respConn).cmdExists, data: true},
		{name: "mget", arity: -2, run: (*respConn).cmdMGet, data: true},
		{name: "mset", arity: -3, run: (*respConn).cmdMSet, data: true},
		{name: "range", arity: -3, run: (*respConn).cmdRange, data: true},
		{name: "scan", arity: -2, run: (*respConn).cmdScan, data: true},
		{name: "dbsize", arity: 1, run: (*respConn).cmdDBSize, data: true},
		{name: "ping", arity: -1, run: (*respConn).cmdPing},
		{name: "echo", arity: 2, run: (*respConn).cmdEcho},
		{name: "info", arity: -1, run: (*respConn).cmdInfo},
		{name: "time", arity: 1, run: (*respConn).cmdTime},
		{name: "select", arity: 2, run: (*respConn).cmdSelect},
		{name: "command", arity: -1, run: (*respConn).cmdCommand},
		{name: "client", arity: -2, run: (*respConn).cmdClient},
		{name: "config", arity: -2, run: (*respConn).cmdConfig},
		{name: "hello", arity: -1, run: (*respConn).cmdHello, open: true},
		{name: "auth", arity: -2, run: (*respConn).cmdAuth, open: true},
		{name: "quit", arity: -1, run: (*respConn).cmdQuit, open: true, now: true},
		{name: "reset", arity: 1, run: (*respConn).cmdReset, open: true, now: true},
		{name: "multi", arity: 1, run: (*respConn).cmdMulti, now: true},
		{name: "exec", arity: 1, run: (*respConn).cmdExec, now: true},
		{name: "discard", arity: 1, run: (*respConn).cmdDiscard, now: true},
		{name: "watch", arity: -2, run: (*respConn).cmdWatch, now: true},
		{name: "unwatch", arity: 1, run: (*respConn).cmdUnwatch},
	} {
		k.slot = len(commandNames)
		commandNames = append(commandNames, k.name)
		commands[strings.ToUpper(k.name)] = &k
	}
	commandNames = append(commandNames, "unknown")
}

const longestCommand = 16

// lookupCommand finds a command by its name in any case, without allocating.
func lookupCommand(name []byte) *command {
	var upper [longestCommand]byte
	if len(name) > len(upper) {
		return nil
	}
	for i, b := range name {
		if b >= 'a' && b <= 'z' {
			b -= 'a' - 'A'
		}
		upper[i] = b
	}
	return commands[string(upper[:len(name)])]
}

// dispatch runs one command and appends its reply.
func (c *respConn) dispatch(args [][]byte) {
	k := lookupCommand(args[0])
	if k == nil {
		c.tally.slot = len(commandNames) - 1
		switch {
		case isHTTP(args[0]):
			c.endHTTP()
		case !c.authed:
			c.reject("NOAUTH Authentication required.")
		default:
			c.reject(unknownCommand(args))
		}
		return
	}
	c.tally.slot = k.slot
	switch {
	case k.arity > 0 && len(args) != k.arity || len(args) < -k.arity:
		if k.name == "exec" {
			c.multi = transaction{}
			c.replyError("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")
			return
		}
		c.reject("ERR wrong number of arguments for '" + k.name + "' command")
	case !c.authed && !k.open:
		c.reject("NOAUTH Authentication required.")
	case c.multi.begun && !k.now:
		c.queue()
	default:
		if k.data && !c.mayServe() {
			return
		}
		c.who.last.Store(k)
		k.run(c, args)
	}
}

// mayServe refuses commands while nothing may be answered.
func (c *respConn) mayServe() bool {
	if err := c.s.core.blocked(); err != nil {
		c.fail(err)
		return false
	}
	if c.refuse {
		c.replyError("UNAVAILABLE this server is shutting down; connect again")
		return false
	}
	return true
}

// unknownCommand is the error of Redis, which shows some 128 bytes of the arguments.
func unknownCommand(args [][]byte) string {
	const most = 128
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= most {
			break
		}
		fmt.Fprintf(&b, "'%s' ", a[:min(len(a), most-b.Len())])
	}
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", args[0][:min(len(args[0]), most)], b.String())
}

// The appenders of replies also count their kind.

func (c *respConn) replyError(text string) {
	c.out = redcon.AppendError(c.out, text)
	c.tally.count(outcomeError)
}

func (c *respConn) replyOK() {
	c.out = append(c.out, "+OK\r\n"...)
	c.tally.count(outcomeOK)
}

func (c *respConn) replyInt(n int64) {
	c.out = redcon.AppendInt(c.out, n)
	c.tally.count(outcomeOK)
}

func (c *respConn) replyBulk(b []byte) {
	if len(b) > respBuffer {
		if err := c.room(len(b)); err != nil {
			c.fail(err)
			return
		}
	}
	c.out = redcon.AppendBulk(c.out, b)
	c.tally.count(outcomeOK)
}

// replyNull is the reply "there is none".
func (c *respConn) replyNull() {
	c.out = c.appendNull(c.out)
	c.tally.count(outcomeMiss)
}

func (c *respConn) appendNull(b []byte) []byte {
	if c.resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// fail replies an error of the index or of routing.
func (c *respConn) fail(err error) {
	o := outcomeOf(err)
	c.out = appendFailure(c.out, o)
	c.tally.count(outcomeError)
}

// appendFailure appends an outcome that is no plain answer.
func appendFailure(b []byte, o *rpcv1.Outcome) []byte {
	return redcon.AppendError(b, prefix(o.Code)+o.Message)
}
