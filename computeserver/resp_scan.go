package computeserver

import (
	"fmt"
	"strconv"

	"github.com/tidwall/match"
	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// cmdRange is RANGE start end [LIMIT n] [REV]: a flat array of keys and values in order.
func (c *respConn) cmdRange(args [][]byte) {
	r := scanRange{start: args[1], end: args[2]}
	for rest := args[3:]; len(rest) > 0; {
		switch {
		case is(rest[0], "REV"):
			r.reverse = true
			rest = rest[1:]
		case is(rest[0], "LIMIT") && len(rest) > 1:
			n, err := strconv.ParseUint(string(rest[1]), 10, 63)
			if err != nil {
				c.replyError("ERR value is not an integer or out of range")
				return
			}
			if r.limit = n; n == 0 {
				c.settle()
				c.out = redcon.AppendArray(c.out, 0)
				c.tally.count(outcomeOK)
				return
			}
			rest = rest[2:]
		default:
			c.replyError("ERR syntax error; RANGE start end [LIMIT n] [REV]")
			return
		}
	}
	pairs, err := c.collect(r, nil)
	if err != nil {
		c.fail(err)
		return
	}
	c.sendBody(2 * pairs)
}

// sendBody appends the array whose elements collect put into body.
func (c *respConn) sendBody(elements int) {
	c.out = redcon.AppendArray(c.out, elements)
	c.out = append(c.out, c.body...)
	c.tally.count(outcomeOK)
}

// collect puts the pairs of r, or the keys if it is keys only, into body, as many as one reply may hold. keep may turn keys down.
func (c *respConn) collect(r scanRange, keep func(key []byte) bool) (pairs int, err error) {
	c.settle()
	c.body = c.body[:0]
	full, granted := false, c.taken
	between := func() error {
		// What is in body beyond a quiet connection's share counts as read buffers do, twice, since it is copied to out.
		if over := int64(2*(len(c.body)-respKeep)) - (c.taken - granted); over > 0 {
			return c.take(over)
		}
		return nil
	}
	err = c.s.core.scan(r, false, func(key, value []byte) bool {
		if len(c.body)+len(key)+len(value) > c.s.maxReply {
			full = true
			return false
		}
		if keep != nil && !keep(key) {
			return true
		}
		pairs++
		c.body = redcon.AppendBulk(c.body, key)
		if !r.keysOnly {
			c.body = redcon.AppendBulk(c.body, value)
		}
		return true
	}, between)
	if err == nil && full {
		err = &failure{code: rpcv1.Outcome_INVALID, message: fmt.Sprintf("the reply would be larger than %d bytes; use LIMIT, then go on after the last key", c.s.maxReply)}
	}
	return pairs, err
}

// Bounds of SCAN.
const (
	scanCount     = 10 // keys of a step, when COUNT does not say
	scanCountMost = 100_000
	matchSteps    = 10_000 // of comparing one key with a pattern; a pattern that takes more does not match
)

// cmdScan is SCAN cursor [MATCH pattern] [COUNT n]. Clients want cursors to be numbers, so the key where a scan goes on is kept
// here under one.
func (c *respConn) cmdScan(args [][]byte) {
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		c.replyError("ERR invalid cursor")
		return
	}
	count, pattern := uint64(scanCount), ""
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		switch {
		case len(rest) == 1:
			c.replyError("ERR syntax error")
			return
		case is(rest[0], "COUNT"):
			count, err = strconv.ParseUint(string(rest[1]), 10, 63)
			if err != nil || count == 0 {
				c.replyError("ERR value is not an integer or out of range")
				return
			}
			count = min(count, scanCountMost)
		case is(rest[0], "MATCH"):
			pattern = string(rest[1])
		default:
			c.replyError("ERR syntax error")
			return
		}
	}
	var start []byte
	if cursor != 0 {
		var ok bool
		if start, ok = c.s.cursors.take(cursor); !ok {
			c.replyError("ERR invalid cursor: this server does not know it, or no longer; start again with 0, on one connection")
			return
		}
	}
	c.scanStep(scanRange{start: start, limit: count, keysOnly: true}, pattern)
}

func (c *respConn) scanStep(r scanRange, pattern string) {
	var last []byte
	seen := uint64(0)
	pairs, err := c.collect(r, func(key []byte) bool {
		seen++
		last = append(last[:0], key...)
		if pattern == "" {
			return true
		}
		matched, _ := match.MatchLimit(string(key), pattern, matchSteps)
		return matched
	})
	if err != nil {
		c.fail(err)
		return
	}
	next := uint64(0)
	if seen == r.limit {
		if key, more := c.s.core.successor(nil, last); more {
			next = c.s.cursors.put(key)
		}
	}
	c.out = redcon.AppendArray(c.out, 2)
	c.out = redcon.AppendBulkString(c.out, strconv.FormatUint(next, 10))
	c.sendBody(pairs)
}

func (c *respConn) cmdDBSize(_ [][]byte) {
	c.settle()
	n, err := c.s.core.size(&c.s.size)
	if err != nil {
		c.fail(err)
		return
	}
	c.replyInt(n)
}
