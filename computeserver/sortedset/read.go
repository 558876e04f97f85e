package sortedset

import (
	"bytes"
	"math"
	"slices"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// walkMost is how many entries or items are read side by side.
const walkMost = 256

// Scores calls visit with the score of each member; false if it is not there.
func (s *Sets) Scores(key []byte, members [][]byte, visit func(score float64, there bool)) error {
	for len(members) > 0 {
		some := members[:min(len(members), changeMost)]
		members = members[len(some):]
		all := make([]*edit, len(some))
		var todo []*edit
		for i, m := range some {
			all[i] = &edit{Pair: Pair{Member: m}}
			if s.checkMember(m) == nil { // else it is not there
				todo = append(todo, all[i])
			}
		}
		h, there, err := s.head(key)
		if there {
			err = s.readComplete(key, h.number, todo)
		}
		if err != nil {
			return err
		}
		for _, e := range all {
			is := e.was.effective()
			visit(is.score, is != item{})
		}
	}
	return nil
}

// Limit is one end of a range of scores.
type Limit struct {
	Score float64
	Open  bool // exclusive
}

// All is the range of every score.
var All = [2]Limit{{Score: math.Inf(-1)}, {Score: math.Inf(1)}}

// bounds are the entries of a range of scores: inclusive, exclusive.
func (n number) bounds(of [2]Limit) (start, end []byte) {
	start, end = appendScore(n.kindPrefix(isEntry), of[0].Score), appendScore(n.kindPrefix(isEntry), of[1].Score)
	if of[0].Open {
		start = prefixEnd(start)
	}
	if !of[1].Open {
		end = prefixEnd(end)
	}
	return start, end
}

// ByScore calls visit with the members of a range of scores, in their order or in reverse, until it
// returns false. Members of the same score are in their own order. Each that is there all the time
// with its score is seen once. hint is how many are wanted; 0 = many. visit is called while the set
// is read: it keeps no member, and asks the index for nothing.
func (s *Sets) ByScore(key []byte, of [2]Limit, reverse bool, hint int, visit func(p Pair) bool) error {
	return s.walkEntries(key, of, reverse, hint, true, visit, func(_ number, e *edit) bool {
		return visit(Pair{e.Member, e.was.effective().score})
	})
}

// keysTogether is how many bytes of keys lie in one array at most, if one alone is not longer, and
// keySpare is by how much the next ones may be longer than the first.
const (
	keysTogether = 16 << 10
	keySpare     = 4
)

// entries are entries that were read, whose items are to be looked up.
type entries struct {
	keys    [][]byte
	trusted []bool
	data    []byte // of the keys, in few arrays: members may be kept
}

// add adds one, of most altogether.
func (x *entries) add(key []byte, trusted bool, most int) {
	if x.keys == nil {
		x.keys, x.trusted = make([][]byte, 0, most), make([]bool, 0, most)
	}
	if cap(x.data)-len(x.data) < len(key) {
		x.data = make([]byte, 0, max(len(key), min(keysTogether, (most-len(x.keys))*(len(key)+keySpare))))
	}
	from := len(x.data)
	x.data = append(x.data, key...)
	x.keys, x.trusted = append(x.keys, x.data[from:len(x.data):len(x.data)]), append(x.trusted, trusted)
}

// walkEntries calls visit with the members of a range of scores, until it returns false. With
// trusts those whose entries have the mark are not looked up. If marked is not nil it is called in
// place of visit, while the entries are read, with those that come before any without the mark; it
// does not keep them.
func (s *Sets) walkEntries(key []byte, of [2]Limit, reverse bool, hint int, trusts bool, marked func(p Pair) bool, visit func(n number, e *edit) bool) error {
	h, there, err := s.head(key)
	if err != nil || !there {
		return err
	}
	start, end := h.number.bounds(of)
	var last []byte // of some
	for bytes.Compare(start, end) < 0 {
		most := walkMost
		if hint > 0 {
			most = min(most, hint)
		}
		var some entries
		seen, ended, form := 0, false, true
		err := s.Index.Scan(start, end, most, reverse, func(k, v []byte) bool {
			if seen++; seen == most {
				last = append(last[:0], k...)
			}
			if marked == nil || some.keys != nil || !marks(v) {
				some.add(k, trusts && marks(v), most-seen+1)
				return true
			}
			member, _, ok := parseEntry(k)
			form = ok
			ended = !ok || !marked(Pair{member, scoreOf(k)})
			return !ended
		})
		if !form {
			return errForm
		}
		if err != nil || ended {
			return err
		}
		count, _, err := s.check(key, h.number, some.keys, some.trusted)
		if err != nil {
			return err
		}
		for _, e := range count {
			if !visit(h.number, e) {
				return nil
			}
		}
		if seen < most {
			return nil
		}
		if reverse {
			end = last
		} else {
			start = prefixEnd(last)
		}
	}
	return nil
}

// check returns the members of those entries that count, and deletes those that never will again.
// Those that are trusted have the mark. Members may lie in the keys.
func (s *Sets) check(key []byte, n number, entries [][]byte, trusted []bool) (count []*edit, stale int, err error) {
	if len(entries) == 0 {
		return nil, 0, nil
	}
	all, stamps, slab := make([]*edit, 0, len(entries)), make([]stamp, len(entries)), make([]edit, len(entries))
	for i, k := range entries {
		member, of, ok := parseEntry(k)
		if !ok {
			return nil, 0, errForm
		}
		stamps[i], slab[i].Member = of, member
		if trusted[i] {
			slab[i].was = item{score: scoreOf(k), stamp: of, marked: true}
		} else {
			all = append(all, &slab[i])
		}
	}
	if err := s.readComplete(key, n, all); err != nil {
		return nil, 0, err
	}
	var t step
	count = all[:0]
	for i := range slab {
		e := &slab[i]
		switch is := e.was.effective(); {
		case is != (item{}) && is.stamp == stamps[i]:
			count = append(count, e)
		case e.was.pending && e.was.stamp == stamps[i]: // it is about to count
		default:
			t.add(rpcv1.Operation_DELETE).Key = entries[i]
		}
	}
	s.do(&t) // what is left of them is met again
	return count, len(t.ops), nil
}

// Ends are the ends of a range of members: from is inclusive, to exclusive; nil is no end. Hint is
// how many members are read at a time; 0 = many.
type Ends struct {
	From, To []byte
	Hint     int
}

// ByMember calls visit with the members of a range in their own order, whatever their scores are,
// or in reverse, until it returns false. visit may keep the member.
func (s *Sets) ByMember(key []byte, of Ends, reverse bool, visit func(p Pair) bool) error {
	h, there, err := s.head(key)
	if err != nil || !there {
		return err
	}
	return s.walkItems(key, h.number, of, reverse, func(e *edit) bool { return visit(Pair{e.Member, e.was.effective().score}) })
}

// walkItems calls visit with the members of a number in their own order, or in reverse, until it
// returns false.
func (s *Sets) walkItems(key []byte, n number, of Ends, reverse bool, visit func(e *edit) bool) error {
	low := n.kindPrefix(isItem)
	start, end := append(bytes.Clone(low), of.From...), prefixEnd(low)
	if of.To != nil {
		end = append(bytes.Clone(low), of.To...)
	}
	most := walkMost
	if of.Hint > 0 {
		most = min(of.Hint, walkMost)
	}
	for bytes.Compare(start, end) < 0 {
		var edits []*edit
		ok := true
		err := s.Index.Scan(start, end, most, reverse, func(k, v []byte) bool {
			e := &edit{Pair: Pair{Member: bytes.Clone(k[len(low):])}}
			e.was, ok = parseItem(v)
			edits = append(edits, e)
			return ok
		})
		if !ok {
			err = errForm
		}
		if err == nil {
			err = s.complete(key, n, edits)
		}
		if err != nil {
			return err
		}
		for _, e := range edits {
			if e.was.effective() != (item{}) && !visit(e) {
				return nil
			}
		}
		if len(edits) < most {
			return nil
		}
		if last := edits[len(edits)-1].Member; reverse {
			end = n.item(last)
		} else {
			start = append(n.item(last), 0)
		}
	}
	return nil
}

// Card counts the members: it reads all of them.
func (s *Sets) Card(key []byte) (n int64, err error) {
	err = s.ByMember(key, Ends{}, false, func(Pair) bool { n++; return true })
	return n, err
}

// Count counts the members of a range of scores: it reads all of them.
func (s *Sets) Count(key []byte, of [2]Limit) (n int64, err error) {
	err = s.ByScore(key, of, false, 0, func(Pair) bool { n++; return true })
	return n, err
}

// Rank is how many members stand before one, in their order or in reverse: it reads all of them.
// It is false if the member is not there.
func (s *Sets) Rank(key, member []byte, reverse bool) (rank int64, score float64, there bool, err error) {
	err = s.Scores(key, [][]byte{member}, func(has float64, is bool) { score, there = has, is })
	if err != nil || !there {
		return 0, 0, false, err
	}
	of := All
	if reverse {
		of[0] = Limit{Score: score}
	} else {
		of[1] = Limit{Score: score}
	}
	err = s.ByScore(key, of, reverse, 0, func(p Pair) bool {
		if p.Score == score {
			switch order := bytes.Compare(p.Member, member); {
			case order == 0, order > 0 != reverse: // it has moved, if it was not seen
				return false
			}
		}
		rank++
		return true
	})
	return rank, score, true, err
}

// Pop removes up to count members with the lowest scores, or with reverse the highest, and returns
// them. An error says that none was removed, or that it is not known of some: those that were are
// returned with it. Where it is known of all, they are returned without the error that ended it.
func (s *Sets) Pop(key []byte, reverse bool, count int) ([]Pair, error) {
	if count == 0 {
		_, _, err := s.head(key)
		return nil, err
	}
	gone, err := s.removeRange(key, All, reverse, count)
	if len(gone) > 0 && !s.doubt {
		err = nil
	}
	return gone, s.endError(err)
}

// RemoveByScore removes the members of a range of scores, and returns how many.
func (s *Sets) RemoveByScore(key []byte, of [2]Limit) (n int64, err error) {
	for {
		gone, err := s.removeRange(key, of, false, walkMost)
		n += int64(len(gone))
		if len(gone) < walkMost || err != nil {
			return n, s.endError(err)
		}
	}
}

// removeRange removes up to count members of a range of scores, one by one as they are met.
func (s *Sets) removeRange(key []byte, of [2]Limit, reverse bool, count int) (gone []Pair, err error) {
	var n number
	trusts := true // until an item is not as its entry says
	for try := 0; len(gone) < count; try++ {
		if try == tries {
			return gone, errBusy
		}
		var some []*edit
		err := s.walkEntries(key, of, reverse, min(count-len(gone), changeMost), trusts, nil, func(at number, e *edit) bool {
			n = at
			some = append(some, e)
			return len(some) < min(count-len(gone), changeMost)
		})
		if err != nil {
			return gone, err
		}
		if len(some) == 0 {
			break
		}
		// One that is pending leaves the range, perhaps: it is walked again.
		pending := pendingOf(some)
		s.settle(key, n, pending)
		if err := failed(pending, false); err != nil {
			return gone, err
		}
		some = slices.DeleteFunc(some, func(e *edit) bool { return e.was.pending })
		removed, err := s.remove(n, some)
		trusts = trusts && len(removed) == len(some)
		for _, e := range removed {
			gone = append(gone, Pair{e.Member, e.was.score})
		}
		if err != nil {
			return gone, err
		}
		if len(removed) > 0 {
			try = 0
		} else {
			s.Index.Pause(try + 1)
		}
	}
	if len(gone) > 0 {
		_ = s.closeEmpty(key, n) // Collect does it later
	}
	return gone, nil
}
