package register

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index"
)

// easy is how long porcupine searches the history of one key before this package does.
const easy = time.Second / 2

// maxTries is how many states of a key search looks at. Each takes some microseconds and a hundred
// bytes; histories of crowded keys need up to some 20,000 (TestCrowdedKeyIsJudged).
const maxTries = 1 << 20

// Check judges a history. Unknown = a key's history has too many orders to try them all. If a key's
// history is not linearizable, or not judged, it is returned as well.
//
// porcupine judges. Where it finds no order soon, search does: porcupine tries all orders of
// lookups that overlap, which takes more than minutes where twenty clients use one key.
func Check(ops []porcupine.Operation) (porcupine.CheckResult, []porcupine.Operation) {
	for _, part := range Model.Partition(ops) {
		part = slices.DeleteFunc(part, func(o porcupine.Operation) bool { // says nothing
			return o.Input.(Input).Verb == Lookup && o.Output.(Output).Unknown
		})
		result := porcupine.CheckOperationsTimeout(Model, part, easy)
		if result == porcupine.Unknown {
			result = newSearch(part).result()
		}
		if result != porcupine.Ok {
			return result, part
		}
	}
	return porcupine.Ok, nil
}

// A value of a key is a number here: absent, one for each value that an operation was told, and
// those below absent for all others. Nobody can tell these apart but by what Decide makes of their
// length, so they are one value for each length modulo 4.
type value int

const (
	absent value = 0
	none   value = -1 << 30 // no value is asked for
)

// step is an operation on a key.
type step struct {
	call, end int64
	verb      Verb
	value     value // that it writes
	length    int   // of the value that it writes

	// Without an answer it depends on the value that there is what it does. Otherwise it is known:
	unknown bool
	there   bool  // the key has to be there
	not     bool  // the key must not be there
	told    value // the value that it has to have, or none
	to      value // the value that it leaves, or none: it changes nothing
}

// search looks for an order of the operations on one key. It goes through them in depth, as
// porcupine does, and leaves out what need not be tried:
//
//   - An operation that changes nothing, and may be next, is next: if there is an order, it can be
//     moved to this place in it.
//   - Of two operations that do and were told the same, one of which begins and ends no later, this
//     one comes first: in an order that has them the other way they can change places.
//   - A value that is still to be told, and that no other operation writes, is not overwritten.
//   - An operation without an answer that would change nothing now, or is left over at the end, is
//     not in the order at all.
type search struct {
	steps   []step // ascending by call
	lengths map[value]int
	done    []bool
	left    int           // that have an answer and are not done
	tell    map[value]int // that are not done and have to find this value
	write   map[value]int // that are not done and may write it
	seen    map[string]bool
	values  value // 1 to this one are told
	tries   int   // states looked at
}

func newSearch(ops []porcupine.Operation) *search {
	s := &search{lengths: map[value]int{}, done: make([]bool, len(ops)), tell: map[value]int{}, write: map[value]int{}, seen: map[string]bool{}}
	told := map[string]value{}
	for _, o := range ops {
		if out := o.Output.(Output); out.Found && !out.Unknown && returnsValue(o.Input.(Input).Verb) && told[out.Value] == 0 {
			s.values++
			told[out.Value] = s.values
			s.lengths[s.values] = len(out.Value)
		}
	}
	number := func(text string) value {
		if v := told[text]; v != 0 {
			return v
		}
		v := absent - 1 - value(len(text)%4)
		s.lengths[v] = len(text) % 4
		return v
	}
	for _, o := range ops {
		in, out := o.Input.(Input), o.Output.(Output)
		st := step{call: o.Call, end: o.Return, verb: in.Verb, value: number(in.Value), length: len(in.Value), told: none, to: none, unknown: out.Unknown}
		if !out.Unknown {
			st.there, st.not = out.Found && in.Verb != Upsert, !out.Found && in.Verb != Upsert
			if out.Found && returnsValue(in.Verb) {
				st.told = told[out.Value]
			}
			st.to = st.leaves(out.Found, len(out.Value))
		}
		s.steps = append(s.steps, st)
	}
	slices.SortStableFunc(s.steps, func(a, b step) int { return cmp.Compare(a.call, b.call) })
	for i := range s.steps {
		s.count(i, 1)
	}
	return s
}

// returnsValue reports whether an operation is told the value that it finds.
func returnsValue(v Verb) bool { return v == Lookup || v == Modify }

// leaves is the value that an operation leaves where the key is there or not, with a value of that
// length; none = what there is.
func (st *step) leaves(there bool, length int) value {
	switch st.verb {
	case Upsert:
		return st.value
	case Insert:
		if !there {
			return st.value
		}
	case Update:
		if there {
			return st.value
		}
	case Delete:
		if there {
			return absent
		}
	case Modify:
		if !there {
			length = 0
		}
		switch decide(st.length, length) {
		case index.Put:
			return st.value
		case index.Remove:
			if there {
				return absent
			}
		}
	}
	return none
}

// count adds n to what is not done, for an operation.
func (s *search) count(i, n int) {
	st := &s.steps[i]
	if !st.unknown {
		s.left += n
	}
	if st.told != none {
		s.tell[st.told] += n
	}
	switch {
	case st.unknown && st.verb != Lookup && st.verb != Delete:
		s.write[st.value] += n
	case !st.unknown && st.to != none && st.to != absent:
		s.write[st.to] += n
	}
}

func (s *search) apply(i int) {
	s.done[i] = true
	s.count(i, -1)
}

func (s *search) undo(i int) {
	s.done[i] = false
	s.count(i, 1)
}

func (s *search) result() porcupine.CheckResult {
	switch {
	case s.contradict():
		return porcupine.Illegal
	case s.hasOrder(absent):
		return porcupine.Ok
	case s.tries > maxTries:
		return porcupine.Unknown
	}
	return porcupine.Illegal
}

// contradict reports whether two values must both be there at one moment, or an operation was told
// one that nobody writes: else search would try all orders of what comes before. A value that one
// operation writes is there from the first end of an operation that writes it or was told it to the
// last call of one, or, if all of these overlap, at some moment from the last call to the first
// end (zones; Gibbons and Korach, Testing Shared Memories, SIAM J. Comput. 26(4), 1997).
func (s *search) contradict() bool {
	type zone struct{ end, call int64 }
	var all []zone
	for v := absent + 1; v <= s.values; v++ {
		if s.write[v] == 0 {
			return true
		}
		if s.write[v] != 1 {
			continue
		}
		z := zone{Never, 0}
		for i := range s.steps {
			if st := &s.steps[i]; st.told == v || st.to == v || st.unknown && st.verb.Changes() && st.value == v {
				z = zone{min(z.end, st.end), max(z.call, st.call)}
			}
		}
		all = append(all, z)
	}
	for i, a := range all {
		if a.end >= a.call {
			continue
		}
		for j, b := range all {
			during := a.end < b.call && b.end < a.call // also where that of b is one moment of many
			if both := b.end < b.call && max(a.end, b.end) < min(a.call, b.call); i != j && (during || both) {
				return true
			}
		}
	}
	return false
}

// hasOrder reports whether the operations that are left have an order, if the key has the value
// now.
func (s *search) hasOrder(now value) bool {
	if s.tries++; s.tries > maxTries {
		return false
	}
	var taken []int
	defer func() {
		for _, i := range taken {
			s.undo(i)
		}
	}()
	for found := true; found; {
		found = false
		for _, i := range s.next() {
			if st := &s.steps[i]; !st.unknown && st.to == none && st.isPossible(now) {
				s.apply(i)
				taken = append(taken, i)
				found = true
			}
		}
	}
	if s.left == 0 {
		return true
	}
	key := s.key(now)
	if s.seen[key] {
		return false
	}
	s.seen[key] = true
	next := s.next()
	for _, i := range next {
		st := &s.steps[i]
		to := st.to
		if st.unknown {
			to = st.leaves(now != absent, s.lengths[now])
		}
		if to == none || !st.isPossible(now) || s.second(i, next) {
			continue
		}
		s.apply(i)
		lost := now != to && s.tell[now] > 0 && s.write[now] == 0
		if !lost && s.hasOrder(to) {
			return true
		}
		s.undo(i)
	}
	return false
}

// next are the operations that may be next: those that no other one must come before.
func (s *search) next() (next []int) {
	end := Never
	for i := range s.steps {
		if !s.done[i] {
			end = min(end, s.steps[i].end)
		}
	}
	for i := range s.steps {
		if s.steps[i].call > end {
			break
		}
		if !s.done[i] {
			next = append(next, i)
		}
	}
	return next
}

// isPossible reports whether an operation can have had its answer where the key has this value.
func (st *step) isPossible(now value) bool {
	return !(st.there && now == absent) && !(st.not && now != absent) && (st.told == none || st.told == now)
}

// second reports whether another operation that does the same, and may be next, comes first.
func (s *search) second(i int, next []int) bool {
	b := s.steps[i]
	for _, j := range next {
		a := s.steps[j]
		if j == i || a.call > b.call || a.end > b.end || a.call == b.call && a.end == b.end && j > i {
			continue
		}
		a.call, a.end, a.length = b.call, b.end, b.length
		if s.steps[j].length%4 == b.length%4 && a == b {
			return true
		}
	}
	return false
}

// key is what is done, and the value that there is.
func (s *search) key(now value) string {
	key := make([]byte, 0, len(s.done)/8+5)
	for v, n := uint32(now), 0; n < 4; n++ {
		key = append(key, byte(v))
		v >>= 8
	}
	for i, done := range s.done {
		if i%8 == 0 {
			key = append(key, 0)
		}
		if done {
			key[len(key)-1] |= 1 << (i % 8)
		}
	}
	return string(key)
}
