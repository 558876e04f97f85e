package resp

import (
	"bytes"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// scanWhole is how many members a set has at most that ZSCAN replies in one step, in the order of
// their scores, as Redis does.
const scanWhole = 128

// cmdZScan is ZSCAN key cursor [MATCH pattern] [COUNT n]. A set of more than scanWhole members is
// read in their own order; where it goes on is written as SCAN's is (writePosition).
func (c *conn) cmdZScan(args [][]byte) {
	cursor, ok := cursorOf(args[2])
	if !ok {
		c.replyError(errCursor.Error())
		return
	}
	key := bytes.Clone(args[1])
	options, wrong := readScan(args[3:], c.s.core.Index.MaxKeyBytes)
	if options.typed != "" {
		wrong = errSyntax
	}
	s := c.sets(args[1], false)
	if s == nil {
		return
	}
	defer c.account.force(holdMany, 0)
	w := setWalk{gathered: gathered{c: c}, pattern: options.pattern}
	var err error
	if cursor == 0 {
		err = s.ByScore(key, sortedset.All, false, scanWhole+1, w.first(scanWhole))
	}
	if cursor != 0 || w.more {
		var from []byte
		switch {
		case cursor >= positions && cursor < cursorsEnd:
			if from, err = readPosition(cursor, nil, max(c.s.core.Index.MaxKeyBytes-sortedset.Overhead, 0), c.membersShare(s, key)); err != nil {
				c.failSet(err)
				return
			}
		case cursor != 0:
			if from, ok = c.startOf(cursor); !ok {
				return
			}
		}
		w = setWalk{gathered: gathered{c: c, held: w.held}, pattern: options.pattern}
		err = s.ByMember(key, sortedset.Ends{From: from, Hint: int(options.count) + 1}, false, w.first(int(options.count)))
	}
	switch {
	case err != nil:
		c.failSet(err)
		return
	case w.full != nil:
		c.fail(w.full)
		return
	case wrong != nil && w.seen > 0: // as in Redis, only of a set that is there
		c.replyError(wrong.Error())
		return
	}
	cursor = 0
	if w.more {
		bound, fits := separator(w.last, w.behind), false
		if brief, err := c.s.core.Sets(key, false, sharedWait, c.term); err == nil {
			cursor, fits = writePosition(nil, bound, c.membersShare(brief, key))
		}
		if !fits {
			cursor = c.s.cursors.put(bound, &c.cursors)
		}
	}
	b := c.newBody()
	for _, p := range w.pairs {
		if err := b.add(len(p.Member)+128, "use a smaller COUNT"); err != nil {
			b.fail(err)
			return
		}
		var text [32]byte
		c.out = redcon.AppendBulk(redcon.AppendBulk(c.out, p.Member), formatScore(text[:0], p.Score))
	}
	head := redcon.AppendBulkString(appendHead(nil, 2), strconv.FormatUint(cursor, 10))
	b.send(appendHead(head, 2*len(w.pairs)))
}

// setWalk gathers the members of a step of ZSCAN that match.
type setWalk struct {
	gathered
	pattern *glob // nil matches all
	seen    int
	last    []byte // of those that were seen
	behind  []byte // the one behind it, where there are more
	effort  int    // see matchEffort
	more    bool   // there are more
}

// first gathers what matches of the first members, at most so many. It ends early where to compare
// them takes long.
func (w *setWalk) first(most int) func(p sortedset.Pair) bool {
	return func(p sortedset.Pair) bool {
		if w.more = w.seen == most || w.effort > matchEffort; w.more {
			w.behind = bytes.Clone(p.Member)
			return false
		}
		w.seen, w.last = w.seen+1, append(w.last[:0], p.Member...)
		if w.pattern != nil {
			matches, steps := w.pattern.match(p.Member)
			if w.effort += steps; !matches {
				return true
			}
		}
		return w.add(p)
	}
}

// membersShare reads the first and the last member that begin with a prefix.
func (c *conn) membersShare(s *sortedset.Sets, key []byte) sharedBy {
	return sharedOf(func(prefix []byte, reverse bool) (member []byte, err error) {
		of := sortedset.Ends{From: prefix, Hint: 1}
		if to := c.s.core.Beyond(prefix); len(to) > 0 {
			of.To = to
		}
		err = s.ByMember(key, of, reverse, func(p sortedset.Pair) bool { member = p.Member; return false })
		return member, err
	})
}
