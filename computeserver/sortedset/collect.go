package sortedset

import (
	"bytes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Collect looks at some keys of one number, from a place on up to end. Under a number that is dead
// it removes them. Else it settles what is pending, removes entries that are stale, and the head of
// a set without members. It returns where the next call goes on, and nil at the end; did is how
// many pairs it removed. A call reads at most walkMost keys. What it does others may do at any time
// as well, so several servers may each collect a part of a set.
func (s *Sets) Collect(from, end []byte) (next []byte, did int, err error) {
	if limit := after([]byte(Prefix)); len(end) == 0 || bytes.Compare(end, limit) > 0 {
		end = limit
	}
	if bytes.Compare(from, []byte(Prefix)) < 0 {
		from = []byte(Prefix)
	}
	if bytes.Compare(from, end) >= 0 {
		return nil, 0, nil
	}
	var n number
	var of []under
	strange := false
	if err := s.Index.Scan(from, end, walkMost, false, func(key, value []byte) bool {
		at, ok := numberOf(key)
		if strange = !ok && len(of) == 0; strange {
			next = append(bytes.Clone(key), 0)
			return false
		}
		if len(of) == 0 {
			n = at
		}
		if !ok || at != n {
			next = bytes.Clone(key)
			return false
		}
		of = append(of, under{bytes.Clone(key), bytes.Clone(value)})
		return true
	}); err != nil || len(of) == 0 {
		return next, 0, err
	}
	if next == nil && len(of) == walkMost {
		next = append(bytes.Clone(of[len(of)-1].key), 0)
	}
	key, alive, err := s.owner(n)
	switch {
	case err != nil:
	case !alive:
		did, err = s.sweep(of)
	default:
		did, err = s.tidy(key, n, of)
	}
	return next, did, err
}

// under is a pair under a number.
type under struct{ key, value []byte }

// tidy settles and removes what has to be under a number that is alive.
func (s *Sets) tidy(key []byte, n number, of []under) (did int, err error) {
	var pending []*edit
	var entries [][]byte
	for _, u := range of {
		switch kind, rest := u.key[len(Prefix)+numberBytes], u.key[len(Prefix)+numberBytes+1:]; kind {
		case isItem:
			is, ok := parseItem(u.value)
			if !ok {
				return did, errForm
			}
			if is.pending {
				pending = append(pending, &edit{Pair: Pair{Member: rest}, was: is})
			}
		case isEntry:
			entries = append(entries, u.key)
		case isRoot:
			if err := s.closeEmpty(key, n); err != nil {
				return did, err
			}
		}
	}
	if _, err := s.settleMost(key, n, pending); err != nil {
		return did, err
	}
	_, did, err = s.check(key, n, entries)
	return did, err
}

// Unmade removes a head that a server left which died while it made a set. key has the given head.
func (s *Sets) Unmade(key, stored []byte) error {
	h, ok := parseHead(stored)
	if !ok || h.state != isNew {
		return nil
	}
	_, err := s.swap(key, &h, nil)
	return err
}

// owner returns the key of a number, and whether it is alive.
func (s *Sets) owner(n number) (key []byte, alive bool, err error) {
	root := s.one(&rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: n.root()})
	switch root.Code {
	case rpcv1.Outcome_NOT_FOUND:
		return nil, false, nil
	case rpcv1.Outcome_OK:
	default:
		return nil, false, s.failed(root)
	}
	key = bytes.Clone(root.Value)
	o := s.one(&rpcv1.Operation{Kind: rpcv1.Operation_SET_HEAD, Key: key})
	if o.Code == rpcv1.Outcome_WRONG_TYPE {
		return key, false, nil
	}
	h, there, err := s.headOf(o)
	return key, there && h.number == n, err
}

// sweep removes what lies under a number that is dead.
func (s *Sets) sweep(of []under) (removed int, err error) {
	ops := make([]*rpcv1.Operation, len(of))
	for i, u := range of {
		ops[i] = &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: u.key}
	}
	for _, o := range s.do(ops) {
		if !o.Code.Meaning().Answer {
			return removed, s.failed(o)
		}
		removed++
	}
	return removed, nil
}
