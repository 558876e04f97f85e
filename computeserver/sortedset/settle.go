package sortedset

import rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"

// read reads the items of members into edit.was: the zero item where there is none.
func (s *Sets) read(n number, edits []*edit) error {
	t := newStep(len(edits), itemKeys(edits))
	for _, e := range edits {
		t.add(rpcv1.Operation_LOOKUP).Key = t.item(n, e.Member)
	}
	for i, o := range s.do(t) {
		is, ok := item{}, true
		switch o.Code {
		case rpcv1.Outcome_NOT_FOUND:
		case rpcv1.Outcome_OK:
			is, ok = parseItem(o.Value)
		default:
			return &Failure{o}
		}
		if edits[i].was = is; !ok {
			return errForm
		}
	}
	return nil
}

// readSettling is read. It returns those that are known. Of the others, changes were pending that
// others had begun: these are settled, or the edit has the error.
func (s *Sets) readSettling(key []byte, n number, edits []*edit) (known []*edit, err error) {
	if err := s.read(n, edits); err != nil {
		return nil, err
	}
	var met, pending []*edit
	for _, e := range edits {
		if e.was.pending {
			met, pending = append(met, e), append(pending, &edit{Pair: e.Pair, was: e.was})
		} else {
			known = append(known, e)
		}
	}
	s.settle(key, n, pending)
	for i, e := range met {
		e.err = pending[i].err
	}
	return known, nil
}

// readComplete is read for a command that changes nothing: see item.effective.
func (s *Sets) readComplete(key []byte, n number, edits []*edit) error {
	if err := s.read(n, edits); err != nil {
		return err
	}
	return s.complete(key, n, edits)
}

// complete settles those that are pending, and reads them again. Where there is no memory for an
// entry, the item stays pending, and its former entry is there.
func (s *Sets) complete(key []byte, n number, edits []*edit) error {
	pending := pendingOf(edits)
	if len(pending) == 0 {
		return nil
	}
	s.settle(key, n, pending)
	if err := failed(pending, true); err != nil {
		return err
	}
	return s.read(n, pending)
}

func pendingOf(edits []*edit) (pending []*edit) {
	for _, e := range edits {
		if e.was.pending {
			pending = append(pending, e)
		}
	}
	return pending
}

// failed is the first error of some edits, but, with full, that there was no memory.
func failed(edits []*edit, full bool) error {
	for _, e := range edits {
		if e.err != nil && !(full && codeOf(e.err) == rpcv1.Outcome_POOL_FULL) {
			return e.err
		}
	}
	return nil
}

// settle takes steps 2 and 3 of pending items. Afterwards an edit did what it was to do, or has the
// error of a step that failed, or neither: then the member was new, and its number is dead. With
// the error that there is no memory nothing was done for it, and it is as it was.
func (s *Sets) settle(key []byte, n number, edits []*edit) {
	if len(edits) == 0 {
		return
	}
	t := newStep(len(edits)+1, entryKeys(edits))
	fresh := false
	var marked []*edit
	for _, e := range edits {
		t.add(rpcv1.Operation_UPSERT).Key = t.entry(n, e.was.score, e.Member, e.was.stamp)
		fresh = fresh || !e.was.had
		if e.was.had && e.was.marked {
			marked = append(marked, e)
		}
	}
	if fresh {
		t.add(rpcv1.Operation_SET_HEAD).Key = key
	}
	unmark := len(t.ops)
	for _, e := range marked {
		t.unmark(n, e.was.former, e.Member, e.was.formerStamp)
	}
	outcomes := s.do(t)
	var lacking []*edit
	there := &step{}
	for i, e := range edits {
		e.did, e.err = false, nil
		switch o := outcomes[i]; o.Code {
		case rpcv1.Outcome_OK:
		case rpcv1.Outcome_POOL_FULL:
			e.err = &Failure{o}
			lacking = append(lacking, e)
			there.add(rpcv1.Operation_LOOKUP).Key = t.ops[i].Key
		default:
			e.err = &Failure{o}
		}
	}
	// One that is there already may take memory, too, where a design does not change it in place.
	for i, o := range s.do(there) {
		switch o.Code {
		case rpcv1.Outcome_OK:
			lacking[i].err = nil
		case rpcv1.Outcome_NOT_FOUND:
		default:
			lacking[i].err = &Failure{o}
		}
	}
	for i, e := range marked {
		if err := unmarked(outcomes[unmark+i]); err != nil {
			e.err = err
		}
	}
	alive := true
	var doubt error
	if fresh {
		alive, doubt = s.isCurrent(key, n, outcomes[len(edits)])
	}
	var of []*edit
	for _, e := range edits {
		if !e.was.had && e.err == nil {
			e.err = doubt
		}
		if e.err == nil && (e.was.had || alive) {
			of = append(of, e)
		}
	}
	t = newStep(len(of), itemKeys(of)+2*itemBytes*len(of))
	for _, e := range of {
		op := t.add(rpcv1.Operation_SWAP)
		op.Key, op.Condition, op.Operand, op.Value = t.item(n, e.Member), rpcv1.Operation_EQUAL, t.stored(e.was), t.stored(e.was.settled())
	}
	former := &step{}
	for i, o := range s.do(t) {
		e := of[i]
		if e.did = o.Code.Meaning().Answer; !e.did {
			e.err = &Failure{o}
		}
		// Whoever settled it deletes it. Where somebody took the change back, it counts.
		if o.Code == rpcv1.Outcome_OK && e.was.had {
			former.add(rpcv1.Operation_DELETE).Key = former.entry(n, e.was.former, e.Member, e.was.formerStamp)
		}
	}
	s.do(former) // what is left of them is met
}

// abandon takes back what settle did not do: new members under a number that is dead. Those that
// somebody else had settled before it died were members. Only who made a change takes it back.
func (s *Sets) abandon(n number, edits []*edit) {
	var of []*edit
	for _, e := range edits {
		if !e.did && e.err == nil {
			of = append(of, e)
		}
	}
	for i, o := range s.do(takenBack(n, of)) {
		e := of[i]
		switch o.Code {
		case rpcv1.Outcome_OK:
			e.touched = false
		case rpcv1.Outcome_MISMATCH, rpcv1.Outcome_NOT_FOUND:
			// It was settled, and perhaps removed; or collected, and perhaps others wrote theirs.
			is, ok := parseItem(o.Value)
			if e.did = ok && (is.stamp == e.was.stamp || is.had && is.formerStamp == e.was.stamp); !e.did {
				e.err = failure(rpcv1.Outcome_UNKNOWN, "the set was deleted meanwhile; whether the member was added before is not known")
			}
		default:
			e.err = &Failure{o}
		}
	}
}

// takenBack is the step that takes changes back which are pending: a new member goes, and another
// one gets what it had.
func takenBack(n number, edits []*edit) *step {
	t := newStep(len(edits), itemKeys(edits)+2*itemBytes*len(edits))
	for _, e := range edits {
		op := t.add(rpcv1.Operation_REMOVE)
		if op.Key, op.Condition, op.Operand = t.item(n, e.Member), rpcv1.Operation_EQUAL, t.stored(e.was); e.was.had {
			op.Kind, op.Value = rpcv1.Operation_SWAP, t.stored(e.was.undone())
		}
	}
	return t
}

// takeBack takes changes back that failed in the middle, so that they do not come when nobody
// expects them any more. Those edits are untouched whose item was still that of step 1: then
// nothing of them was done, nor will be.
func (s *Sets) takeBack(key []byte, n number, edits []*edit) {
	var of []*edit
	fresh := false
	for _, e := range edits {
		if e.err != nil {
			of = append(of, e)
			fresh = fresh || !e.was.had
		}
	}
	if len(of) == 0 {
		return
	}
	for i, o := range s.do(takenBack(n, of)) {
		of[i].touched = o.Code != rpcv1.Outcome_OK
	}
	if fresh {
		_ = s.closeEmpty(key, n) // Collect does it later
	}
}
