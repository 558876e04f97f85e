package sortedset

import (
	"bytes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Collect looks at the first number from a place on, which begins with Prefix, up to end. It
// removes what lies under a number that is dead, settles pending items of one that is alive, and
// removes the head of a set without members. It returns where the next call goes on, and nil at the
// end; did is how many pairs it removed. A call reads all items of one set. What it does others may
// do at any time as well.
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
	var first []byte
	if err := s.Index.Scan(from, end, 1, false, func(key, _ []byte) bool {
		first = bytes.Clone(key)
		return false
	}); err != nil || first == nil {
		return nil, 0, err
	}
	n, ok := numberOf(first)
	if !ok {
		return append(first, 0), 0, nil
	}
	low := append([]byte(Prefix), n[:]...)
	next = after(low)
	key, alive, err := s.owner(n)
	switch {
	case err != nil:
		return next, 0, err
	case !alive:
		did, err = s.sweep(low, next)
		return next, did, err
	}
	seen, err := s.walkItems(key, n, Ends{}, false, func(*edit) bool { return true })
	if err == nil && seen == 0 {
		err = s.closeEmpty(key, n)
	}
	return next, 0, err
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

// sweep removes all keys from start to end, in their order: the root is the last one.
func (s *Sets) sweep(start, end []byte) (removed int, err error) {
	for {
		var ops []*rpcv1.Operation
		if err := s.Index.Scan(start, end, walkMost, false, func(key, _ []byte) bool {
			ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: bytes.Clone(key)})
			return true
		}); err != nil {
			return removed, err
		}
		// The root goes by itself: with others it might go first, and only they might be left.
		if n := len(ops); n > 1 && bytes.HasSuffix(ops[n-1].Key, []byte{isRoot}) && len(ops[n-1].Key) == len(Prefix)+numberBytes+1 {
			ops = ops[:n-1]
		}
		for _, o := range s.do(ops) {
			if !o.Code.Meaning().Answer {
				return removed, s.failed(o)
			}
			removed++
		}
		if len(ops) == 0 {
			return removed, nil
		}
	}
}
