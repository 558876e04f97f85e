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

// Added is what an addition did.
type Added struct {
	New, Changed int
	Score        float64 // that the last member has
	Done         bool    // the rule let it have that
}

// Addition is what one command adds to a set.
type Addition struct {
	Rule  Rule
	Pairs []Pair

	Did Added
	Err error // with which it ended

	touched bool // a member was changed, or may have been
}

// edit is one member of a change.
type edit struct {
	Pair
	of      *Addition // nil if it is none's
	did     bool      // has its outcome
	err     error     // ends it
	touched bool      // it was changed, or may have been, and that was not taken back
	done    bool      // the rule let it
	new     bool      // it was not there
	changed bool      // it has another score
	now     float64   // that it has
	was     item      // pending, between steps
}

// undone are those edits that have no outcome yet.
func undone(edits []*edit) (left []*edit) {
	for _, e := range edits {
		if !e.did && e.err == nil {
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
func (s *Sets) Add(key []byte, r Rule, pairs []Pair) (Added, error) {
	one := [1]Addition{{Rule: r, Pairs: pairs}}
	s.AddEach(key, one[:])
	return one[0].Did, one[0].Err
}

// AddEach does several additions, each as Add. They are done side by side, changeMost members at a
// time: others may see a later one before an earlier one, and where one ends with an error those
// behind it may be done. Only changes of one member are made in the order of their additions, and
// what comes behind one in doubt is done all the same, as if it were asked for later.
func (s *Sets) AddEach(key []byte, all []Addition) {
	members := 0
	for i := range all {
		a := &all[i]
		if a.Err = s.Check(key); a.Err == nil {
			for _, p := range a.Pairs {
				if a.Err = s.checkMember(p.Member); a.Err != nil {
					break
				}
			}
		}
		members += len(a.Pairs)
	}
	most := min(members, changeMost)
	slab, some := make([]edit, most), make([]*edit, 0, most) // used again: callers hold the pairs
	seen := make(map[string]struct{}, most)
	change := func() {
		s.apply(key, some)
		some = some[:0]
		clear(slab)
		clear(seen)
	}
	for i := range all {
		a := &all[i]
		for _, p := range a.Pairs {
			if _, twice := seen[string(p.Member)]; twice || len(some) == changeMost {
				change()
			}
			if a.Err != nil {
				break
			}
			e := &slab[len(some)]
			e.Pair, e.of = p, a
			seen[string(p.Member)] = struct{}{}
			some = append(some, e)
		}
	}
	change()
	for i := range all {
		all[i].Err = endError(all[i].Err, all[i].touched)
	}
}

// apply changes different members, and tells their additions.
func (s *Sets) apply(key []byte, edits []*edit) {
	var err error
	for try, todo := 0, edits; err == nil; try++ {
		if todo = undone(todo); len(todo) == 0 {
			break
		}
		if try == tries {
			err = errBusy
			break
		}
		if try > 0 {
			s.Index.Pause(try)
		}
		err = s.attempt(key, todo)
	}
	for _, e := range edits {
		a := e.of
		if !e.did && e.err == nil {
			e.err = err
		}
		a.touched = a.touched || e.touched
		if e.err != nil {
			if a.Err == nil {
				a.Err = e.err
			}
			continue
		}
		if e.new {
			a.Did.New++
		}
		if e.changed && !e.new {
			a.Did.Changed++
		}
		a.Did.Score, a.Did.Done = e.now, e.done
	}
}

// attempt changes different members, or some of them where others change them too. An error holds
// for all that have no outcome.
func (s *Sets) attempt(key []byte, todo []*edit) error {
	h, there, err := s.head(key)
	if err != nil {
		return err
	}
	known := todo
	if !there || h.state == isNew {
		for _, e := range todo { // what is not there has no item
			e.was = item{}
		}
	} else {
		if h.state == isMade {
			todo = s.addInOneStep(key, h, todo)
		}
		if known, err = s.readSettling(key, h.number, todo); err != nil {
			return err
		}
	}
	changing := make([]*edit, 0, len(known))
	for _, e := range known {
		if e.decide(); e.changed && e.err == nil {
			changing = append(changing, e)
		}
	}
	if len(changing) == 0 {
		return nil
	}
	if !there || h.state == isNew {
		if h, err = s.getOrMake(key); err != nil {
			return err
		}
		if h.state == isMade {
			changing = s.addInOneStep(key, h, changing)
		}
	}
	t := newStep(len(changing), itemKeys(changing)+2*itemBytes*len(changing))
	for _, e := range changing {
		op := t.add(rpcv1.Operation_SWAP)
		if op.Key, op.Condition = t.item(h.number, e.Member), rpcv1.Operation_ABSENT; !e.new {
			op.Condition, op.Operand = rpcv1.Operation_EQUAL, t.stored(e.was)
		}
		e.was = item{pending: true, had: !e.new, marked: e.was.marked, score: e.now, stamp: s.draw(), former: e.was.score, formerStamp: e.was.stamp}
		op.Value = t.stored(e.was)
	}
	begun := make([]*edit, 0, len(changing))
	for i, o := range s.do(t) {
		switch e := changing[i]; o.Code {
		case rpcv1.Outcome_OK:
			e.touched = true
			begun = append(begun, e)
		case rpcv1.Outcome_ALREADY_EXISTS, rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_MISMATCH:
		default:
			e.touched, e.err = o.Code == rpcv1.Outcome_UNKNOWN, &Failure{o}
		}
	}
	s.settle(key, h.number, begun)
	s.takeBack(key, h.number, begun)
	s.abandon(h.number, begun)
	return nil
}

// decide notes what becomes of a member whose item is known.
func (e *edit) decide() {
	there := e.was != item{}
	to, do, err := e.of.Rule.decide(e.Score, e.was.score, there)
	if err != nil {
		e.err = err
		return
	}
	e.done, e.new, e.now = do, do && !there, to
	e.changed = do && (!there || to != e.was.score)
	e.did = !e.changed
}

// Remove removes members, and returns how many were there. A set without members is gone.
func (s *Sets) Remove(key []byte, members [][]byte) (removed int, err error) {
	defer func() { err = s.endError(err) }()
	seen := map[string]bool{} // one that comes again later is removed again, if others added it
	var n number
	for len(members) > 0 {
		clear(seen)
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
			gone, left, err := s.removeInOneStep(n, edits, false)
			if removed += len(gone); err != nil {
				return removed, err
			}
			if err := s.read(n, left); err != nil {
				return removed, err
			}
			var present []*edit
			for _, e := range left {
				if e.was.effective() == (item{}) {
					e.did = true
				} else {
					present = append(present, e)
				}
			}
			gone, err = s.removeInSteps(n, present)
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

// remove removes members whose items are known and settled, and returns those that it removed.
func (s *Sets) remove(n number, edits []*edit) (gone []*edit, err error) {
	gone, left, err := s.removeInOneStep(n, edits, true)
	if err != nil {
		return gone, err
	}
	more, err := s.removeInSteps(n, left)
	return append(gone, more...), err
}

// removeInSteps removes members whose items are known, and returns those that it removed. A change
// that is pending is made, and undone with its member.
func (s *Sets) removeInSteps(n number, edits []*edit) (gone []*edit, err error) {
	edits, err = s.unmark(n, edits)
	t := newStep(len(edits), itemKeys(edits)+itemBytes*len(edits))
	for _, e := range edits {
		op := t.add(rpcv1.Operation_REMOVE)
		op.Key, op.Condition, op.Operand = t.item(n, e.Member), rpcv1.Operation_EQUAL, t.stored(e.was)
	}
	stale := newStep(len(edits), entryKeys(edits))
	for i, o := range s.do(t) {
		e := edits[i]
		switch o.Code {
		case rpcv1.Outcome_OK:
			s.changed, e.did = true, true
			gone = append(gone, e)
			stale.add(rpcv1.Operation_DELETE).Key = stale.entry(n, e.was.score, e.Member, e.was.stamp)
			if e.was.had {
				stale.add(rpcv1.Operation_DELETE).Key = stale.entry(n, e.was.former, e.Member, e.was.formerStamp)
			}
		case rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_MISMATCH:
		default:
			s.doubt = s.doubt || o.Code == rpcv1.Outcome_UNKNOWN
			s.changed = s.changed || s.doubt
			err = &Failure{o}
		}
	}
	s.do(stale) // what is left of them counts no more
	return gone, err
}

// unmark takes the marks of the entries away by which members count, and returns the members whose
// entries have none.
func (s *Sets) unmark(n number, edits []*edit) (without []*edit, err error) {
	t := &step{}
	var marked []*edit
	for _, e := range edits {
		if !e.was.marked {
			without = append(without, e)
			continue
		}
		is := e.was.effective()
		t.unmark(n, is.score, e.Member, is.stamp)
		marked = append(marked, e)
	}
	for i, o := range s.do(t) {
		if failed := unmarked(o); failed != nil {
			err = failed
			continue
		}
		without = append(without, marked[i])
	}
	return without, err
}
