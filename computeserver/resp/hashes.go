package resp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/hash"
)

// Commands on hashes: their arguments behind the key, and their replies. A command that asks for
// more than one field, or for none, reads all of the hash, which is one value of the index. What is
// read of the arguments stays until the pipeline ends, as a reply may be made then.

// setsFields is HSET and HMSET, whose list of fields and values is command.list.
func setsFields(command string) func(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	return func(args [][]byte, _ *rpcv1.Operation, by reply) (reply, error) {
		if len(args)%2 != 0 {
			return nil, fmt.Errorf("ERR wrong number of arguments for '%s' command", command)
		}
		return by, nil
	}
}

// setsAbsentField is HSETNX.
func setsAbsentField(_ [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Condition = rpcv1.Operation_ABSENT
	return by, nil
}

// readsField reads the field behind the key.
func readsField(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Operand = args[2]
	return by, nil
}

// addsToField is HINCRBY.
func addsToField(args [][]byte, op *rpcv1.Operation, by reply) (_ reply, err error) {
	var ok bool
	if op.Number, ok = engine.ParseInteger(args[3]); !ok {
		err = errNotInteger
	}
	op.Operand = args[2]
	return by, err
}

// addsFloatToField is HINCRBYFLOAT.
func addsFloatToField(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	switch finite, ok := engine.IsFloat(args[3]); {
	case !ok:
		return nil, errors.New("ERR value is not a valid float")
	case !finite:
		return nil, errors.New("ERR value is NaN or Infinity")
	}
	op.Operand, op.Value = args[2], args[3]
	return by, nil
}

// replyFields is HLEN.
func replyFields(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	return redcon.AppendInt(b, int64(hash.Len(o.Value)))
}

// replyHash is HGETALL.
func replyHash(c *conn, b []byte, o *rpcv1.Outcome) []byte {
	return appendItems(c.appendMap(b, hash.Len(o.Value)), o.Value, true, true)
}

// replyNames is HKEYS, and replyValues HVALS.
func replyNames(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	return appendItems(redcon.AppendArray(b, hash.Len(o.Value)), o.Value, true, false)
}

func replyValues(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	return appendItems(redcon.AppendArray(b, hash.Len(o.Value)), o.Value, false, true)
}

// appendItems appends the fields of a hash, their values, or both.
func appendItems(b, h []byte, fields, values bool) []byte {
	for {
		field, value, rest, ok := hash.NextPair(h)
		if !ok {
			return b
		}
		if h = rest; fields {
			b = redcon.AppendBulk(b, field)
		}
		if values {
			b = redcon.AppendBulk(b, value)
		}
	}
}

// fieldsBytes is how many bytes of fields and values a reply has at most that may have a field many
// times: some times as many as the longest hash has. So a reply that is made when a pipeline ends
// takes about what its operation was counted for (forwardQueue).
const fieldsBytes = 16 << 10

var errManyFields = errors.New("ERR the reply would have more than 16384 bytes of fields and values, and no hash has as many; ask for each field once")

// readsFields is HMGET.
func readsFields(args [][]byte, _ *rpcv1.Operation, _ reply) (reply, error) {
	fields := slices.Clone(args[2:])
	return func(c *conn, b []byte, o *rpcv1.Outcome) []byte {
		from, size := len(b), 0
		b = redcon.AppendArray(b, len(fields))
		for _, field := range fields {
			value, _, ok := hash.Find(o.Value, field)
			if size += len(value); size > fieldsBytes {
				return redcon.AppendError(b[:from], errManyFields.Error())
			}
			if ok {
				b = redcon.AppendBulk(b, value)
			} else {
				b = c.appendNull(b)
			}
		}
		return b
	}, nil
}

// longestField is beyond what a field of a hash has.
const longestField = 8 << 10

// scansFields is HSCAN: all fields that match, in one step. As in Redis, only a key that is there
// has the options read.
func scansFields(args [][]byte, _ *rpcv1.Operation, _ reply) (reply, error) {
	if _, ok := cursorOf(args[2]); !ok {
		return nil, errCursor
	}
	options, err := readScan(args[3:], longestField)
	if options.typed != "" {
		err = errSyntax
	}
	return func(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
		if o.Code == rpcv1.Outcome_OK && err != nil {
			return redcon.AppendError(b, err.Error())
		}
		var matching []byte
		for h := o.Value; ; {
			field, _, rest, ok := hash.NextPair(h)
			if !ok {
				break
			}
			matches := options.pattern == nil
			if !matches {
				matches, _ = options.pattern.match(field)
			}
			if matches {
				matching = append(matching, h[:len(h)-len(rest)]...)
			}
			h = rest
		}
		b = redcon.AppendBulkString(redcon.AppendArray(b, 2), "0")
		return appendItems(redcon.AppendArray(b, 2*hash.Len(matching)), matching, true, true)
	}, nil
}

// choosesFields is HRANDFIELD.
func choosesFields(args [][]byte, _ *rpcv1.Operation, _ reply) (reply, error) {
	if len(args) == 2 {
		return func(c *conn, b []byte, o *rpcv1.Outcome) []byte {
			if o.Code != rpcv1.Outcome_OK {
				return c.appendNull(b)
			}
			return appendItems(b, c.choose(o.Value, 1)[0], true, false)
		}, nil
	}
	count, ok := engine.ParseInteger(args[2])
	values := len(args) == 4 && isWord(args[3], "WITHVALUES")
	switch {
	case !ok:
		return nil, errNotInteger
	case len(args) > 3 && !values:
		return nil, errSyntax
	case count == math.MinInt64:
		return nil, errors.New("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807")
	case values && (count > math.MaxInt64/2 || count < -math.MaxInt64/2):
		return nil, errors.New("ERR value is out of range")
	}
	return func(c *conn, b []byte, o *rpcv1.Outcome) []byte {
		chosen := c.choose(o.Value, count)
		switch {
		case chosen == nil && count < 0 && len(o.Value) > 0:
			return redcon.AppendError(b, errManyFields.Error())
		case values && !c.resp3:
			b = redcon.AppendArray(b, 2*len(chosen))
		default:
			b = redcon.AppendArray(b, len(chosen))
		}
		for _, pair := range chosen {
			if values && c.resp3 {
				b = redcon.AppendArray(b, 2)
			}
			b = appendItems(b, pair, true, values)
		}
		return b
	}, nil
}

// choose returns fields of h at random, with their values: up to count different ones in their
// order, or -count that may be the same, or nil if these have more than fieldsBytes.
func (c *conn) choose(h []byte, count int64) (chosen [][]byte) {
	var all [][]byte
	for {
		_, _, rest, ok := hash.NextPair(h)
		if !ok {
			break
		}
		all = append(all, h[:len(h)-len(rest)])
		h = rest
	}
	random := func(n int) int { return int(c.s.core.Env.Uint64() % uint64(n)) }
	for size := 0; count < 0 && len(all) > 0; count++ {
		pair := all[random(len(all))]
		if size += len(pair); size > fieldsBytes {
			return nil
		}
		chosen = append(chosen, pair)
	}
	wanted := int(min(max(count, 0), int64(len(all))))
	for i, pair := range all {
		if random(len(all)-i) < wanted {
			chosen = append(chosen, pair)
			wanted--
		}
	}
	return chosen
}
