package resp

import (
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
		case isWord(rest[0], "REV"):
			r.Reverse = true
			rest = rest[1:]
		case isWord(rest[0], "LIMIT") && len(rest) > 1:
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
func (c *conn) patience() time.Duration { return max(c.timeLeft(false), time.Millisecond) }

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
		case isWord(rest[0], "COUNT"):
			n, err := strconv.ParseInt(string(rest[1]), 10, 64)
			switch {
			case err != nil:
				return o, errNotInteger
			case n < 1:
				return o, errSyntax
			}
			o.count = min(uint64(n), scanCountMost)
		case isWord(rest[0], "MATCH"):
			o.pattern = newGlob(rest[1], longest)
		case isWord(rest[0], "TYPE"):
			o.typed = strings.ToLower(string(rest[1]))
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

// cmdScan is SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]. Clients want cursors to be numbers,
// so the bound where a scan goes on is written as one (writePosition), or kept by a server under
// one (cursors).
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
	w := walk{c: c, pattern: options.pattern, typed: options.typed}
	switch {
	case cursor >= positions && cursor < cursorsEnd:
		c.settle()
		if w.start, err = readPosition(cursor, w.pattern.prefix(), c.s.core.Index.MaxKeyBytes, w.sharedBy(c.patience)); err != nil {
			c.fail(err)
			return
		}
	case cursor != 0:
		if w.start, ok = c.startOf(cursor); !ok {
			return
		}
	}
	c.settle()
	w.b = c.newBody()
	if err := w.step(options.count); err != nil {
		w.b.fail(err)
		return
	}
	cursor = 0
	if w.more {
		if cursor, ok = writePosition(w.pattern.prefix(), w.start, w.sharedBy(func() time.Duration { return sharedWait })); !ok {
			cursor = c.s.cursors.put(w.start, &c.cursors)
		}
	}
	head := redcon.AppendBulkString(appendHead(nil, 2), strconv.FormatUint(cursor, 10))
	w.b.send(appendHead(head, w.keys))
}

// startOf is from which key on a scan goes on, wherever its cursor was given. It is false where an
// error has been replied. A server that cannot be reached may know the cursor still, so the client
// may try again; one that is not in the map is gone for good, as is what it remembered.
func (c *conn) startOf(cursor uint64) ([]byte, bool) {
	key, found := c.s.cursors.find(cursor)
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
func (s *Server) Cursor(cursor uint64) (key []byte, found bool) { return s.cursors.find(cursor) }

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
