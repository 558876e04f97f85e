package engine

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// withSets runs f in a simulation with the sets of a server; sets makes those of one command.
func withSets(t *testing.T, f func(c *Engine, store *memindex.Store, sets func() *sortedset.Sets)) {
	t.Helper()
	err := simenv.New(simenv.Options{Seed: 1}).Run(func(p *simenv.Process) {
		store := memindex.New(p, 64, 64+expiry.Bytes)
		c := newSetServer(p, store)
		p.Go("sessions", c.Sessions.Run)
		defer c.Sessions.Halt(time.Minute)
		f(c, store, func() *sortedset.Sets {
			s, err := c.Sets(nil, true, c.Limit, 0)
			if err != nil {
				t.Error(err)
			}
			return s
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// setKey is the key of the only set.
var setKey = []byte("k")

func addOne(s *sortedset.Sets, member string, score float64) rpcv1.Outcome_Code {
	_, err := s.Add(setKey, sortedset.Rule{}, []sortedset.Pair{{Member: []byte(member), Score: score}})
	return CodeOf(SetFailure(err))
}

// TestSetsInFullPool: while there is memory for items and none for entries, a set is read in every
// way as it was before, and members are removed. A new member, and another score, are taken back:
// they never come. Where a server died with one pending, others go on.
func TestSetsInFullPool(t *testing.T) {
	withSets(t, func(c *Engine, store *memindex.Store, sets func() *sortedset.Sets) {
		full := func() *sortedset.Sets {
			s := sets()
			s.Index = faulty{s.Index, isEntry, rpcv1.Outcome_POOL_FULL}
			return s
		}
		dying := func() *sortedset.Sets { // with a change pending
			s := full()
			s.Index = faulty{s.Index, func(op *rpcv1.Operation) bool { return len(op.Value) > 0 && op.Value[0] == 1 }, rpcv1.Outcome_UNAVAILABLE}
			return s
		}
		is := func(what string, s *sortedset.Sets, want string) {
			t.Helper()
			got := ""
			show := func(p sortedset.Pair) bool { got += fmt.Sprintf("%s=%v ", p.Member, p.Score); return true }
			n, err := s.Card(setKey)
			err = errors.Join(err, s.ByScore(setKey, sortedset.All, false, 0, show), s.ByMember(setKey, sortedset.Ends{}, false, show),
				s.Scores(setKey, [][]byte{[]byte("a"), []byte("c")}, func(score float64, there bool) { got += fmt.Sprint(score, there, " ") }))
			if got += fmt.Sprint(n); got != want || err != nil {
				t.Errorf("%s: %s (%v), want %s", what, got, err, want)
			}
		}
		ends := func(what string, got, want rpcv1.Outcome_Code) {
			if t.Helper(); got != want {
				t.Errorf("%s ended with %v, want %v", what, got, want)
			}
		}
		ends("a", addOne(sets(), "a", 1), rpcv1.Outcome_OK)
		ends("b", addOne(sets(), "b", 2), rpcv1.Outcome_OK)
		const before = "a=1 b=2 a=1 b=2 1 true 0 false 2"
		for range 2 {
			ends("a new member", addOne(full(), "c", 3), rpcv1.Outcome_POOL_FULL)
			is("after a new member", full(), before)
		}
		for range 2 {
			ends("another score", addOne(full(), "a", 4), rpcv1.Outcome_POOL_FULL)
			is("after another score", full(), before)
		}
		ends("another score", addOne(dying(), "a", 5), rpcv1.Outcome_UNKNOWN)
		is("after another score that is pending", full(), before)
		ends("a score of a member that is pending", addOne(full(), "a", 7), rpcv1.Outcome_POOL_FULL)
		n, err := full().RemoveByScore(setKey, [2]sortedset.Limit{{Score: 0}, {Score: 1}})
		if ends("removing what may leave the range", CodeOf(SetFailure(err)), rpcv1.Outcome_POOL_FULL); n != 0 {
			t.Errorf("%d members that may leave the range were removed", n)
		}
		is("with memory", sets(), "b=2 a=5 a=5 b=2 5 true 0 false 2")
		ends("another score", addOne(dying(), "b", 9), rpcv1.Outcome_UNKNOWN)
		if n, err := full().Remove(setKey, [][]byte{[]byte("b"), []byte("c")}); n != 1 || err != nil {
			t.Errorf("%d members were removed: %v", n, err)
		}
		is("without b", full(), "a=5 a=5 5 true 0 false 1")
		half := sets()
		half.Index = faulty{half.Index, func(op *rpcv1.Operation) bool {
			return op.Kind == rpcv1.Operation_DELETE || len(op.Value) > 0 && op.Value[0] == 1
		}, rpcv1.Outcome_UNAVAILABLE}
		ends("a score that is not settled", addOne(half, "a", 6), rpcv1.Outcome_UNKNOWN)
		is("with an entry that is there already", full(), "a=6 a=6 6 true 0 false 1")
		if gone, err := full().Pop(setKey, false, 1); len(gone) != 1 || err != nil {
			t.Errorf("%v was popped: %v", gone, err)
		}
		if err := atRest(c); err != nil || store.Len() != 0 {
			t.Errorf("%d pairs are left: %v", store.Len(), err)
		}
	})
}

// TestPopGivesWhatItRemoved: an error that ends a Pop keeps nobody from the members that were
// removed before, unless it is not known of others.
func TestPopGivesWhatItRemoved(t *testing.T) {
	for why, lost := range map[rpcv1.Outcome_Code]bool{rpcv1.Outcome_UNAVAILABLE: false, rpcv1.Outcome_UNKNOWN: true} {
		withSets(t, func(_ *Engine, _ *memindex.Store, sets func() *sortedset.Sets) {
			for i, member := range []string{"a", "b", "c"} {
				addOne(sets(), member, float64(i))
			}
			s := sets()
			s.Index = faulty{s.Index, func(op *rpcv1.Operation) bool {
				return op.Kind == rpcv1.Operation_REMOVE && op.Key[len(op.Key)-1] == 'b'
			}, why}
			gone, err := s.Pop(setKey, false, 3)
			if len(gone) != 2 || (err != nil) != lost {
				t.Errorf("%v: %v was popped: %v", why, gone, err)
			}
		})
	}
}

// meddled does something before operations that are to be done.
type meddled struct {
	sortedset.Index
	before func(ops []*rpcv1.Operation)
}

func (m meddled) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	m.before(ops)
	return m.Index.Do(ops)
}

// TestTakenBackBesideAHelper: a change is taken back while another server completes it, which has
// written the entry. The member keeps its former score, and ranges show it.
func TestTakenBackBesideAHelper(t *testing.T) {
	withSets(t, func(c *Engine, _ *memindex.Store, sets func() *sortedset.Sets) {
		addOne(sets(), "a", 1)
		settled := func(ops []*rpcv1.Operation) bool { return len(ops[0].Value) > 0 && ops[0].Value[0] == 1 }
		maker, helper, right := sets(), sets(), sets()
		var takesBack []*rpcv1.Operation
		helper.Index = meddled{helper.Index, func(ops []*rpcv1.Operation) {
			if settled(ops) {
				if o := right.Index.Do(takesBack)[0]; o.Code != rpcv1.Outcome_OK {
					t.Errorf("taking back ended with %v", o.Code)
				}
			}
		}}
		maker.Index = meddled{faulty{maker.Index, isEntry, rpcv1.Outcome_POOL_FULL}, func(ops []*rpcv1.Operation) {
			if settled(ops) && takesBack == nil {
				takesBack = ops
				if err := helper.Scores(setKey, [][]byte{[]byte("a")}, func(float64, bool) {}); err != nil {
					t.Error(err)
				}
			}
		}}
		if addOne(maker, "a", 2); takesBack == nil {
			t.Error("nothing was taken back")
		}
		got := ""
		err := sets().ByScore(setKey, sortedset.All, false, 0, func(p sortedset.Pair) bool { got += fmt.Sprintf("%s=%v ", p.Member, p.Score); return true })
		if got != "a=1 " || err != nil {
			t.Errorf("the range is %q: %v", got, err)
		}
		if err := atRest(c); err != nil {
			t.Error(err)
		}
	})
}

// TestAddToACollectedSet: where a set is deleted and collected while a member is added, and others
// write the same member under its number, the member was not added for all that its item is another
// one.
func TestAddToACollectedSet(t *testing.T) {
	withSets(t, func(c *Engine, _ *memindex.Store, sets func() *sortedset.Sets) {
		addOne(sets(), "a", 1)
		s, others := sets(), sets()
		s.Index = meddled{s.Index, func(ops []*rpcv1.Operation) {
			if !isEntry(ops[0]) {
				return
			}
			c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_DELETE, Key: setKey}}, false, c.Limit, 0)
			if _, _, err := others.Collect(nil, nil); err != nil {
				t.Error(err)
			}
			const numberEnd = len(sortedset.Prefix) + 6
			item := append(bytes.Clone(ops[0].Key[:numberEnd]), "mb"...)
			pending := append([]byte{2}, "scorexxxstampx"...)
			if o := others.Index.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_SWAP, Key: item, Condition: rpcv1.Operation_ABSENT, Value: pending}})[0]; o.Code != rpcv1.Outcome_OK {
				t.Errorf("the item of others ended with %v", o.Code)
			}
		}}
		if code := addOne(s, "b", 2); code != rpcv1.Outcome_UNKNOWN {
			t.Errorf("a member of a set that was collected ended with %v", code)
		}
	})
}

// TestCollectManySets: what many deleted sets left is removed in few steps. One of which it is not
// known whether it is deleted stays, and so does one of a form that is not known: they keep no
// other one from it.
func TestCollectManySets(t *testing.T) {
	withSets(t, func(c *Engine, store *memindex.Store, sets func() *sortedset.Sets) {
		const many, each = 60, 2 + 1 // an item, an entry, the root
		var keys [][]byte
		for i := range many {
			keys = append(keys, fmt.Appendf(nil, "k%02d", i))
			if _, err := sets().Add(keys[i], sortedset.Rule{}, []sortedset.Pair{{Member: []byte("m"), Score: 1}}); err != nil {
				t.Fatal(err)
			}
		}
		// The root says of which set it is, and the item of the first one has an unknown form.
		var roots [][]byte
		if err := sets().Index.Scan([]byte(sortedset.Prefix), innerEnd, many*each, false, func(key, value []byte) bool {
			if len(key) == len(sortedset.Prefix)+6+1 {
				roots = append(roots, append(bytes.Clone(key), value...))
			}
			return true
		}); err != nil || len(roots) != many {
			t.Fatalf("%d roots: %v", len(roots), err)
		}
		strange, unknown := roots[0], roots[many/2]
		root := len(strange) - len(keys[0])
		item := append(bytes.Clone(strange[:root-1]), "mn"...)
		sets().Index.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: item, Value: []byte("?")}})
		for _, key := range keys {
			if !bytes.Equal(key, strange[root:]) {
				c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_DELETE, Key: key}}, false, c.Limit, 0)
			}
		}
		s, steps := sets(), 0
		s.Index = meddled{faulty{s.Index, func(op *rpcv1.Operation) bool { return bytes.Equal(op.Key, unknown[:root]) }, rpcv1.Outcome_UNAVAILABLE}, func([]*rpcv1.Operation) { steps++ }}
		next, did, err := s.Collect(nil, nil)
		if next != nil || did != (many-2)*each || err == nil || steps > 6 {
			t.Errorf("in %d steps %d pairs were removed, up to %q: %v", steps, did, next, err)
		}
		if _, did, err = sets().Collect(nil, nil); did != each || CodeOf(SetFailure(err)) != rpcv1.Outcome_UNSUPPORTED {
			t.Errorf("then %d pairs were removed: %v", did, err)
		}
		if n := store.Len(); n != 1+each+1 {
			t.Errorf("%d pairs are left", n)
		}
	})
}
