package dolphin

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// States between two steps of replace.go and merge.go, where clients are slow, or die. The index
// has keys of two families, with a and m, in leaves for some eight pairs. Its leaves are divided at
// m.

// family is a cluster with such an index.
type family struct {
	*testing.T
	c *pooltest.Cluster
}

func newFamily(t *testing.T) family { return family{t, pooltest.New(t, pooltest.Options{})} }

// open opens the index, for another client.
func (t family) open() *Session {
	t.Helper()
	x, err := open(t.c.Open(t), index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, NodeBytes: 256})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.newSession()
	if err != nil {
		t.Fatal(err)
	}
	s.SetLimit(5 * time.Second)
	return s
}

func (t family) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// insert inserts keys, each with itself as the value.
func (t family) insert(s *Session, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if err := s.Insert([]byte(k), []byte(k)); err != nil {
			t.Fatalf("insert of %q: %v", k, err)
		}
	}
}

// divide inserts keys of both families until they have a leaf each.
func (t family) divide(s *Session) {
	t.Helper()
	for i := 0; t.leafOf(s, "m0") == t.leafOf(s, "a0"); i++ {
		t.insert(s, fmt.Sprint("a", i), fmt.Sprint("m", i))
	}
	if _, low, _ := t.look(s, "m0"); low != "m" {
		t.Fatalf("the leaf of m0 begins at %q", low)
	}
}

// look looks for the leaf of a key.
func (t family) look(s *Session, key string) (a pool.Addr, low string, forward uint64) {
	t.Helper()
	s.Begin()
	defer s.End()
	there, err := s.find([]byte(key), false)
	if err != nil {
		t.Fatal(err)
	}
	if !there {
		return pool.Nil, "", 0
	}
	return s.leaf.at, string(s.leaf.low), s.leaf.forward()
}

func (t family) leafOf(s *Session, key string) pool.Addr {
	t.Helper()
	a, _, _ := t.look(s, key)
	return a
}

// memory is that of the leaf at a.
func (t family) memory(a pool.Addr) []byte {
	return t.c.Memory(a.Server(), verbs.RegionData)[a.Offset():][:256]
}

// leaveMerging is the first step of the merge of the leaf of a key, and no other one.
func (t family) leaveMerging(s *Session, key string) pool.Addr {
	t.Helper()
	s.Begin()
	defer s.End()
	if there, err := s.lock([]byte(key), false); err != nil || !there {
		t.Fatal(there, err)
	}
	s.leaf.setWord(atForward, merging)
	s.writeAt(atForward, wordBytes)
	t.must(s.publish())
	return s.leaf.at
}

// whole fails unless the index has these keys, each with itself as the value, and is whole.
func (t family) whole(s *Session, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if v, err := s.Lookup([]byte(k), nil); err != nil || string(v) != k {
			t.Errorf("%q is %q, %v", k, v, err)
		}
	}
	n := 0
	t.must(s.Scan(nil, 1000, false, func(k, v []byte) bool {
		n++
		return bytes.Equal(k, v)
	}))
	found, err := s.t.Check()
	if err != nil || int(found.Pairs) != len(keys) || n != len(keys) {
		t.Errorf("%d pairs, a scan visits %d, want %d: %v", found.Pairs, n, len(keys), err)
	}
}

// TestSlowClientForwardsNoOtherLeaf: a client comes to step 4 of a merge, and sleeps. Others do all
// of it, and divide the leaf at the same place again, and begin to merge that. The client does not
// take this merge for its own.
func TestSlowClientForwardsNoOtherLeaf(t *testing.T) {
	f := newFamily(t)
	slow, s := f.open(), f.open()
	f.divide(s)
	r := f.leafOf(s, "m0")
	slow.Begin()
	if there, err := slow.Leads([]byte("m"), slotOf(r)); err != nil || !there {
		t.Fatal(there, err)
	}
	st := *slow.Last()
	l := f.leaveMerging(s, "a0")
	f.must(s.Update([]byte("a0"), []byte("a0")))
	to := pool.Addr(f.forwardOf(l))
	if to <= merging || uint64(to) != f.forwardOf(r) {
		t.Fatalf("the forward words are %v and %#x", to, f.forwardOf(r))
	}
	keys := f.divideAgain(s)
	other := f.leaveMerging(s, "a0")
	done, err := slow.forwardLeft(other, []byte(""), []byte("m"), &st, r, to)
	if done || err != nil || f.forwardOf(other) != merging {
		t.Errorf("a merge of others is taken for the client's own: %v, %v", done, err)
	}
	slow.End()
	f.whole(s, keys...)
	if t.Failed() {
		return
	}
	f.must(s.Update([]byte("a0"), []byte("a0")))
	f.whole(slow, keys...)
}

// forwardOf is the forward word of the leaf at a.
func (t family) forwardOf(a pool.Addr) uint64 {
	l := leaf{b: t.memory(a)}
	return l.forward()
}

// divideAgain is divide for a leaf that has both families, and returns all keys.
func (t family) divideAgain(s *Session) (keys []string) {
	t.Helper()
	for i := 0; t.leafOf(s, "m0") == t.leafOf(s, "a0"); i++ {
		t.insert(s, fmt.Sprint("az", i), fmt.Sprint("mz", i))
	}
	if _, low, _ := t.look(s, "m0"); low != "m" {
		t.Fatalf("the leaf of m0 begins at %q", low)
	}
	t.must(s.Scan(nil, 1000, false, func(k, _ []byte) bool {
		keys = append(keys, string(k))
		return true
	}))
	return keys
}

// TestSlowClientMergesNoOldLeaf: a client finds a leaf that is to be merged, and sleeps. Others
// merge it, and divide the leaf at the same place again. Who swung the leaf's slot died before the
// dead mark. The client does not merge what the old leaf has.
func TestSlowClientMergesNoOldLeaf(t *testing.T) {
	f := newFamily(t)
	slow, s := f.open(), f.open()
	f.divide(s)
	l := f.leaveMerging(s, "a0")
	head := bytes.Clone(f.memory(l)[:headEnd])
	slow.Begin()
	if there, err := slow.find([]byte("a0"), false); err != nil || !there || slow.leaf.at != l {
		t.Fatal(there, err, slow.leaf.at)
	}
	f.must(s.Update([]byte("a0"), []byte("a0")))
	keys := f.divideAgain(s)
	copy(f.memory(l), head)
	f.must(slow.mergeOn())
	slow.End()
	f.whole(s, keys...)
	f.whole(slow, keys...)
}

// TestOldRightHalf: a client's copies are from before a leaf was divided. Who swung the leaf's slot
// died before the dead mark. The right half was replaced, and its memory has what somebody left
// there who died before it was published. The client does not follow the left half there.
func TestOldRightHalf(t *testing.T) {
	f := newFamily(t)
	reader, s := f.open(), f.open()
	f.insert(s, "a0", "m0")
	l := f.leafOf(reader, "m0") // and has copies of the way
	head := bytes.Clone(f.memory(l)[:headEnd])
	for i := 1; f.leafOf(s, "m0") == f.leafOf(s, "a0"); i++ {
		if l != f.leafOf(s, "m0") {
			t.Fatal("the leaf was replaced before")
		}
		f.insert(s, fmt.Sprint("a", i), fmt.Sprint("m", i))
	}
	copy(f.memory(l), head)
	half := f.leafOf(s, "m0")
	if left := f.leafOf(s, "a0"); f.forwardOf(l) != uint64(left) {
		t.Fatalf("the leaf at %v leads to %#x, not to %v", l, f.forwardOf(l), left)
	}
	before := bytes.Clone(f.memory(half))
	for f.leafOf(s, "m0") == half {
		f.insert(s, "mz")
		f.must(s.Delete([]byte("mz")))
	}
	f.must(s.Update([]byte("m0"), []byte("new")))
	copy(f.memory(half), before)
	count := reader.Counters()
	v, err := reader.Lookup([]byte("m0"), nil)
	if err != nil || string(v) != "new" {
		t.Errorf("%q, %v", v, err)
	}
	now := reader.Counters()
	if now = now.Sub(&count); now.Requests[verbs.Read] < 4 {
		t.Errorf("%d READs: the copies were not followed", now.Requests[verbs.Read])
	}
}

// TestLeafOfTheDeadIsReplaced: a client dies when it has written the value of a record, and not the
// record. Nobody puts another record in its place: a READ could see that, and the dead one's value.
func TestLeafOfTheDeadIsReplaced(t *testing.T) {
	f := newFamily(t)
	dead, s := f.open(), f.open()
	f.insert(s, "a0")
	dead.Begin()
	if there, err := dead.lock([]byte("a1"), true); err != nil || !there {
		t.Fatal(there, err)
	}
	l := &dead.leaf
	found, _ := l.find([]byte("a1"), dead.lay.tagOf([]byte("a1")))
	l.putWord(found.end.n, []byte("of the dead"))
	dead.writeAt(l.valueWord(found.end.n), wordBytes)
	f.must(dead.PS.Post())
	at := l.at
	f.must(f.c.Fence(dead.t.Pool.Client()))
	f.insert(s, "a2")
	if fw := f.forwardOf(at); fw <= merging {
		t.Errorf("the leaf that a dead client left in part has the forward word %d, and takes changes", fw)
	}
	f.whole(s, "a0", "a2")
}

// TestMergeOfFullLeaves: when a leaf is to be merged, the next one is filled before its lock word
// is held. Both have pairs in two leaves afterwards.
func TestMergeOfFullLeaves(t *testing.T) {
	f := newFamily(t)
	old, s := f.open(), f.open()
	f.divide(s)
	r := f.leafOf(old, "m0")
	l := f.leaveMerging(s, "a0")
	for i := 0; f.forwardOf(r) == 0; i++ {
		f.insert(s, fmt.Sprint("m0", i))
		if i == 20 {
			t.Fatal("the leaf has room for all")
		}
	}
	if f.forwardOf(l) != merging {
		t.Fatal("somebody has merged it")
	}
	var keys []string
	f.must(s.Scan(nil, 1000, false, func(k, _ []byte) bool {
		keys = append(keys, string(k))
		return true
	}))
	f.must(s.Update([]byte("a0"), []byte("a0")))
	if f.forwardOf(l) <= merging {
		t.Error("an update of the leaf's does not end the merge")
	}
	f.whole(old, keys...)
	f.must(old.Update([]byte("m0"), []byte("m0"))) // by the slot of the next one
	f.whole(s, keys...)
}

// TestSlowSplitHangsNoOldHalf: a client writes a forward word, and sleeps before the right half has
// a slot. Another session of the client, which has the same copies, does what is left, and merges
// both halves again. The old half does not get its slot a second time.
func TestSlowSplitHangsNoOldHalf(t *testing.T) {
	for name, x := range map[string]struct{ left, right, place string }{
		"a slot of its own":     {"a0", "n0", "n"},
		"below the leaf's slot": {"m0", "mm", "mm"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFamily(t)
			slow := f.open()
			s, err := slow.t.newSession()
			f.must(err)
			if x.left == "m0" {
				for f.divide(s); f.lastOf(s, "m0") != "m0"; {
					f.must(s.Delete([]byte(f.lastOf(s, "m0"))))
				}
			} else {
				f.insert(s, x.left)
			}
			f.insert(s, x.right)
			m, out := f.forwardHalves(slow, x.left, x.place)
			f.must(s.Update([]byte(x.left), []byte(x.left)))
			if f.leafOf(s, x.left) != m.at[0] || f.leafOf(s, x.right) != m.at[1] {
				t.Fatal("the halves have no slots")
			}
			f.must(s.Delete([]byte(x.left)))
			if _, low, _ := f.look(s, x.right); low == x.place {
				t.Fatal("the halves are not merged")
			}
			f.must(s.Update([]byte(x.right), []byte("new")))
			f.must(slow.settle(2, out))
			slow.End()
			if v, err := s.Lookup([]byte(x.right), nil); err != nil || string(v) != "new" {
				t.Errorf("the value is %q, %v", v, err)
			}
			if found, err := s.t.Check(); err != nil || found.Unlinked > 0 {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

// lastOf is the last key of the leaf of a key, which is the last leaf.
func (t family) lastOf(s *Session, key string) (last string) {
	t.Helper()
	t.must(s.Scan([]byte(key), 1000, false, func(k, _ []byte) bool { last = string(k); return true }))
	return last
}

// forwardHalves does 1 and 2 for the leaf of a key, which is divided at a place, in an operation
// that it leaves under way.
func (t family) forwardHalves(s *Session, key, place string) (m leaves, out art.Outcome) {
	t.Helper()
	return t.forwardHalvesAt(s, key, place, pool.Nil)
}

// forwardHalvesAt is forwardHalves with the right half at an address, which is free.
func (t family) forwardHalvesAt(s *Session, key, place string, half pool.Addr) (m leaves, out art.Outcome) {
	t.Helper()
	s.Begin()
	if there, err := s.lock([]byte(key), true); err != nil || !there {
		t.Fatal(there, err)
	}
	l, bound, high := &s.leaf, []byte(place), s.leaf.high
	if l.endless {
		high = nil
	}
	s.gatherAlive(l)
	cut := slices.IndexFunc(s.pairs, func(p pairAt) bool { return bytes.Compare(l.key(p.cursor, p.w), bound) >= 0 })
	for t.must(s.allot(&m, l.at, 2, false)); half != pool.Nil && m.at[1] != half; t.must(s.allot(&m, l.at, 2, false)) {
		if m.at[0] == half {
			m.at[0], m.at[1] = m.at[1], m.at[0]
			break
		}
	}
	out, err := s.ReserveLink(bound, 0, l.at)
	t.must(err)
	_, err = s.readWords(nil)
	t.must(err)
	s.make(0, m.at[0], l.low, bound, m.at[1], s.pairs[:cut])
	s.make(1, m.at[1], bound, high, pool.Nil, s.pairs[cut:])
	s.Forget()
	t.must(s.publishLeaves(&m))
	return m, out
}
