package resp

import (
	"strings"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// command is one RESP command: all that is to be known of it, but for what its operation is to the
// other servers (rpcv1.Traits) and to the index (engine.Run).
//
// A command with a reply is one operation if its arguments name one key. It is run by conn.one,
// looked ahead for, set aside where its key belongs to another server, and replied in the same way
// wherever it ran. Every other command is run by run.
type command struct {
	name  string // lower case
	arity int    // with the name itself, as in Redis: n = exactly n, -n = at least n
	keys  keysAt
	// The operation on each key, which says what rights the user needs; unset if no argument is a
	// key. Where the operation stores a value, that stands behind the key.
	kind  rpcv1.Operation_Kind
	reply reply
	// read reads the arguments behind the key into op, which may become another operation; nil if
	// the arguments are all that the operation needs. It returns the reply, or an error of the
	// command as it is replied.
	read func(args [][]byte, op *rpcv1.Operation, by reply) (reply, error)
	run  func(c *conn, args [][]byte)

	open  bool  // may be used before AUTH
	data  bool  // touches the index: refused while draining ends, and when data was lost
	now   bool  // runs between MULTI and EXEC, too, where others are refused
	needs right // beside those of kind
	slot  int   // in tallies
}

// keysAt says which arguments are keys: from first to last, each step-th. A negative last counts
// from the end. With step 0 none is.
type keysAt struct{ first, last, step int }

var (
	oneKey   = keysAt{1, 1, 1}
	allKeys  = keysAt{1, -1, 1}
	keyPairs = keysAt{1, -1, 2}
)

// takes reports whether the command may have so many arguments, its name included.
func (k *command) takes(args int) bool {
	return args == k.arity || k.arity < 0 && args >= -k.arity
}

// alone reports whether the command with so many arguments, its name included, is one operation on
// the key that is its first argument.
func (k *command) alone(args int) bool {
	return k.reply != nil && k.takes(args) && (k.keys == oneKey || args == 2)
}

// commands by name in upper case. The table is filled once and not changed.
var commands = map[string]*command{}

// Those that are asked for most.
var getCommand, setCommand *command

// CommandNames are the names by slot.
var CommandNames []string

func init() {
	for _, k := range []command{
		{name: "get", arity: 2, keys: oneKey, kind: rpcv1.Operation_LOOKUP, reply: replyValue},
		{name: "set", arity: -3, keys: oneKey, kind: rpcv1.Operation_UPSERT, reply: replyDone, read: setOptions},
		{name: "setnx", arity: 3, keys: oneKey, kind: rpcv1.Operation_INSERT, reply: replyCount},
		{name: "del", arity: -2, keys: allKeys, kind: rpcv1.Operation_DELETE, reply: replyCount, run: (*conn).cmdDel},
		{name: "unlink", arity: -2, keys: allKeys, kind: rpcv1.Operation_DELETE, reply: replyCount, run: (*conn).cmdDel},
		{name: "exists", arity: -2, keys: allKeys, kind: rpcv1.Operation_LOOKUP, run: (*conn).cmdExists},
		{name: "mget", arity: -2, keys: allKeys, kind: rpcv1.Operation_LOOKUP, run: (*conn).cmdMGet},
		{name: "mset", arity: -3, keys: keyPairs, kind: rpcv1.Operation_UPSERT, run: (*conn).cmdMSet},
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
		k.data = k.data || k.kind.Known()
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
