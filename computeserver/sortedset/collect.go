package sortedset

import (
	"bytes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Collect looks at the next keys from a place on up to end, at most walkMost. Under a number that
// is dead it removes them. Else it settles what is pending, removes entries that are stale, and the
// head of a set without members. It returns where the next call goes on, and nil at the end; did is
// how many pairs it removed. A set that cannot be collected keeps no other one from it. All that
// Collect does others may do at any time as well, so several servers may each collect a part of a
// set.
func (s *Sets) Collect(from, end []byte) (next []byte, did int, err error) {
	if limit := prefixEnd([]byte(Prefix)); len(end) == 0 || bytes.Compare(end, limit) > 0 {
		end = limit
	}
	if bytes.Compare(from, []byte(Prefix)) < 0 {
		from = []byte(Prefix)
	}
	if bytes.Compare(from, end) >= 0 {
		return nil, 0, nil
	}
	var all []*part
	looked := 0
	if err := s.Index.Scan(from, end, walkMost, false, func(key, value []byte) bool {
		if looked++; looked == walkMost {
			next = append(bytes.Clone(key), 0)
		}
		n, ok := numberOf(key)
		if !ok {
			return true
		}
		if len(all) == 0 || all[len(all)-1].number != n {
			all = append(all, &part{number: n})
		}
		at := all[len(all)-1]
		at.pairs = append(at.pairs, under{bytes.Clone(key), bytes.Clone(value)})
		return true
	}); err != nil {
		return nil, 0, err
	}
	err = s.owners(all)
	var dead []*rpcv1.Operation
	var alive []*part
	for _, p := range all {
		switch {
		case !p.known:
			continue
		case p.alive:
			alive = append(alive, p)
			continue
		}
		for _, u := range p.pairs {
			dead = append(dead, &rpcv1.Operation{Kind: rpcv1.Operation_DELETE, Key: u.key})
		}
	}
	for _, o := range s.doAll(dead) {
		if o.Code.Meaning().Answer {
			did++
		} else if err == nil {
			err = &Failure{o}
		}
	}
	if doubt := s.sift(alive); err == nil {
		err = doubt
	}
	for _, p := range alive {
		stale, failed := s.tidyPart(p)
		if did += stale; err == nil {
			err = failed
		}
	}
	return next, did, err
}

// part is some of the pairs under a number.
type part struct {
	number number
	key    []byte // of its set
	known  bool   // whether it is alive
	alive  bool
	pairs  []under

	// of one that is alive
	pending []*edit
	entries [][]byte // that may be stale
	empty   bool     // it may have no members: no item is here, nor an entry that counts
}

// under is a pair under a number.
type under struct{ key, value []byte }

// owners finds the keys of numbers, and which of them are alive, as far as it can.
func (s *Sets) owners(all []*part) (err error) {
	var ops []*rpcv1.Operation
	for _, p := range all {
		ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: p.number.root()})
	}
	var rooted []*part
	var heads []*rpcv1.Operation
	for i, o := range s.doAll(ops) {
		switch p := all[i]; o.Code {
		case rpcv1.Outcome_NOT_FOUND:
			p.known = true
		case rpcv1.Outcome_OK:
			p.key = bytes.Clone(o.Value)
			rooted = append(rooted, p)
			heads = append(heads, &rpcv1.Operation{Kind: rpcv1.Operation_SET_HEAD, Key: p.key})
		default:
			err = &Failure{o}
		}
	}
	for i, o := range s.doAll(heads) {
		p := rooted[i]
		if p.known = o.Code == rpcv1.Outcome_WRONG_TYPE; p.known {
			continue
		}
		h, there, failed := s.headOf(o)
		if failed != nil {
			err = failed
			continue
		}
		p.known, p.alive = true, there && h.number == p.number
	}
	return err
}

// sift finds what there is to do under numbers that are alive. It looks the items of all entries
// without a mark up side by side: nearly all of these count.
func (s *Sets) sift(all []*part) (err error) {
	type entry struct {
		of    *part
		key   []byte
		stamp stamp
	}
	var entries []entry
	var ops []*rpcv1.Operation
	for _, p := range all {
		members := false
		for _, u := range p.pairs {
			switch kind, rest := u.key[len(Prefix)+numberBytes], u.key[len(Prefix)+numberBytes+1:]; kind {
			case isItem:
				members = true
				if is, ok := parseItem(u.value); !ok {
					err = errForm
				} else if is.pending {
					p.pending = append(p.pending, &edit{Pair: Pair{Member: rest}, was: is})
				}
			case isEntry:
				member, of, ok := parseEntry(u.key)
				if !ok {
					err = errForm
					continue
				}
				if marks(u.value) {
					members = true
					continue
				}
				entries = append(entries, entry{p, u.key, of})
				ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: p.number.item(member)})
			case isRoot:
				p.empty = !members
			}
		}
	}
	for i, o := range s.doAll(ops) {
		e := entries[i]
		if is, ok := parseItem(o.Value); ok && !is.pending && is.stamp == e.stamp {
			e.of.empty = false
		} else {
			e.of.entries = append(e.of.entries, e.key)
		}
	}
	return err
}

// tidyPart settles and removes what has to be under a number that is alive.
func (s *Sets) tidyPart(p *part) (did int, err error) {
	if p.empty {
		if err := s.closeEmpty(p.key, p.number); err != nil {
			return did, err
		}
	}
	s.settle(p.key, p.number, p.pending)
	if err := failed(p.pending, true); err != nil || len(p.entries) == 0 {
		return did, err
	}
	_, did, err = s.check(p.key, p.number, p.entries, make([]bool, len(p.entries)))
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
