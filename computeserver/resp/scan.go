package resp

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/tidwall/redcon"
)

// cmdRange is RANGE start end [LIMIT n] [REV]: a flat array of keys and values in order.
func (c *conn) cmdRange(args [][]byte) {
	r := engine.ScanRange{Start: args[1], End: args[2]}
	for rest := args[3:]; len(rest) > 0; {
		switch {
		case is(rest[0], "REV"):
			r.Reverse = true
			rest = rest[1:]
		case is(rest[0], "LIMIT") && len(rest) > 1:
			n, err := strconv.ParseUint(string(rest[1]), 10, 63)
			if err != nil {
				c.replyError("ERR value is not an integer or out of range")
				return
			}
			if r.Limit = n; n == 0 {
				c.settle()
				c.out = redcon.AppendArray(c.out, 0)
				c.tally.Count(count.OK)
				return
			}
			rest = rest[2:]
		default:
			c.replyError("ERR syntax error; RANGE start end [LIMIT n] [REV]")
			return
		}
	}
	c.settle()
	b := c.newBody()
	pairs, err := c.collect(b, r, nil)
	if err != nil {
		b.fail(err)
		return
	}
	b.send(appendHead(nil, 2*pairs))
}

// collect adds the pairs of r, or the keys if it is keys only, to a body, as many as one reply may
// hold. keep may turn keys down, and end the scan behind a key. No session is held.
func (c *conn) collect(b body, r engine.ScanRange, keep func(key []byte, of expiry.Type) (keep, end bool)) (pairs int, err error) {
	var full error
	r.Wait = c.patience()
	err = c.s.core.Scan(context.Background(), r, false, func(key, value []byte, is expiry.Mark) bool {
		end := false
		if keep != nil {
			var wanted bool
			if wanted, end = keep(key, is.Type); !wanted {
				return !end
			}
		}
		if full = b.add(keyRoom(key)+len(value), "use LIMIT, then go on after the last key"); full != nil {
			return false
		}
		pairs++
		c.out = redcon.AppendBulk(c.out, key)
		switch {
		case r.KeysOnly:
		case is.Type != expiry.String:
			c.out = c.appendNull(c.out)
		default:
			c.out = redcon.AppendBulk(c.out, value)
		}
		return !end
	}, func() error { return nil })
	if err == nil {
		err = full
	}
	c.noteWait(engine.CodeOf(err))
	return pairs, err
}

// patience is how long a scan waits for keys or a session.
func (c *conn) patience() time.Duration { return max(c.left(false), time.Millisecond) }

// Bounds of SCAN.
const (
	scanCount     = 10 // keys of a step, when COUNT does not say
	scanCountMost = 100_000
	// comparisons of keys with a pattern in one step; the next step goes on from there
	matchEffort = 1 << 22
)

// scanOptions are those of SCAN and HSCAN.
type scanOptions struct {
	count   uint64
	pattern *glob  // nil matches all
	typed   string // in lower case; empty = any
}

var errCursor = errors.New("ERR invalid cursor")

func cursorOf(arg []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(arg), 10, 64)
	return n, err == nil
}

// readScan reads the options behind a cursor. What is matched has at most longest bytes.
func readScan(args [][]byte, longest int) (o scanOptions, err error) {
	o.count = scanCount
	for rest := args; len(rest) > 0; rest = rest[2:] {
		switch {
		case len(rest) == 1:
			return o, errSyntax
		case is(rest[0], "COUNT"):
			n, err := strconv.ParseInt(string(rest[1]), 10, 64)
			switch {
			case err != nil:
				return o, errNotInteger
			case n < 1:
				return o, errSyntax
			}
			o.count = min(uint64(n), scanCountMost)
		case is(rest[0], "MATCH"):
			o.pattern = newGlob(rest[1], longest)
		case is(rest[0], "TYPE"):
			o.typed = strings.ToLower(string(rest[1]))
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

// cmdScan is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]. Clients want cursors to be numbers,
// so the key where a scan goes on is kept by a server under one (cursors).
func (c *conn) cmdScan(args [][]byte) {
	cursor, ok := cursorOf(args[1])
	if !ok {
		c.replyError(errCursor.Error())
		return
	}
	options, err := readScan(args[2:], c.s.core.Index.MaxKeyBytes)
	if err != nil {
		c.replyError(err.Error())
		return
	}
	var start []byte
	if cursor != 0 {
		if start, ok = c.startOf(cursor); !ok {
			return
		}
	}
	c.settle()
	w := walk{c: c, b: c.newBody(), start: start, pattern: options.pattern, typed: options.typed}
	if err := w.step(options.count); err != nil {
		w.b.fail(err)
		return
	}
	cursor = 0
	if w.more {
		cursor = c.s.cursors.put(w.start, &c.cursors)
	}
	head := redcon.AppendBulkString(appendHead(nil, 2), strconv.FormatUint(cursor, 10))
	w.b.send(appendHead(head, w.keys))
}

// startOf is from which key on a scan goes on, wherever its cursor was given. It is false where an
// error has been replied. A server that cannot be reached may know the cursor still, so the client
// may try again; one that is not in the map is gone for good, as is what it remembered.
func (c *conn) startOf(cursor uint64) ([]byte, bool) {
	key, found := c.s.cursors.take(cursor)
	server := serverOf(cursor)
	if m := c.s.core.View.Current(); !found && server != c.s.core.Self && c.s.ask != nil && m != nil {
		if of, there := m.Server(server); there {
			c.settle() // no session is held while another server is waited for
			var err error
			key, found, err = c.s.ask(of, cursor, c.patience())
			c.noteWait(engine.CodeOf(err))
			if err != nil {
				c.fail(err)
				return nil, false
			}
		}
	}
	if !found {
		c.replyError("ERR invalid cursor: the server that gave it is gone, or does not know it any more; start again with 0")
	}
	return key, found
}

// Cursor is from which key on a scan goes on whose cursor this server gave; false if it does not
// know the cursor.
func (s *Server) Cursor(cursor uint64) (key []byte, found bool) { return s.cursors.take(cursor) }

// walk goes over the keys that a user may read, in steps, and adds those that match to a reply.
type walk struct {
	c       *conn
	b       body
	pattern *glob  // nil matches all
	typed   string // the type of the pairs, in lower case; empty = any
	start   []byte // of the next step
	more    bool   // there is a next step
	full    bool   // the reply is, or the buffers are
	keys    int    // in the reply
	seen    uint64
}

// step looks at the next keys, at most count. It goes from one range that the user may read to the
// next, within the keys that begin as the pattern does: other keys are not read, and may have no
// server. A step whose comparisons take long, or whose keys fill the reply, ends early.
func (w *walk) step(count uint64) error {
	core, pattern := w.c.s.core, w.pattern
	user, longest := w.c.login.User(), core.Index.MaxKeyBytes
	prefix := pattern.prefix()
	beyond := core.Beyond(prefix)
	var last []byte
	until, effort, over := w.seen+count, 0, false
	keep := func(key []byte, of expiry.Type) (keep, end bool) {
		last, keep = append(last[:0], key...), true
		if pattern != nil {
			var steps int
			keep, steps = pattern.match(key)
			effort += steps
		}
		keep = keep && (w.typed == "" || w.typed == typeNames[of])
		// A key that does not even fit alone is an error.
		if w.full = keep && w.keys > 0 && w.b.add(keyRoom(key), "") != nil; w.full {
			return false, true
		}
		w.seen++
		if keep {
			w.keys++
		}
		return keep, effort > matchEffort
	}
	next := func() (from, end []byte, more bool) {
		if bytes.Compare(w.start, prefix) < 0 {
			w.start = prefix
		}
		from, end, more = user.Readable(w.start, longest)
		if len(beyond) > 0 && (len(end) == 0 || bytes.Compare(end, beyond) > 0) {
			end = beyond
		}
		return from, end, more && !pattern.none() && (len(end) == 0 || bytes.Compare(from, end) < 0)
	}
	from, end, more := next()
	for more && !over {
		r := engine.ScanRange{Start: core.Bound(from), End: core.Bound(end), Limit: until - w.seen, KeysOnly: true}
		if _, err := w.c.collect(w.b, r, keep); err != nil {
			return err
		}
		switch over = w.full || w.seen == until || effort > matchEffort; {
		case w.full:
			w.start = last
		case over:
			w.start, more = core.Successor(nil, last)
		default:
			w.start, more = r.End, len(r.End) > 0
		}
		if more {
			from, end, more = next()
		}
	}
	w.more = more
	return nil
}

// keyRoom is how many bytes of a reply a key takes at most.
func keyRoom(key []byte) int { return len(key) + 32 }

func (c *conn) cmdDBSize(_ [][]byte) {
	c.settle()
	n, err := c.s.core.Size(c.s.size, c.patience())
	c.noteWait(engine.CodeOf(err))
	if err != nil {
		c.fail(err)
		return
	}
	c.replyInt(n)
}
