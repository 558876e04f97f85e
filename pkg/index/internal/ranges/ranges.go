// Package ranges is the table of the keys that this client has taken, and in which epoch. It knows
// neither leaves nor sessions: the code that stores a table says what a change of it means.
//
//	keys       "" ----- d --------- k --------- p ----------- z --- (end)
//	spans             [ epoch 3   )[ epoch 7   )            [ epoch 3
//	Leaving                        [ m  ....  n )            none, or keys that Give takes out
//
//	At(f) = 0, At(k) = 1, At(q) = -1        spans are sorted and disjoint
//	Covers(e, n) = true                     neighbours without a gap count as one stretch
//	MayMerge(m, n) = false                  a leaf that begins in Leaving stays as it is
//	Bound(before, f) = p                    how far a scan may go that began with before
//
// A table is a value: With, Without and Giving return another one. So a reader that has loaded a
// table goes on with it, and two loads are equal pointers if nothing changed in between. At
// allocates nothing and takes logarithmic time: each operation begins with it.
package ranges

import (
	"bytes"
	"slices"
)

// Table is spans of keys, sorted and disjoint.
type Table struct {
	spans   []Span
	Leaving *Span // the span being given, which is still in spans; nil = none
}

// Span is the keys from Start up to End, taken in an epoch. An empty End is the upper end of the
// key space.
type Span struct {
	Start, End []byte
	Epoch      uint64
}

// Of returns a table of disjoint spans in the order of their keys.
func Of(spans ...Span) *Table { return &Table{spans: spans} }

// Span returns span i.
func (r *Table) Span(i int) *Span { return &r.spans[i] }

// Len returns the number of spans.
func (r *Table) Len() int { return len(r.spans) }

// At returns the number of the span that holds key; -1 if none does.
func (r *Table) At(key []byte) int {
	from, to := 0, len(r.spans) // the first span that starts above key
	for from < to {
		if mid := (from + to) / 2; bytes.Compare(r.spans[mid].Start, key) > 0 {
			to = mid
		} else {
			from = mid + 1
		}
	}
	if from == 0 || !r.spans[from-1].reaches(key) {
		return -1
	}
	return from - 1
}

func (s *Span) reaches(key []byte) bool { return len(s.End) == 0 || bytes.Compare(key, s.End) < 0 }

// Covers reports whether all keys from low up to high (without bound if rightmost) were taken.
func (r *Table) Covers(low, high []byte, rightmost bool) bool {
	if r.At(low) < 0 {
		return false
	}
	_, end := r.Around(low)
	return len(end) == 0 || !rightmost && bytes.Compare(high, end) <= 0
}

// MayMerge reports whether a leaf of the keys from low up to high may be merged with a neighbour:
// all its keys were taken, and it is not in a range that is being given. So no merge crosses an end
// of that range once a leaf begins there: at the lower end the right one of the two lies in the
// range, at the upper end the left one.
func (r *Table) MayMerge(low, high []byte, rightmost bool) bool {
	return r.Covers(low, high, rightmost) && (r.Leaving == nil || bytes.Compare(low, r.Leaving.Start) < 0 || !r.Leaving.reaches(low))
}

// Around returns the taken keys around key without a gap, from low up to high; an empty high is the
// upper end of the key space. key must have been taken.
func (r *Table) Around(key []byte) (low, high []byte) {
	i := r.At(key)
	k := i
	for ; i > 0 && bytes.Equal(r.spans[i-1].End, r.spans[i].Start); i-- {
	}
	for ; k+1 < len(r.spans) && bytes.Equal(r.spans[k].End, r.spans[k+1].Start); k++ {
	}
	return r.spans[i].Start, r.spans[k].End
}

// below returns the number of the span that holds the keys right below key (of all keys, if key is
// empty); -1 if none does.
func (r *Table) below(key []byte) int {
	for i := range r.spans {
		s := &r.spans[i]
		if len(key) == 0 && len(s.End) == 0 {
			return i
		}
		if len(key) > 0 && bytes.Compare(s.Start, key) < 0 && (len(s.End) == 0 || bytes.Compare(key, s.End) <= 0) {
			return i
		}
	}
	return -1
}

// Giving returns r with s being given.
func (r *Table) Giving(s Span) *Table { return &Table{spans: r.spans, Leaving: &s} }

// Without returns r without the keys from start up to end. Nothing of r is being given.
func (r *Table) Without(start, end []byte) *Table {
	out := &Table{}
	for _, s := range r.spans {
		if bytes.Compare(s.Start, start) < 0 {
			left := s
			if s.reaches(start) {
				left.End = start
			}
			out.spans = append(out.spans, left)
		}
		if len(end) > 0 && s.reaches(end) {
			right := s
			if bytes.Compare(s.Start, end) < 0 {
				right.Start = end
			}
			out.spans = append(out.spans, right)
		}
	}
	return out
}

// With returns r and s.
func (r *Table) With(s Span) *Table {
	out := r.Without(s.Start, s.End)
	out.spans = append(out.spans, s)
	slices.SortFunc(out.spans, func(a, b Span) int { return bytes.Compare(a.Start, b.Start) })
	return out
}

// Bound returns how far the keys of r reach without a gap from cursor on (or, if reverse, below it;
// an empty cursor is then above all keys) that were in before, an earlier table, in the same epoch.
// ok is false if there are none.
func (r *Table) Bound(before *Table, cursor []byte, reverse bool) (bound []byte, ok bool) {
	i, step := 0, 1
	if reverse {
		i, step = r.below(cursor), -1
	} else {
		i = r.At(cursor)
	}
	for ; i >= 0 && i < len(r.spans); i += step {
		span := &r.spans[i]
		if ok && (reverse && !bytes.Equal(span.End, cursor) || !reverse && !bytes.Equal(span.Start, cursor)) {
			break
		}
		if k := before.At(span.Start); k < 0 || before.spans[k].Epoch != span.Epoch {
			break
		}
		if ok = true; reverse {
			cursor = span.Start
		} else if cursor = span.End; len(cursor) == 0 {
			return nil, true
		}
	}
	return cursor, ok
}

// Reach is how far a scan may go: as far as Bound of the table of its beginning. The zero value is
// of no scan.
type Reach struct {
	first *Table
	last  *Table // when it was last asked
	bound []byte // then
}

// Begin makes r that of a scan that begins now.
func (r *Reach) Begin(now *Table) { *r = Reach{first: now} }

// Starts reports whether there are keys from cursor on, as in Bound.
func (r *Reach) Starts(cursor []byte, reverse bool) bool {
	_, ok := r.first.Bound(r.first, cursor, reverse)
	return ok
}

// Bound is that of the table as it is now.
func (r *Reach) Bound(now *Table, cursor []byte, reverse bool) (bound []byte, ok bool) {
	if now == r.last { // the usual case
		return r.bound, true
	}
	if bound, ok = now.Bound(r.first, cursor, reverse); ok {
		r.last, r.bound = now, bound
	}
	return bound, ok
}
