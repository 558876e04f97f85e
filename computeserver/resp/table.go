package resp

import (
	"cmp"
	"fmt"
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
	usage string // its arguments, for people
	does  string // what it is answered: the manual's table, and COMMAND DOCS
	arity int    // with the name itself, as in Redis: n = exactly n, -n = at least n
	keys  keysAt
	// The operation on each key, which says what rights the user needs; unset if no argument is a
	// key. Where the operation stores a value, that is the argument value, or the one behind the
	// key.
	kind  rpcv1.Operation_Kind
	value int
	// list is the first of the arguments that together are the operation's value, a list; 0 = none
	// are.
	list  int
	reply reply
	// Of a command that several operations do, one on each key, how it is replied behind EXEC; nil
	// if it cannot stand between MULTI and EXEC, unless it has a reply.
	together replyAll
	// read reads the arguments behind the key into op, which may become another operation; nil if
	// the arguments are all that the operation needs. It returns the reply, or an error of the
	// command as it is replied.
	read func(args [][]byte, op *rpcv1.Operation, by reply) (reply, error)
	run  func(c *conn, args [][]byte)

	counted bool // its keys are behind an argument that says how many: EVAL
	bySum   bool // its script is named by its sum
	subs    bool // its first argument is a subcommand, of which HELP is one
	paired  bool // pairs of keys and values are behind an argument that says how many: MSETEX

	open  bool  // may be used before AUTH
	data  bool  // touches the index: refused while draining ends, and when data was lost
	now   bool  // runs between MULTI and EXEC, too, where others are queued
	queue bool  // may be queued there, and does not touch the index
	needs right // beside those of kind
	// may be used in RESP2 by a connection that has subscriptions
	listening bool
	slot      int // in tallies

	single bool          // keys is oneKey
	is     *rpcv1.Traits // of kind
}

// keysAt says which arguments are keys: from first to last, each step-th. A negative last counts
// from the end. With step 0 none is.
type keysAt struct{ first, last, step int }

// lastKey is the last argument that is a key, of a command with so many arguments.
func (k keysAt) lastKey(args int) int {
	if k.last < 0 {
		return args + k.last
	}
	return min(k.last, args-1)
}

// fullName is the name, with that of the subcommand where there are such, as Redis writes it.
func (k *command) fullName(args [][]byte) string {
	if k.subs && len(args) > 1 {
		return k.name + "|" + strings.ToLower(fmt.Sprintf("%.64s", args[1]))
	}
	return k.name
}

var (
	oneKey   = keysAt{1, 1, 1}
	allKeys  = keysAt{1, -1, 1}
	keyPairs = keysAt{1, -1, 2}
	twoKeys  = keysAt{1, 2, 1}
	subKey   = keysAt{2, 2, 1}
)

// allowsArgs reports whether the command may have so many arguments, its name included.
func (k *command) allowsArgs(args int) bool {
	return args == k.arity || k.arity < 0 && args >= -k.arity
}

// isOneOperation reports whether the command with so many arguments, its name included, is one
// operation on the key that is its first argument.
func (k *command) isOneOperation(args int) bool {
	return k.reply != nil && (k.single || args == 2) && k.allowsArgs(args)
}

// commands by name in upper case. The table is filled once and not changed.
var commands = map[string]*command{}

// Those that are asked for most.
var getCommand, setCommand, zaddCommand, zincrbyCommand *command

// CommandNames are the names by slot.
var CommandNames []string

func init() {
	for _, k := range []command{
		{name: "get", usage: "key", does: "the value, or null",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_LOOKUP, reply: replyValue},
		{name: "set", usage: "key value [NX|XX|IFEQ old|IFNE old] [GET] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]",
			does:  "`OK`; null where the condition did not hold: the key is not there (`NX`), is there (`XX`), has the value `old` (`IFEQ`: a missing key has none), has not (`IFNE`: a missing key is made). With `GET` the value that the key had, or null. `EX` and its like say when the pair expires, `KEEPTTL` that it does when it did",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_UPSERT, reply: replyDone, read: setOptions},
		{name: "setnx", usage: "key value", does: "1, or 0 if the key is there",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_INSERT, reply: replyCount},
		{name: "getset", usage: "key value", does: "the value that the key had, or null",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_EXCHANGE, reply: replyOld},
		{name: "getdel", usage: "key", does: "the value that the key had, or null; the key is deleted",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_REMOVE, reply: replyOld},
		{name: "setex", usage: "key seconds value", does: "as `SET key value EX seconds`",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_STORE, value: 3, reply: replyDone, read: readSetEx},
		{name: "psetex", usage: "key ms value", does: "as `SET key value PX ms`",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_STORE, value: 3, reply: replyDone, read: readSetPx},
		{name: "getex", usage: "key [EX s|PX ms|EXAT s|PXAT ms|PERSIST]", does: "the value, or null; the pair expires then, or with `PERSIST` it does not",
			arity: -2, keys: oneKey, kind: rpcv1.Operation_TOUCH, reply: replyValue, read: getExOptions},
		{name: "expire", usage: "key seconds [NX|XX|GT|LT]", does: "1: the pair expires after so long, or is gone if that is no time. 0 if the key is not there, or where it expires already (`NX`), does not (`XX`), does not earlier (`GT`), does not later (`LT`)",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_EXPIRE, reply: replyCount, read: expires(rpcv1.Operation_AFTER, inSeconds, "expire")},
		{name: "pexpire", usage: "key ms [NX|XX|GT|LT]", does: "as `EXPIRE`",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_EXPIRE, reply: replyCount, read: expires(rpcv1.Operation_AFTER, inMillis, "pexpire")},
		{name: "expireat", usage: "key s [NX|XX|GT|LT]", does: "as `EXPIRE`; seconds since 1970",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_EXPIRE, reply: replyCount, read: expires(rpcv1.Operation_AT, inSeconds, "expireat")},
		{name: "pexpireat", usage: "key ms [NX|XX|GT|LT]", does: "as `EXPIRE`; milliseconds since 1970",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_EXPIRE, reply: replyCount, read: expires(rpcv1.Operation_AT, inMillis, "pexpireat")},
		{name: "persist", usage: "key", does: "1: the pair does not expire any more. 0 if it did not, or is not there",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_EXPIRE, reply: replyCount, read: persists},
		{name: "ttl", usage: "key", does: "the seconds until the pair expires; -1 if it does not, -2 if it is not there",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_DEADLINE, reply: replySeconds, read: asksLeft},
		{name: "pttl", usage: "key", does: "as `TTL`, in milliseconds",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_DEADLINE, reply: replyMillis, read: asksLeft},
		{name: "expiretime", usage: "key", does: "as `TTL`; seconds since 1970",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_DEADLINE, reply: replySeconds, read: asksDeadline},
		{name: "pexpiretime", usage: "key", does: "as `TTL`; milliseconds since 1970",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_DEADLINE, reply: replyMillis, read: asksDeadline},
		{name: "strlen", usage: "key", does: "how long the value is; 0 if the key is not there",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_LOOKUP, reply: replyLength},
		{name: "getrange", usage: "key start end", does: "the value's bytes from `start` to `end`, both inclusive; negative ones count from its end",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_LOOKUP, reply: replyValue, read: readsPart},
		{name: "substr", usage: "key start end", does: "as `GETRANGE`",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_LOOKUP, reply: replyValue, read: readsPart},
		{name: "type", usage: "key", does: "`string`, `hash`, `zset`, or `none` if the key is not there",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_LOOKUP, run: (*conn).cmdType},
		{name: "object", usage: "ENCODING|IDLETIME|REFCOUNT|FREQ key", does: "how Redis would store the value that was set, 0, 1 and an error: what is asked for, and how often, is not noted. Null if the key is not there",
			arity: -2, keys: subKey, kind: rpcv1.Operation_LOOKUP, run: (*conn).cmdObject, subs: true},
		{name: "memory", usage: "USAGE key [SAMPLES n]", does: "the bytes of key and value, or null",
			arity: -2, keys: subKey, kind: rpcv1.Operation_LOOKUP, run: (*conn).cmdMemory, subs: true},
		{name: "incr", usage: "key", does: "the value, an integer of 64 bits, plus 1. A missing key is 0",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_INCREMENT, reply: replyNumber, read: addsOne},
		{name: "decr", usage: "key", does: "as `INCR`, minus 1",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_INCREMENT, reply: replyNumber, read: addsMinusOne},
		{name: "incrby", usage: "key number", does: "as `INCR`, plus the number",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_INCREMENT, reply: replyNumber, read: readNumber},
		{name: "decrby", usage: "key number", does: "as `INCR`, minus the number",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_INCREMENT, reply: replyNumber, read: readNegated},
		{name: "incrbyfloat", usage: "key number", does: "the value, a decimal number, plus the number, to 17 digits behind the point. A missing key is 0",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_INCREMENT_FLOAT, reply: replyValue, read: readValue},
		{name: "append", usage: "key value", does: "how long the value is with this one behind it. A missing key is empty",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_APPEND, reply: replyNumber, read: readValue},
		{name: "setrange", usage: "key offset value", does: "how long the value is with this one from the offset on. A shorter one is continued with zeros",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_SET_RANGE, reply: replyNumber, read: readNumber},
		{name: "hset", usage: "key field value [field value ...]", does: "how many fields were not there. [Hashes](#hashes) are for indexes with `spec.expiry: Enabled`, and as long as a value",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_HASH_SET, list: 2, reply: replyNumber, read: setsFields("hset")},
		{name: "hmset", usage: "key field value [field value ...]", does: "`OK`",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_HASH_SET, list: 2, reply: replyDone, read: setsFields("hmset")},
		{name: "hsetnx", usage: "key field value", does: "1, or 0 if the field is there",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_HASH_SET, list: 2, reply: replyNumber, read: setsAbsentField},
		{name: "hget", usage: "key field", does: "the field's value, or null",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_HASH_GET, reply: replyValue, read: readsField},
		{name: "hmget", usage: "key field [field ...]", does: "the fields' values, null for each that is not there",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyHash, read: readsFields},
		{name: "hgetall", usage: "key", does: "fields and values, in the order in which the fields came",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyHash},
		{name: "hkeys", usage: "key", does: "the fields",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyNames},
		{name: "hvals", usage: "key", does: "the values",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyValues},
		{name: "hlen", usage: "key", does: "how many fields there are",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyFields},
		{name: "hexists", usage: "key field", does: "1, or 0 if the field is not there",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_HASH_GET, reply: replyCount, read: readsField},
		{name: "hstrlen", usage: "key field", does: "how long the field's value is; 0 if it is not there",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_HASH_GET, reply: replyLength, read: readsField},
		{name: "hdel", usage: "key field [field ...]", does: "how many fields were there and are deleted. The key goes with its last field",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_HASH_DELETE, list: 2, reply: replyNumber},
		{name: "hincrby", usage: "key field number", does: "the field's value, an integer of 64 bits, plus the number. A missing one is 0",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_HASH_INCREMENT, reply: replyNumber, read: addsToField},
		{name: "hincrbyfloat", usage: "key field number", does: "as `HINCRBY`, of a decimal number",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_HASH_INCREMENT_FLOAT, reply: replyValue, read: addsFloatToField},
		{name: "hscan", usage: "key cursor [MATCH pattern] [COUNT n]", does: "the cursor 0, and all fields that match with their values",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyHash, read: scansFields},
		{name: "hrandfield", usage: "key [count [WITHVALUES]]", does: "a field, or null. With `count` up to so many different ones, or if it is negative so many that may be the same",
			arity: -2, keys: oneKey, kind: rpcv1.Operation_HASH_READ, reply: replyHash, read: choosesFields},
		{name: "zadd", usage: "key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]", does: "how many members were not there; with `CH` how many are new or have another score, with `INCR` the member's score, or null. [Sorted sets](#sorted-sets) are for indexes with `spec.expiry: Enabled`, and as large as the index",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_SET_SWAP_HEAD, run: (*conn).cmdZAdd},
		{name: "zincrby", usage: "key number member", does: "the member's score, plus the number",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_SET_SWAP_HEAD, run: (*conn).cmdZIncrBy},
		{name: "zscore", usage: "key member", does: "the member's score, or null",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZScore},
		{name: "zmscore", usage: "key member [member ...]", does: "the members' scores, null for each that is not there",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZMScore},
		{name: "zrem", usage: "key member [member ...]", does: "how many were there and are removed. The key goes with its last member",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_SET_SWAP_HEAD, run: (*conn).cmdZRem},
		{name: "zcard", usage: "key", does: "how many members there are. It **reads all of them**",
			arity: 2, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZCard},
		{name: "zcount", usage: "key min max", does: "how many members have a score of the range, all of which it reads",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZCount},
		{name: "zrank", usage: "key member [WITHSCORE]", does: "how many members stand before it, or null. It **reads all of them**",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZRank},
		{name: "zrevrank", usage: "key member [WITHSCORE]", does: "as `ZRANK`, from the highest score on",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZRevRank},
		{name: "zrange", usage: "key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]", does: "members in the order of their scores. What lies before `start`, or the offset, is read as well",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZRange},
		{name: "zrevrange", usage: "key start stop [WITHSCORES]", does: "as `ZRANGE` with `REV`",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZRevRange},
		{name: "zrangebyscore", usage: "key min max [WITHSCORES] [LIMIT offset count]", does: "as `ZRANGE` with `BYSCORE`",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZRangeByScore},
		{name: "zrevrangebyscore", usage: "key max min [WITHSCORES] [LIMIT offset count]", does: "as `ZRANGE` with `BYSCORE` and `REV`",
			arity: -4, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZRevRangeByScore},
		{name: "zpopmin", usage: "key [count]", does: "up to `count` members with the lowest scores, which are removed, one after the other",
			arity: -2, keys: oneKey, kind: rpcv1.Operation_SET_SWAP_HEAD, run: (*conn).cmdZPopMin},
		{name: "zpopmax", usage: "key [count]", does: "as `ZPOPMIN`, with the highest scores",
			arity: -2, keys: oneKey, kind: rpcv1.Operation_SET_SWAP_HEAD, run: (*conn).cmdZPopMax},
		{name: "zremrangebyscore", usage: "key min max", does: "how many members had a score of the range and are removed, one after the other",
			arity: 4, keys: oneKey, kind: rpcv1.Operation_SET_SWAP_HEAD, run: (*conn).cmdZRemRangeByScore},
		{name: "zscan", usage: "key cursor [MATCH pattern] [COUNT n]", does: "as `SCAN`, of members with their scores",
			arity: -3, keys: oneKey, kind: rpcv1.Operation_SET_HEAD, run: (*conn).cmdZScan},
		{name: "del", usage: "key [key ...]", does: "how many were there and are deleted",
			arity: -2, keys: allKeys, kind: rpcv1.Operation_DELETE, reply: replyCount, together: countAll, run: (*conn).cmdDel},
		{name: "unlink", usage: "key [key ...]", does: "as `DEL`",
			arity: -2, keys: allKeys, kind: rpcv1.Operation_DELETE, reply: replyCount, together: countAll, run: (*conn).cmdDel},
		{name: "delex", usage: "key [IFEQ old|IFNE old]", does: "1, or 0 if the key is not there, or the condition does not hold",
			arity: -2, keys: oneKey, kind: rpcv1.Operation_REMOVE, reply: replyCount, read: delOptions},
		{name: "delifeq", usage: "key old", does: "as `DELEX key IFEQ old`",
			arity: 3, keys: oneKey, kind: rpcv1.Operation_REMOVE, reply: replyCount, read: delIfEqual},
		{name: "exists", usage: "key [key ...]", does: "how many are there; a key that is named twice counts twice",
			arity: -2, keys: allKeys, kind: rpcv1.Operation_LOOKUP, together: countAll, run: (*conn).cmdExists},
		{name: "touch", usage: "key [key ...]", does: "as `EXISTS`",
			arity: -2, keys: allKeys, kind: rpcv1.Operation_LOOKUP, together: countAll, run: (*conn).cmdExists},
		{name: "mget", usage: "key [key ...]", does: "the values, null for each that is not there. **Not atomic** but in a transaction: see [Several keys](#several-keys)",
			arity: -2, keys: allKeys, kind: rpcv1.Operation_LOOKUP, together: valuesOfAll, run: (*conn).cmdMGet},
		{name: "mset", usage: "key value [key value ...]", does: "`OK`. **Not atomic**, as `MGET`",
			arity: -3, keys: keyPairs, kind: rpcv1.Operation_UPSERT, together: doneAll, run: (*conn).cmdMSet},
		{name: "msetnx", usage: "key value [key value ...]", does: "1, or 0 and nothing is stored if one of the keys is there; in one step, as a [transaction](#transactions): on keys of one server",
			arity: -3, keys: keyPairs, kind: rpcv1.Operation_INSERT, run: (*conn).cmdMSetNX},
		{name: "msetex", usage: "numkeys key value [key value ...] [NX|XX] [EX s|PX ms|EXAT s|PXAT ms|KEEPTTL]", does: "1; 0 and nothing is stored if one of the keys is there (`NX`), or is not (`XX`); in one step, as `MSETNX`. The deadline is that of all of them, as `SET` has it. With `XX` a key with a sorted set is refused",
			arity: -4, kind: rpcv1.Operation_STORE, paired: true, run: (*conn).cmdMSetEx},
		{name: "rename", usage: "key newkey", does: "`OK`: the pair has another key, with its type and deadline. What that key had is gone. In one step, as a [transaction](#transactions): of keys of one server. The user needs the rights to read and to write both. Sorted sets are refused",
			arity: 3, keys: twoKeys, kind: rpcv1.Operation_EXCHANGE, run: (*conn).cmdRename},
		{name: "renamenx", usage: "key newkey", does: "as `RENAME`: 1, or 0 and nothing is done if the other key is there",
			arity: 3, keys: twoKeys, kind: rpcv1.Operation_EXCHANGE, run: (*conn).cmdRename},
		{name: "copy", usage: "key newkey [DB 0] [REPLACE]", does: "as `RENAMENX`, and the first key keeps its pair; with `REPLACE` what the other key had is gone. 0 as well if the first key is not there",
			arity: -3, keys: twoKeys, kind: rpcv1.Operation_EXCHANGE, run: (*conn).cmdCopy},
		{name: "range", usage: "start end [LIMIT n] [REV]", does: "key, value, key, value, ... in order. `start` is inclusive, `end` exclusive; an empty one is unbounded. `REV` goes from `end` downwards",
			arity: -3, run: (*conn).cmdRange, data: true, needs: toReadRange},
		{name: "scan", usage: "cursor [MATCH pattern] [COUNT n] [TYPE type]", does: "keys in order, each at least once if it stays, and more than once only where others came meanwhile. Patterns are those of Redis (`*`, `?`, `[a-z]`, `[^a]`, `\\`), over bytes. A step may give fewer keys than there are, or none: go on until the cursor is 0",
			arity: -2, run: (*conn).cmdScan, data: true},
		{name: "keys", usage: "pattern", does: "the keys that match, in order; at most what one reply takes, and an error where more than 1,000,000 keys would be looked at: use `SCAN`",
			arity: 2, run: (*conn).cmdKeys, data: true},
		{name: "randomkey", does: "some key, or null. Not each comes equally often: it is one behind a random place between the first key and the last one",
			arity: 1, run: (*conn).cmdRandomKey, data: true, needs: toReadAll},
		{name: "flushdb", usage: "[ASYNC|SYNC]", does: "`OK`; all keys are deleted, in their order. **Not atomic**: others see it half done, and keys that are written meanwhile may stay. It ends after 5 s with an error that says how many were deleted: send it again until it is `OK`",
			arity: -1, run: (*conn).cmdFlush, data: true, needs: toChangeAll},
		{name: "flushall", usage: "[ASYNC|SYNC]", does: "as `FLUSHDB`",
			arity: -1, run: (*conn).cmdFlush, data: true, needs: toChangeAll},
		{name: "dbsize", does: "how many keys there are, counted by a scan over all of them, at most 50 million, at most once a second. A server counts once at a time: who asks meanwhile gets that count, which may have begun before the program's last write",
			arity: 1, run: (*conn).cmdDBSize, data: true, needs: toReadAll},
		{name: "ping", usage: "[text]", does: "`PONG`, or the text", arity: -1, run: (*conn).cmdPing, queue: true, listening: true},
		{name: "echo", usage: "text", does: "the text", arity: 2, run: (*conn).cmdEcho, queue: true},
		{name: "info", usage: "[section ...]", does: "what the server is and does, in lines. `used_memory` is the process's own, whose pairs lie in memory servers. `db0:keys=` is the last count; `INFO keyspace` counts, as `DBSIZE`", arity: -1, run: (*conn).cmdInfo},
		{name: "role", does: "`master`: each server takes writes, and has no replicas", arity: 1, run: (*conn).cmdRole},
		{name: "time", does: "seconds since 1970, and microseconds", arity: 1, run: (*conn).cmdTime, queue: true},
		{name: "select", usage: "0", does: "`OK`. An index is one database: another number is refused, and then every command of the connection that touches the index, also those of the same pipeline, until `SELECT 0` or `RESET`. So what was meant for another database never changes this one",
			arity: 2, run: (*conn).cmdSelect},
		{name: "command", usage: "[COUNT|DOCS [name ...]|GETKEYS command|INFO [name ...]|LIST]", does: "these commands", arity: -1, run: (*conn).cmdCommand, subs: true},
		{name: "client", usage: "SETNAME|GETNAME|ID|INFO|LIST|KILL|SETINFO|NO-EVICT|NO-TOUCH|REPLY|CAPA|MAINT_NOTIFICATIONS|TRACKING|CACHING|GETREDIR", does: "as in Redis, as far as clients and tools need it. With `TRACKING` every pipeline that touches the index is followed by the message that no key is valid, so a client keeps nothing; `BCAST` and `REDIRECT` are refused", arity: -2, run: (*conn).cmdClient, subs: true},
		{name: "config", usage: "GET pattern [pattern ...]", does: "some settings that clients ask for to start", arity: -2, run: (*conn).cmdConfig, subs: true},
		{name: "hello", usage: "[2|3] [AUTH user password] [SETNAME name]", does: "as in Redis", arity: -1, run: (*conn).cmdHello, open: true},
		{name: "acl", usage: "WHOAMI", does: "the user of the connection", arity: -2, run: (*conn).cmdACL, subs: true},
		{name: "auth", usage: "[user] password", does: "`OK`: [users](security.md#users) and their passwords; that of the user `default` is in the Secret `<index>-conn`. Where the user `default` has no password, `AUTH default x` is `OK` with any, and `AUTH x` the error of Redis",
			arity: -2, run: (*conn).cmdAuth, open: true},
		{name: "quit", does: "`OK`, and the connection ends", arity: -1, run: (*conn).cmdQuit, open: true, now: true, listening: true},
		{name: "reset", does: "`RESET`; the connection is as a new one", arity: 1, run: (*conn).cmdReset, open: true, now: true, listening: true},
		{name: "multi", does: "`OK`. The commands behind it are answered `QUEUED`, and done by `EXEC` in one step: see [Transactions](#transactions)",
			arity: 1, run: (*conn).cmdMulti, now: true},
		{name: "exec", does: "the answers of the commands that were queued; null, and nothing was done, where a watched key has changed; `EXECABORT` where a command was refused",
			arity: 1, run: (*conn).cmdExec, now: true},
		{name: "discard", does: "`OK`; nothing was done", arity: 1, run: (*conn).cmdDiscard, now: true},
		{name: "watch", usage: "key [key ...]", does: "`OK`. `EXEC` does nothing if one of the keys has another value, type or deadline by then",
			arity: -2, keys: allKeys, kind: rpcv1.Operation_DIGEST, run: (*conn).cmdWatch, now: true},
		{name: "unwatch", does: "`OK`; no key is watched any more", arity: 1, run: (*conn).cmdUnwatch, queue: true},
		{name: "eval", usage: "script numkeys [key ...] [arg ...]", does: "what the script in Lua returns: see [Scripts](#scripts)",
			arity: -3, kind: rpcv1.Operation_SCRIPT, counted: true, run: (*conn).cmdEval},
		{name: "evalsha", usage: "sum numkeys [key ...] [arg ...]", does: "as `EVAL`, of a script that this server has been sent; else `NOSCRIPT`",
			arity: -3, kind: rpcv1.Operation_SCRIPT, counted: true, bySum: true, run: (*conn).cmdEval},
		{name: "eval_ro", usage: "script numkeys [key ...] [arg ...]", does: "as `EVAL`; the script changes nothing",
			arity: -3, kind: rpcv1.Operation_SCRIPT_READ, counted: true, run: (*conn).cmdEval},
		{name: "evalsha_ro", usage: "sum numkeys [key ...] [arg ...]", does: "as `EVALSHA`; the script changes nothing",
			arity: -3, kind: rpcv1.Operation_SCRIPT_READ, counted: true, bySum: true, run: (*conn).cmdEval},
		{name: "subscribe", usage: "channel [channel ...]", does: "for each channel how many subscriptions there are; then [messages](#messages)",
			arity: -2, run: (*conn).cmdSubscribe, queue: true, listening: true, needs: toHear},
		{name: "unsubscribe", usage: "[channel ...]", does: "for each channel, or for all of the connection, how many subscriptions are left",
			arity: -1, run: (*conn).cmdUnsubscribe, queue: true, listening: true},
		{name: "psubscribe", usage: "pattern [pattern ...]", does: "as `SUBSCRIBE`, to all channels that match a pattern as of `SCAN`",
			arity: -2, run: (*conn).cmdPSubscribe, queue: true, listening: true, needs: toHearByPatterns},
		{name: "punsubscribe", usage: "[pattern ...]", does: "as `UNSUBSCRIBE`, of patterns",
			arity: -1, run: (*conn).cmdPUnsubscribe, queue: true, listening: true},
		{name: "publish", usage: "channel message", does: "how many subscribers **of this server** get the message; those of the other servers get it too, and are not counted. Commands of the pipeline before it are done, and durable, first",
			arity: 3, run: (*conn).cmdPublish, queue: true, needs: toPublish},
		{name: "pubsub", usage: "CHANNELS [pattern]|NUMSUB [channel ...]|NUMPAT|SHARDCHANNELS [pattern]|SHARDNUMSUB [channel ...]", does: "of all servers: the channels with subscribers that the user may use, in order; each channel with how many have subscribed to it; how many patterns have subscribers, where one at two servers counts twice. A server that does not answer within a second is left out",
			arity: -2, run: (*conn).cmdPubSub, subs: true, queue: true, needs: toUseChannels},
		{name: "ssubscribe", usage: "channel [channel ...]", does: "as `SUBSCRIBE`, to channels of `SPUBLISH`, which are others than those of `PUBLISH`",
			arity: -2, run: (*conn).cmdSSubscribe, queue: true, listening: true, needs: toHear},
		{name: "sunsubscribe", usage: "[channel ...]", does: "as `UNSUBSCRIBE`, of channels of `SPUBLISH`",
			arity: -1, run: (*conn).cmdSUnsubscribe, queue: true, listening: true},
		{name: "spublish", usage: "channel message", does: "as `PUBLISH`, to those who have subscribed with `SSUBSCRIBE`. All servers have all channels: no slot decides, and no pattern matches",
			arity: 3, run: (*conn).cmdPublish, queue: true, needs: toPublish},
		{name: "slowlog", usage: "GET [count]|LEN|RESET", does: "the last pipelines of this server that took long, 10 ms or as the setting `slowLogMicroseconds` says, at most 128, the last one first: number, when, microseconds, arguments, address and name of the client. Of a pipeline of several commands the first one is shown",
			arity: -2, run: (*conn).cmdSlowLog, subs: true, queue: true, needs: toReadAll},
		{name: "monitor", does: "`OK`, and then a line for each command that this server runs, as in Redis: see [Monitors](#monitors)",
			arity: 1, run: (*conn).cmdMonitor, queue: true, needs: toSeeAll},
		{name: "latency", usage: "DOCTOR|HISTORY event|LATEST|RESET [event ...]", does: "no events, as of a Redis that watches none; `DOCTOR` says what to look at instead",
			arity: -2, run: (*conn).cmdLatency, subs: true, queue: true},
		{name: "script", usage: "LOAD script|EXISTS sum [sum ...]|FLUSH [ASYNC|SYNC]|KILL", does: "the script's sum; 1 for each script that this server has, else 0; `OK`, for users who may read and write every key; `NOTBUSY`: a script ends by itself",
			arity: -2, run: (*conn).cmdScript, subs: true},
	} {
		k.slot = len(CommandNames)
		k.value = cmp.Or(k.value, 2)
		k.single, k.is = k.keys == oneKey, k.kind.Traits()
		k.data = k.data || k.kind.Known()
		if k.subs {
			k.run = withHelp(&k, k.run)
		}
		CommandNames = append(CommandNames, k.name)
		commands[strings.ToUpper(k.name)] = &k
	}
	CommandNames = append(CommandNames, "unknown")
	getCommand, setCommand = commands["GET"], commands["SET"]
	zaddCommand, zincrbyCommand = commands["ZADD"], commands["ZINCRBY"]
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
