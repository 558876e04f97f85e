package engine

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/partition"
)

// The operations of a batch READ from memory servers side by side. The lookups of a run, between
// two other operations, are one batch of the index (index.Session.LookupBatch): each is right at a
// moment of its own, behind all operations before the run. Before the first of several changes the
// session prepares for them (index.Session.Prepare); they take effect one by one, in their order.

// Operations that are looked at together: so many lookups, or so many from the first change of
// several on. There are more of these, since new keys of one leaf divide it at once (index.Session,
// Prepare).
const (
	togetherMost = 64
	preparedMost = 256
)

// local is the operations of one round that run in one session of this server.
type local struct {
	c    *Engine
	s    *Session
	m    *partition.Map
	ops  []*rpcv1.Operation
	out  []*rpcv1.Outcome // nil for operations without an outcome so far
	todo []int

	looked   int // operations of todo before this one need no look ahead
	prepared int // and these no preparation
	slab     []rpcv1.Outcome
	values   []byte // of lookups, one after the other
	kept     int    // values so far
	keys     [][]byte
	put      [][]byte
	of       []int // the operation of a key
	value    []byte

	// of changes of members
	change  sortedset.Change
	entries []byte // keys of entries
}

// outcome returns an empty outcome.
func (l *local) outcome() *rpcv1.Outcome {
	if len(l.slab) == 0 {
		l.slab = make([]rpcv1.Outcome, min(len(l.todo), togetherMost))
	}
	o := &l.slab[0]
	l.slab = l.slab[1:]
	return o
}

// valuesTogether is how many bytes of values lie in one array at most, if one alone is not larger.
const valuesTogether = 16 << 10

// copyValue returns a copy of a value. Values of a batch lie in few arrays, which never grow.
func (l *local) copyValue(value []byte) []byte {
	l.kept++
	at := len(l.values)
	if cap(l.values)-at < len(value) {
		more := len(l.todo) - l.kept + 1 // with as many bytes, likely
		l.values, at = make([]byte, 0, max(len(value), min(valuesTogether, more*len(value)))), 0
	}
	l.values = append(l.values, value...)
	return l.values[at:len(l.values):len(l.values)]
}

// setOutcome notes how operation i ended: with o, whose value is copied, or without an answer of
// the index.
func (l *local) setOutcome(i int, o *rpcv1.Outcome, err error) {
	if !CodeOf(err).Meaning().Answer {
		o = l.c.OutcomeAt(l.m, l.ops[i].Key, err)
	} else if o.Value != nil {
		o.Value = l.copyValue(o.Value)
	}
	l.out[i] = o
}

// found notes what LookupBatch found for operation i.
func (l *local) found(i int, value []byte, err error) {
	o := l.outcome()
	if o.Code = CodeOf(err); err == nil {
		o.Value = value
	}
	l.setOutcome(i, o, err)
}

// lookAhead READs what the operations from todo[n] on need, if that was not done before. After an
// error the session is dead.
func (l *local) lookAhead(n int) error {
	reads, most := !l.ops[l.todo[n]].Kind.Traits().Changes, togetherMost
	if !reads {
		most = preparedMost
	}
	end := min(n+most, len(l.todo))
	if reads && n < l.looked || !reads && (n < l.prepared || !l.c.Sessions.Prepares()) {
		return nil
	}
	if l.keys == nil {
		l.keys, l.put, l.of = make([][]byte, 0, end-n), make([][]byte, 0, end-n), make([]int, 0, end-n)
	}
	l.keys, l.put, l.of, l.entries = l.keys[:0], l.put[:0], l.of[:0], l.entries[:0]
	for at := n; at < end; at++ {
		i := l.todo[at]
		op := l.ops[i]
		is := op.Kind.Traits()
		if is.Changes == reads || reads && !is.Looks {
			if reads { // what comes behind it must not be looked up before it
				end = at
			}
			continue
		}
		if l.s.Serves(op.Key) {
			l.keys, l.put, l.of = append(l.keys, op.Key), append(l.put, Stored(is, op.Value)), append(l.of, i)
			if op.Kind == rpcv1.Operation_SET_MEMBER {
				l.addEntry(op)
			}
		}
	}
	var err error
	switch {
	case len(l.keys) < 2:
	case reads:
		err = l.s.LookupBatch(l.keys, func(k int, value []byte, err error) { l.found(l.of[k], value, err) })
	default:
		err = l.s.Prepare(l.keys, l.put)
	}
	if reads {
		l.looked = end
	} else {
		l.prepared = end
	}
	if Kills(err) {
		return err
	}
	return nil // the operations themselves say why
}

// addEntry adds what a change of a member writes beside its item, which was added, to what is
// prepared.
func (l *local) addEntry(op *rpcv1.Operation) {
	if !l.change.Parse(op) {
		return
	}
	from := len(l.entries)
	key, ok := l.change.Entry(l.entries)
	if l.entries = key; ok && l.s.Serves(key[from:]) {
		l.put[len(l.put)-1] = anItem
		l.keys, l.put = append(l.keys, key[from:len(key):len(key)]), append(l.put, sortedset.Mark)
	}
}

// anItem is as long as the item that a change of a member writes.
var anItem = make([]byte, sortedset.ItemBytes)

// run runs the operation at todo[n].
func (l *local) run(n int) error {
	i := l.todo[n]
	o := l.outcome()
	value, err := Run(l.s, l.ops[i], l.value, o)
	l.value = value
	l.setOutcome(i, o, err)
	return err
}

// failRest gives the operations from todo[n] on that have no outcome that of an error which killed
// the session. The first of them failed by it, unless it has an outcome already. The others were
// not tried, and must not overtake the failed one if that is tried again.
func (l *local) failRest(n int, err error) {
	failed := l.out[l.todo[n]] != nil
	for _, i := range l.todo[n:] {
		switch {
		case l.out[i] != nil:
		case failed:
			l.out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "an operation before this one failed: " + err.Error()}
		default:
			l.setOutcome(i, nil, err)
			failed = true
		}
	}
}
