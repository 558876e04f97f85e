package sortedset

import rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"

// read reads the items of members into edit.was: the zero item where there is none.
func (s *Sets) read(n number, edits []*edit) error {
	ops := make([]*rpcv1.Operation, len(edits))
	for i, e := range edits {
		ops[i] = &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: n.item(e.Member)}
	}
	for i, o := range s.do(ops) {
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

// look is read. It returns those that are known; the others were pending, and are settled.
func (s *Sets) look(key []byte, n number, edits []*edit) (known []*edit, err error) {
	if err := s.read(n, edits); err != nil {
		return nil, err
	}
	var pending []*edit
	for _, e := range edits {
		if e.was.pending {
			pending = append(pending, &edit{Pair: e.Pair, was: e.was})
		} else {
			known = append(known, e)
		}
	}
	return known, s.settle(key, n, pending)
}

// meet is read for a command that changes nothing: see item.seen.
func (s *Sets) meet(key []byte, n number, edits []*edit) error {
	if err := s.read(n, edits); err != nil {
		return err
	}
	return s.complete(key, n, edits)
}

// complete settles those that are pending, and reads them again. Where there is no memory for an
// entry, the item stays pending, and its former entry is there.
func (s *Sets) complete(key []byte, n number, edits []*edit) error {
	pending := pendingOf(edits)
	if _, err := s.settleMost(key, n, pending); err != nil {
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

// settle takes steps 2 and 3 of pending items. An edit did what it was to do afterwards, unless the
// number is dead and the member was new.
func (s *Sets) settle(key []byte, n number, edits []*edit) error {
	full, err := s.settleMost(key, n, edits)
	if err == nil && full != nil {
		err = &Failure{full}
	}
	return err
}

// settleMost is settle, but for those whose entry has no memory (full, which is nil if there are
// none). Nothing was done for these, and they are as they were.
func (s *Sets) settleMost(key []byte, n number, edits []*edit) (full *rpcv1.Outcome, err error) {
	if len(edits) == 0 {
		return nil, nil
	}
	var ops []*rpcv1.Operation
	fresh := false
	for _, e := range edits {
		ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_UPSERT, Key: n.entry(e.was.score, e.Member, e.was.stamp)})
		fresh = fresh || !e.was.had
	}
	if fresh {
		ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_SET_HEAD, Key: key})
	}
	outcomes := s.do(ops)
	var lacking []int
	for i, o := range outcomes[:len(edits)] {
		switch o.Code {
		case rpcv1.Outcome_OK:
		case rpcv1.Outcome_POOL_FULL:
			lacking = append(lacking, i)
		default:
			return nil, &Failure{o}
		}
	}
	// One that is there already may take memory, too, where a design does not change it in place.
	var there []*rpcv1.Operation
	for _, i := range lacking {
		there = append(there, &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: ops[i].Key})
	}
	for n, o := range s.do(there) {
		switch i := lacking[n]; o.Code {
		case rpcv1.Outcome_OK:
			outcomes[i] = o
		case rpcv1.Outcome_NOT_FOUND:
			full = outcomes[i]
		default:
			return nil, &Failure{o}
		}
	}
	alive := true
	if fresh {
		if alive, err = s.alive(key, n, outcomes[len(edits)]); err != nil {
			return nil, err
		}
	}
	ops = ops[:0]
	var of []*edit
	for i, e := range edits {
		if outcomes[i].Code != rpcv1.Outcome_OK || !e.was.had && !alive {
			continue
		}
		of = append(of, e)
		ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_SWAP, Key: n.item(e.Member), Condition: rpcv1.Operation_EQUAL, Operand: e.was.marshal(), Value: e.was.settled().marshal()})
	}
	swaps := len(ops)
	for _, e := range of {
		if e.was.had {
			ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: n.entry(e.was.former, e.Member, e.was.formerStamp)})
		}
	}
	for i, o := range s.do(ops) {
		switch {
		case !o.Code.Meaning().Answer:
			err = &Failure{o}
		case i < swaps:
			of[i].did = true
		}
	}
	return full, err
}

// abandon takes back what settle did not do: new members under a number that is dead. Those that
// somebody else had settled before it died were members. Only who made a change takes it back.
func (s *Sets) abandon(n number, edits []*edit) error {
	var ops []*rpcv1.Operation
	var of []*edit
	for _, e := range edits {
		if !e.did {
			of = append(of, e)
			ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_REMOVE, Key: n.item(e.Member), Condition: rpcv1.Operation_EQUAL, Operand: e.was.marshal()})
		}
	}
	for i, o := range s.do(ops) {
		switch o.Code {
		case rpcv1.Outcome_OK:
		case rpcv1.Outcome_MISMATCH, rpcv1.Outcome_NOT_FOUND:
			// It was settled, and perhaps removed; or collected, and perhaps others wrote theirs.
			e := of[i]
			if is, ok := parseItem(o.Value); ok && (is.stamp == e.was.stamp || is.had && is.formerStamp == e.was.stamp) {
				e.did = true
				continue
			}
			return failure(rpcv1.Outcome_UNKNOWN, "the set was deleted meanwhile; whether the member was added before is not known")
		default:
			return &Failure{o}
		}
	}
	return nil
}

// takeBack takes new members back whose change failed in the middle, so that they do not come when
// nobody expects them any more. It reports whether nothing of the edits was done, nor will be. One
// whose item had a former score stays pending: others may have deleted the entry of that.
func (s *Sets) takeBack(key []byte, n number, edits []*edit) bool {
	all := true
	var ops []*rpcv1.Operation
	for _, e := range edits {
		if e.was.had {
			all = false
			continue
		}
		ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_REMOVE, Key: n.item(e.Member), Condition: rpcv1.Operation_EQUAL, Operand: e.was.marshal()})
	}
	for _, o := range s.do(ops) {
		all = all && o.Code == rpcv1.Outcome_OK
	}
	_ = s.closeEmpty(key, n) // Collect does it later
	return all
}
