package resp

import (
	"fmt"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// Commands that say something of a pair, other than its value.

// typeNames are the types as TYPE says them.
var typeNames = map[expiry.Type]string{expiry.String: "string", expiry.Hash: "hash", expiry.SortedSet: "zset"}

// cmdType is TYPE.
func (c *conn) cmdType(args [][]byte) {
	o := c.inspect(rpcv1.Operation_LOOKUP, args[1])
	if o == nil {
		return
	}
	name := "none"
	switch o.Code {
	case rpcv1.Outcome_OK:
		name = typeNames[expiry.String]
	case rpcv1.Outcome_WRONG_TYPE:
		of, ok := c.typeOf(args[1])
		if !ok {
			return
		}
		name = of
	}
	c.out = redcon.AppendString(c.out, name)
	c.tally.Count(count.OK)
}

// typeOf is the type of a key that has no string; false if the failure has been replied.
func (c *conn) typeOf(key []byte) (string, bool) {
	switch o := c.inspect(rpcv1.Operation_HASH_READ, key); {
	case o == nil:
		return "", false
	case o.Code == rpcv1.Outcome_OK:
		return typeNames[expiry.Hash], true
	case o.Code == rpcv1.Outcome_WRONG_TYPE:
		return typeNames[expiry.SortedSet], true
	}
	return "none", true // it is gone
}

// replyLength is how long the value is.
func replyLength(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	return redcon.AppendInt(b, int64(len(o.Value)))
}

// readsPart is GETRANGE: the reply is a part of the value.
func readsPart(args [][]byte, _ *rpcv1.Operation, _ reply) (reply, error) {
	start, ok := engine.ParseInteger(args[2])
	end, also := engine.ParseInteger(args[3])
	if !ok || !also {
		return nil, errNotInteger
	}
	return func(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
		return redcon.AppendBulk(b, valuePart(o.Value, start, end))
	}, nil
}

// valuePart is what of a value lies from start to end, both inclusive. Negative ones count from the
// end of the value.
func valuePart(value []byte, start, end int64) []byte {
	n := int64(len(value))
	if start < 0 && end < 0 && start > end {
		return nil
	}
	from := func(at int64) int64 {
		if at < 0 {
			return max(at+n, 0)
		}
		return at
	}
	if start, end = from(start), min(from(end), n-1); start > end {
		return nil
	}
	return value[start : end+1]
}

// inspect returns what a read of the key is answered, wherever it belongs; nil if the failure has
// been replied. A lookup that finds a hash is WRONG_TYPE.
func (c *conn) inspect(kind rpcv1.Operation_Kind, key []byte) (found *rpcv1.Outcome) {
	n, err := c.multiKey(kind, [][]byte{key}, 1, func(o *rpcv1.Outcome) error { found = o; return nil })
	if err == nil && n.failed != nil {
		err = n.failure("")
	}
	if err != nil {
		c.fail(err)
		return nil
	}
	return found
}

// cmdObject is OBJECT. Nothing is known of when, and how often, a pair was asked for.
func (c *conn) cmdObject(args [][]byte) {
	sub := args[1]
	asks := isWord(sub, "ENCODING") || isWord(sub, "FREQ") || isWord(sub, "IDLETIME") || isWord(sub, "REFCOUNT")
	if !asks || len(args) != 3 {
		c.replyError(unknownSubcommand(sub, "ENCODING, FREQ, IDLETIME and REFCOUNT with a key"))
		return
	}
	o := c.inspect(rpcv1.Operation_LOOKUP, args[2])
	switch {
	case o == nil:
	case o.Code == rpcv1.Outcome_NOT_FOUND:
		c.replyNull()
	case isWord(sub, "ENCODING") && o.Code == rpcv1.Outcome_WRONG_TYPE:
		if of, ok := c.typeOf(args[2]); ok && of == typeNames[expiry.SortedSet] {
			c.replyBulk([]byte("skiplist"))
		} else if ok {
			c.replyBulk([]byte("listpack"))
		}
	case isWord(sub, "ENCODING"):
		c.replyBulk([]byte(encoding(o.Value)))
	case isWord(sub, "FREQ"):
		c.replyError("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")
	case isWord(sub, "IDLETIME"):
		c.replyInt(0)
	default:
		c.replyInt(1)
	}
}

// embeddable is how long a value is at most that Redis stores beside its key.
const embeddable = 44

// encoding is how Redis would store a value that was set.
func encoding(value []byte) string {
	if _, ok := engine.ParseInteger(value); ok {
		return "int"
	}
	if len(value) <= embeddable {
		return "embstr"
	}
	return "raw"
}

// cmdMemory is MEMORY USAGE key [SAMPLES n].
func (c *conn) cmdMemory(args [][]byte) {
	if !isWord(args[1], "USAGE") || len(args) != 3 && (len(args) != 5 || !isWord(args[3], "SAMPLES")) {
		c.replyError(unknownSubcommand(args[1], "USAGE key [SAMPLES n]"))
		return
	}
	if len(args) == 5 {
		switch n, ok := engine.ParseInteger(args[4]); {
		case !ok:
			c.replyError(errNotInteger.Error())
			return
		case n < 0:
			c.replyError(errSyntax.Error())
			return
		}
	}
	o := c.inspect(rpcv1.Operation_LOOKUP, args[2])
	if o != nil && o.Code == rpcv1.Outcome_WRONG_TYPE {
		o = c.inspect(rpcv1.Operation_HASH_READ, args[2])
	}
	switch {
	case o == nil:
	case o.Code == rpcv1.Outcome_WRONG_TYPE:
		c.replyError("ERR a sorted set lies on many servers, and is not measured; ZCARD counts its members")
	case o.Code != rpcv1.Outcome_OK:
		c.replyNull()
	default:
		c.replyInt(int64(len(args[2]) + len(o.Value)))
	}
}

// unknownSubcommand is the error of a subcommand that there is not, or that has other arguments.
func unknownSubcommand(sub []byte, possible string) string {
	return fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.64s'. Possible: %s.", sub, possible)
}

// cmdMSetNX is MSETNX: of one pair an insertion, of several a group, which is not done if one of
// the keys is there.
func (c *conn) cmdMSetNX(args [][]byte) {
	pairs := len(args) / 2
	switch {
	case len(args)%2 != 1:
		c.replyError("ERR wrong number of arguments for 'msetnx' command")
		return
	case pairs == 1:
		n, err := c.multiKey(rpcv1.Operation_INSERT, args[1:], 2, nil)
		if err == nil && n.failed != nil {
			err = n.failure("pairs were stored")
		}
		if err != nil {
			c.fail(err)
			return
		}
		c.replyInt(int64(n.done))
		return
	case 2*pairs > rpcv1.MaxGroup:
		c.replyError(fmt.Sprintf("ERR MSETNX has at most %d keys, and nothing was done; divide it", rpcv1.MaxGroup/2))
		return
	}
	c.storeAll(args, args[1:], &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT}, rpcv1.Operation_ABSENT)
}
