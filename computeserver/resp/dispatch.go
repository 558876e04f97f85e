package resp

import (
	"fmt"
	"strings"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// command is one RESP command.
type command struct {
	name  string // lower case
	arity int    // with the name itself, as in Redis: n = exactly n, -n = at least n
	run   func(c *conn, args [][]byte)
	open  bool // may be used before AUTH
	data  bool // touches the index: refused while draining ends, and when data was lost
	now   bool // runs between MULTI and EXEC, too, where others are refused
	slot  int  // in tallies
	needs right
	keys  keysAt

	changes bool // it changes one key, if it has as many arguments as that takes
}

// keysAt says which arguments are keys: from first to last, each step-th. A negative last counts
// from the end. With step 0 none is.
type keysAt struct{ first, last, step int }

var (
	oneKey   = keysAt{1, 1, 1}
	allKeys  = keysAt{1, -1, 1}
	keyPairs = keysAt{1, -1, 2}
)

// onOneKey reports whether a command with so many arguments, its name included, reads or changes
// the one key that is its first argument.
func (k *command) onOneKey(args int) bool {
	switch k.name {
	case "get", "del", "unlink":
		return args == 2
	case "set":
		return args >= 3
	case "setnx":
		return args == 3
	}
	return false
}

// commands by name in upper case. The table is filled once and not changed.
var commands = map[string]*command{}

// Those that are asked for most.
var getCommand, setCommand *command

// CommandNames are the names by slot.
var CommandNames []string

func init() {
	for _, k := range []command{
		{name: "get", arity: 2, run: (*conn).cmdGet, data: true, needs: toRead, keys: oneKey},
		{name: "set", arity: -3, run: (*conn).cmdSet, data: true, needs: toWrite, keys: oneKey, changes: true},
		{name: "setnx", arity: 3, run: (*conn).cmdSetNX, data: true, needs: toWrite, keys: oneKey, changes: true},
		{name: "del", arity: -2, run: (*conn).cmdDel, data: true, needs: toWrite, keys: allKeys, changes: true},
		{name: "unlink", arity: -2, run: (*conn).cmdDel, data: true, needs: toWrite, keys: allKeys, changes: true},
		{name: "exists", arity: -2, run: (*conn).cmdExists, data: true, needs: toRead, keys: allKeys},
		{name: "mget", arity: -2, run: (*conn).cmdMGet, data: true, needs: toRead, keys: allKeys},
		{name: "mset", arity: -3, run: (*conn).cmdMSet, data: true, needs: toWrite, keys: keyPairs},
		{name: "range", arity: -3, run: (*conn).cmdRange, data: true, needs: toReadRange},
		{name: "scan", arity: -2, run: (*conn).cmdScan, data: true},
		{name: "dbsize", arity: 1, run: (*conn).cmdDBSize, data: true, needs: toReadAll},
		{name: "ping", arity: -1, run: (*conn).cmdPing},
		{name: "echo", arity: 2, run: (*conn).cmdEcho},
		{name: "info", arity: -1, run: (*conn).cmdInfo},
		{name: "time", arity: 1, run: (*conn).cmdTime},
		{name: "select", arity: 2, run: (*conn).cmdSelect},
		{name: "command", arity: -1, run: (*conn).cmdCommand},
		{name: "client", arity: -2, run: (*conn).cmdClient},
		{name: "config", arity: -2, run: (*conn).cmdConfig},
		{name: "hello", arity: -1, run: (*conn).cmdHello, open: true},
		{name: "acl", arity: -2, run: (*conn).cmdACL},
		{name: "auth", arity: -2, run: (*conn).cmdAuth, open: true},
		{name: "quit", arity: -1, run: (*conn).cmdQuit, open: true, now: true},
		{name: "reset", arity: 1, run: (*conn).cmdReset, open: true, now: true},
		{name: "multi", arity: 1, run: (*conn).cmdMulti, now: true},
		{name: "exec", arity: 1, run: (*conn).cmdExec, now: true},
		{name: "discard", arity: 1, run: (*conn).cmdDiscard, now: true},
		{name: "watch", arity: -2, run: (*conn).cmdWatch, now: true},
		{name: "unwatch", arity: 1, run: (*conn).cmdUnwatch},
	} {
		k.slot = len(CommandNames)
		CommandNames = append(CommandNames, k.name)
		commands[strings.ToUpper(k.name)] = &k
	}
	CommandNames = append(CommandNames, "unknown")
	getCommand, setCommand = commands["GET"], commands["SET"]
}

const longestCommand = 16

// lookupCommand finds a command by its name in any case, without allocating.
func lookupCommand(name []byte) *command {
	switch string(name) {
	case "GET":
		return getCommand
	case "SET":
		return setCommand
	}
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
func (c *conn) dispatch(p *pending) {
	k, args := p.k, p.args
	if k == nil {
		c.tally.Slot = len(CommandNames) - 1
		switch {
		case isHTTP(args[0]):
			c.endHTTP()
		case !c.authed():
			c.reject("NOAUTH Authentication required.")
		default:
			c.reject(unknownCommand(args))
		}
		return
	}
	c.tally.Slot = k.slot
	switch {
	case k.arity > 0 && len(args) != k.arity || len(args) < -k.arity:
		if k.name == "exec" {
			c.multi = transaction{}
			c.replyError("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")
			return
		}
		c.reject("ERR wrong number of arguments for '" + k.name + "' command")
	case !c.authed() && !k.open:
		c.reject("NOAUTH Authentication required.")
	case !c.mayRun(k, args):
		c.reject(noPermission(k, c.login.User()))
	case c.multi.begun && !k.now:
		c.reject(noTransactions)
	default:
		if k.data && !c.mayServe() {
			return
		}
		c.who.last.Store(k)
		k.run(c, args)
	}
}

// mayServe refuses commands while nothing may be answered.
func (c *conn) mayServe() bool {
	if err := c.s.core.Blocked(); err != nil {
		c.fail(err)
		return false
	}
	if c.refuse {
		c.replyError("UNAVAILABLE this server is shutting down; connect again")
		return false
	}
	if c.database != "" {
		c.replyError(fmt.Sprintf("ERR nothing is done on this connection: it asked for database %s, and an index is one database, 0; SELECT 0 goes on", c.database))
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

func (c *conn) replyError(text string) {
	c.out = redcon.AppendError(c.out, text)
	c.tally.Count(count.Error)
}

func (c *conn) replyOK() {
	c.out = append(c.out, "+OK\r\n"...)
	c.tally.Count(count.OK)
}

func (c *conn) replyInt(n int64) {
	c.out = redcon.AppendInt(c.out, n)
	c.tally.Count(count.OK)
}

func (c *conn) replyBulk(b []byte) {
	if len(b) > respBuffer {
		if err := c.room(len(b)); err != nil {
			c.fail(err)
			return
		}
	}
	c.out = redcon.AppendBulk(c.out, b)
	c.tally.Count(count.OK)
}

// replyNull is the reply "there is none".
func (c *conn) replyNull() {
	c.out = c.appendNull(c.out)
	c.tally.Count(count.Miss)
}

func (c *conn) appendNull(b []byte) []byte {
	if c.resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// fail replies an error of the index or of routing.
func (c *conn) fail(err error) {
	o := engine.OutcomeOf(err)
	c.out = c.appendFailure(c.out, o)
	c.tally.Count(count.Error)
}

// appendFailure appends an outcome that is no plain answer. Its message may name keys of others, as
// bounds of ranges: only a user that may read every key sees them.
func (c *conn) appendFailure(b []byte, o *rpcv1.Outcome) []byte {
	message := o.Message
	if u := c.login.User(); u == nil || !u.ReadsAll() {
		message = c.s.hide(message)
	}
	return redcon.AppendError(b, prefix(o.Code)+message)
}

// prefix is how a RESP error of this code begins.
func prefix(code rpcv1.Outcome_Code) string {
	switch code {
	case rpcv1.Outcome_POOL_FULL:
		return "POOLFULL "
	case rpcv1.Outcome_DATA_LOST:
		return "DATALOST "
	case rpcv1.Outcome_UNKNOWN:
		return "UNKNOWN "
	case rpcv1.Outcome_TIMED_OUT:
		return "TIMEOUT "
	case rpcv1.Outcome_UNAVAILABLE, rpcv1.Outcome_NOT_OWNER:
		return "UNAVAILABLE "
	}
	return "ERR "
}
