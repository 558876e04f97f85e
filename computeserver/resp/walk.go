package resp

import (
	"bytes"
	"context"
	"time"

	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
)

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
// server. A step whose comparisons take long, or whose keys fill the reply, ends early. It reads
// the key behind its last one, too: a bound between the two is shorter than a key.
func (w *walk) step(count uint64) error {
	core, pattern := w.c.s.core, w.pattern
	user, longest := w.c.login.User(), core.Index.MaxKeyBytes
	prefix := pattern.prefix()
	beyond := core.Beyond(prefix)
	var last, behind []byte // the last key of the step, and the one behind it
	until, effort, over := w.seen+count, 0, false
	keep := func(key []byte, of expiry.Type) (keep, end bool) {
		if w.seen == until {
			behind = bytes.Clone(key)
			return false, true
		}
		keep = true
		if pattern != nil {
			var steps int
			keep, steps = pattern.match(key)
			effort += steps
		}
		keep = keep && (w.typed == "" || w.typed == typeNames[of])
		// A key that does not even fit alone is an error.
		if w.full = keep && w.keys > 0 && w.b.add(keyRoom(key), "") != nil; w.full {
			behind = bytes.Clone(key)
			return false, true
		}
		last = append(last[:0], key...)
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
		return from, end, more && !pattern.matchesNone() && (len(end) == 0 || bytes.Compare(from, end) < 0)
	}
	from, end, more := next()
	for more && !over {
		r := engine.ScanRange{Start: core.Bound(from), End: core.Bound(end), Limit: until - w.seen + 1, KeysOnly: true}
		if _, err := w.c.collect(w.b, r, keep); err != nil {
			return err
		}
		switch over = behind != nil || effort > matchEffort; {
		case behind != nil:
			w.start = separator(last, behind)
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

// sharedWait is how long a step that is done waits for keys whose server is away, to write a
// position. The server remembers where the scan goes on if that takes longer.
const sharedWait = 100 * time.Millisecond

// sharedBy reads the first and the last key that begin with a prefix. A user that may not read all
// of the scan's keys learns nothing of the others: nothing is shared then.
func (w *walk) sharedBy(patience func() time.Duration) sharedBy {
	core := w.c.s.core
	outermost := func(prefix []byte, reverse bool) (key []byte, err error) {
		r := engine.ScanRange{Start: core.Bound(prefix), End: core.Bound(core.Beyond(prefix)), Limit: 1, Reverse: reverse, KeysOnly: true, Wait: patience()}
		err = core.Scan(context.Background(), r, false, func(found, _ []byte, _ expiry.Mark) bool {
			key = bytes.Clone(found)
			return false
		}, func() error { return nil })
		w.c.noteWait(engine.CodeOf(err))
		return key, err
	}
	return func(prefix []byte) ([]byte, error) {
		if !w.c.login.User().MayReadRange(prefix, core.Beyond(prefix)) {
			return nil, nil
		}
		return sharedOf(outermost)(prefix)
	}
}

// sharedOf is sharedBy of what gives the first and the last key that begin with a prefix, or nil.
func sharedOf(outermost func(prefix []byte, reverse bool) (key []byte, err error)) sharedBy {
	return func(prefix []byte) ([]byte, error) {
		first, err := outermost(prefix, false)
		if err != nil || first == nil {
			return nil, err
		}
		last, err := outermost(prefix, true)
		if err != nil || last == nil {
			return nil, err
		}
		both := common(first, last)
		return both[min(len(prefix), len(both)):], nil
	}
}

// keyRoom is how many bytes of a reply a key takes at most.
func keyRoom(key []byte) int { return len(key) + 32 }
