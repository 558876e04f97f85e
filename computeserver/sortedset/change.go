package sortedset

import (
	"math"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// changeMost is how many members are changed side by side.
const changeMost = 128

// Rule is when a member gets its score.
type Rule struct {
	Absent, Present bool // only a new one; only one that is there
	Greater, Less   bool // one that is there only to a greater score, or a lower one
	Add             bool // the score is added to the one it has
}

// Pair is a member and its score.
type Pair struct {
	Member []byte
	Score  float64
}

// Added is what Add did.
type Added struct {
	New, Changed int
	Score        float64 // that the last member has
	Done         bool    // the rule let it have that
}

// edit is one member of a change.
type edit struct {
	Pair
	did       bool    // has its outcome
	done, new bool    // the rule let it; it was not there
	changed   bool    // it has another score
	now       float64 // that it has
	was       item    // pending, between steps
}

// undone are those edits that have no outcome yet.
func undone(edits []*edit) (left []*edit) {
	for _, e := range edits {
		if !e.did {
			left = append(left, e)
		}
	}
	return left
}

// decide says what becomes of a member that has the score old, if it is there.
func (r Rule) decide(score, old float64, there bool) (to float64, do bool, err error) {
	switch {
	case there && r.Absent, !there && r.Present:
		return old, false, nil
	case there && r.Add:
		score += old
	}
	if math.IsNaN(score) {
		return old, false, failure(rpcv1.Outcome_WRONG_VALUE, "resulting score is not a number (NaN)")
	}
	if score == 0 {
		score = 0 // not -0, which is the same
	}
	if there && (r.Greater && score <= old || r.Less && score >= old) {
		return old, false, nil
	}
	return score, true, nil
}

// Add gives members their scores, one after the other where one is named twice. Scores are not NaN.
func (s *Sets) Add(key []byte, r Rule, pairs []Pair) (out Added, err error) {
	defer func() { err = s.ended(err) }()
	if err = s.Check(key); err != nil {
		return out, err
	}
	for _, p := range pairs {
		if err = s.checkMember(p.Member); err != nil {
			return out, err
		}
	}
	for len(pairs) > 0 {
		var edits []*edit
		seen := map[string]bool{}
		for len(pairs) > 0 && len(edits) < changeMost && !seen[string(pairs[0].Member)] {
			seen[string(pairs[0].Member)] = true
			edits = append(edits, &edit{Pair: pairs[0]})
			pairs = pairs[1:]
		}
		if err = s.apply(key, r, edits); err != nil {
			return out, err
		}
		for _, e := range edits {
			if e.new {
				out.New++
			}
			if e.changed && !e.new {
				out.Changed++
			}
			out.Score, out.Done = e.now, e.done
		}
	}
	return out, nil
}

// apply changes different members.
func (s *Sets) apply(key []byte, r Rule, todo []*edit) error {
	for try := range tries {
		if try > 0 {
			s.Index.Pause(try)
		}
		h, there, err := s.head(key)
		if err != nil {
			return err
		}
		var known []*edit
		if !there || h.state == isNew {
			for _, e := range todo { // what is not there has no item
				e.was = item{}
			}
			known = todo
		} else if known, err = s.look(key, h.number, todo); err != nil {
			return err
		}
		var ops []*rpcv1.Operation
		var changing []*edit
		for _, e := range known {
			there := e.was != item{}
			to, do, err := r.decide(e.Score, e.was.score, there)
			if err != nil {
				return err
			}
			e.done, e.new, e.now = do, do && !there, to
			if e.changed = do && (!there || to != e.was.score); !e.changed {
				e.did = true
				continue
			}
			changing = append(changing, e)
		}
		if len(changing) > 0 && (!there || h.state == isNew) {
			if h, err = s.made(key); err != nil {
				return err
			}
		}
		for _, e := range changing {
			op := &rpcv1.Operation{Kind: rpcv1.Operation_SWAP, Key: h.number.item(e.Member), Condition: rpcv1.Operation_ABSENT}
			if !e.new {
				op.Condition, op.Operand = rpcv1.Operation_EQUAL, e.was.marshal()
			}
			e.was = item{pending: true, had: !e.new, score: e.now, stamp: s.draw(), former: e.was.score, formerStamp: e.was.stamp}
			op.Value = e.was.marshal()
			ops = append(ops, op)
		}
		var begun []*edit
		var failed *rpcv1.Outcome
		for i, o := range s.do(ops) {
			switch o.Code {
			case rpcv1.Outcome_OK:
				begun = append(begun, changing[i])
			case rpcv1.Outcome_ALREADY_EXISTS, rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_MISMATCH:
			default:
				s.changed = s.changed || o.Code == rpcv1.Outcome_UNKNOWN
				failed = o
			}
		}
		if err := s.settle(key, h.number, begun); err != nil {
			s.changed = !s.takeBack(key, h.number, begun) || s.changed
			return err
		}
		s.changed = s.changed || len(begun) > 0
		if err := s.abandon(h.number, begun); err != nil {
			return err
		}
		if failed != nil {
			return &Failure{failed}
		}
		if todo = undone(todo); len(todo) == 0 {
			return nil
		}
	}
	return errBusy
}

// do is Index.Do of any number of operations.
func (s *Sets) do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	if len(ops) == 0 {
		return nil
	}
	return s.Index.Do(ops)
}

// Remove removes members, and returns how many were there. A set without members is gone.
func (s *Sets) Remove(key []byte, members [][]byte) (removed int, err error) {
	defer func() { err = s.ended(err) }()
	seen := map[string]bool{}
	var n number
	for len(members) > 0 {
		var edits []*edit
		for len(members) > 0 && len(edits) < changeMost {
			// One that is too long is not there.
			if !seen[string(members[0])] && s.checkMember(members[0]) == nil {
				seen[string(members[0])] = true
				edits = append(edits, &edit{Pair: Pair{Member: members[0]}})
			}
			members = members[1:]
		}
		for try := 0; len(edits) > 0; try++ {
			if try == tries {
				return removed, errBusy
			}
			if try > 0 {
				s.Index.Pause(try)
			}
			h, there, err := s.head(key)
			if err != nil || !there {
				return removed, err
			}
			n = h.number
			if err := s.read(n, edits); err != nil {
				return removed, err
			}
			var present []*edit
			for _, e := range edits {
				if e.was.seen() == (item{}) {
					e.did = true
				} else {
					present = append(present, e)
				}
			}
			gone, err := s.remove(n, present)
			if removed += len(gone); err != nil {
				return removed, err
			}
			edits = undone(edits)
		}
	}
	if removed > 0 {
		_ = s.closeEmpty(key, n) // Collect does it later
	}
	return removed, nil
}

// remove removes members whose items are known, and returns those that it removed. A change that is
// pending is made, and undone with its member.
func (s *Sets) remove(n number, edits []*edit) (gone []*edit, err error) {
	ops := make([]*rpcv1.Operation, len(edits))
	for i, e := range edits {
		ops[i] = &rpcv1.Operation{Kind: rpcv1.Operation_REMOVE, Key: n.item(e.Member), Condition: rpcv1.Operation_EQUAL, Operand: e.was.marshal()}
	}
	var failed *rpcv1.Outcome
	var stale []*rpcv1.Operation
	for i, o := range s.do(ops) {
		e := edits[i]
		switch o.Code {
		case rpcv1.Outcome_OK:
			s.changed, e.did = true, true
			gone = append(gone, e)
			stale = append(stale, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: n.entry(e.was.score, e.Member, e.was.stamp)})
			if e.was.had {
				stale = append(stale, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: n.entry(e.was.former, e.Member, e.was.formerStamp)})
			}
		case rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_MISMATCH:
		default:
			s.doubt = s.doubt || o.Code == rpcv1.Outcome_UNKNOWN
			s.changed = s.changed || s.doubt
			failed = o
		}
	}
	s.do(stale) // what is left of them counts no more
	if failed != nil {
		err = &Failure{failed}
	}
	return gone, err
}
