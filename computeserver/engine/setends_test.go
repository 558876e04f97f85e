package engine

import (
	"fmt"
	"reflect"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// breaking is an index of which one step fails, or that one and all behind it: nothing is done
// then.
type breaking struct {
	sortedset.Index
	left   *int // steps before it
	onward bool
}

func (b breaking) fails() bool {
	*b.left--
	return *b.left == -1 || *b.left < 0 && b.onward
}

var errBroken = &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "a memory server is away"}

func (b breaking) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	if b.fails() {
		return fill(make([]*rpcv1.Outcome, len(ops)), errBroken)
	}
	return b.Index.Do(ops)
}

func (b breaking) Scan(start, end []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	if b.fails() {
		return &sortedset.Failure{Outcome: errBroken}
	}
	return b.Index.Scan(start, end, limit, reverse, visit)
}

// TestSetErrors: whichever step of a command fails, an error that is not UNKNOWN says that nothing
// was done, nor will be.
func TestSetErrors(t *testing.T) {
	const many = 140 // more than are changed side by side
	pairs := func(score float64) (all []sortedset.Pair) {
		for i := range many {
			all = append(all, sortedset.Pair{Member: fmt.Appendf(nil, "%03d", i), Score: score + float64(i)})
		}
		return all
	}
	var members [][]byte
	for _, p := range pairs(0) {
		members = append(members, p.Member)
	}
	for name, run := range map[string]func(s *sortedset.Sets) error{
		"ZADD of new members": func(s *sortedset.Sets) error {
			var added []sortedset.Pair
			for _, p := range pairs(0) {
				added = append(added, sortedset.Pair{Member: append(p.Member, '+'), Score: p.Score})
			}
			_, err := s.Add(setKey, sortedset.Rule{}, added)
			return err
		},
		"ZADD of other scores": func(s *sortedset.Sets) error {
			_, err := s.Add(setKey, sortedset.Rule{}, pairs(0.5))
			return err
		},
		"ZREM":             func(s *sortedset.Sets) error { _, err := s.Remove(setKey, members); return err },
		"ZPOPMIN":          func(s *sortedset.Sets) error { _, err := s.Pop(setKey, false, many); return err },
		"ZREMRANGEBYSCORE": func(s *sortedset.Sets) error { _, err := s.RemoveByScore(setKey, sortedset.All); return err },
	} {
		seen := map[rpcv1.Outcome_Code]int{}
		for at, more := 0, true; more; at++ {
			more = false
			for _, how := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
				onward, oneStep := how[0], how[1]
				withSets(t, func(_ *Engine, store *memindex.Store, sets func() *sortedset.Sets) {
					if oneStep {
						store.AllowGroups()
					}
					if _, err := sets().Add(setKey, sortedset.Rule{}, pairs(0)); err != nil {
						t.Error(err)
					}
					s, left := sets(), at
					s.Index = breaking{s.Index, &left, onward}
					code := CodeOf(SetFailure(run(s)))
					if left >= 0 { // no step failed
						return
					}
					more = true
					if seen[code]++; code == rpcv1.Outcome_UNKNOWN || code == rpcv1.Outcome_OK {
						return
					}
					if _, _, err := sets().Collect(nil, nil); err != nil {
						t.Error(err)
					}
					var now []sortedset.Pair
					err := sets().ByScore(setKey, sortedset.All, false, 0, keepPairs(&now))
					if !reflect.DeepEqual(now, pairs(0)) || err != nil {
						t.Errorf("%s, whose step %d failed, ended with %v, and the set has changed: %d of %d members (%v)", name, at, code, len(now), many, err)
					}
				})
			}
		}
		if t.Logf("%s: %v", name, seen); seen[rpcv1.Outcome_UNAVAILABLE] == 0 || seen[rpcv1.Outcome_UNKNOWN] == 0 && name != "ZPOPMIN" {
			t.Errorf("%s ended with %v", name, seen)
		}
	}
}

// TestAddPairsErrors: an operation that puts members in the place of a string, and gives the set a
// deadline, ends with UNKNOWN whichever step fails when the string is gone.
func TestAddPairsErrors(t *testing.T) {
	seen := map[rpcv1.Outcome_Code]int{}
	for at, more := 0, true; more; at++ {
		withSets(t, func(c *Engine, _ *memindex.Store, sets func() *sortedset.Sets) {
			sets().Index.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: setKey, Value: []byte("a string")}})
			s, left := sets(), at
			s.Index = breaking{s.Index, &left, true}
			first := &rpcv1.Operation{Kind: rpcv1.Operation_SET_ADD, Key: setKey, Expiry: rpcv1.Operation_AT, Number: 1 << 40}
			code := CodeOf(SetFailure(addPairs(s, first, []sortedset.Pair{{Member: []byte("m"), Score: 1}})))
			if more = left < 0; !more { // no step failed
				return
			}
			seen[code]++
			o := sets().Index.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: setKey}})[0]
			if there := o.Code == rpcv1.Outcome_OK; there != (code == rpcv1.Outcome_UNAVAILABLE) || !there && code != rpcv1.Outcome_UNKNOWN {
				t.Errorf("where step %d failed it ended with %v, and a lookup with %v", at, code, o.Code)
			}
		})
	}
	if seen[rpcv1.Outcome_UNAVAILABLE] == 0 || seen[rpcv1.Outcome_UNKNOWN] == 0 {
		t.Errorf("it ended with %v", seen)
	}
}
