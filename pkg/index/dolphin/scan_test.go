package dolphin

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestScanBesideDeletes: pairs that a scan READ before their values were written, and that are gone
// when it looks them up, do not count. The scan goes on behind the last one that it READ, and
// visits as many pairs as it may.
func TestScanBesideDeletes(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	x, err := open(c.Open(t), o)
	must(t, err)
	s, err := x.newSession()
	must(t, err)
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
	const keys, gone, limit = 200, 7, 12
	for i := range uint64(keys) {
		must(t, s.Insert(key(i), key(i)))
	}
	for _, reverse := range []bool{false, true} {
		// what Scan does, with deletes behind the READs of leaves
		s.Begin()
		sc := s.scanner()
		sc.reverse, sc.left, sc.strict, sc.began, sc.alone = reverse, limit, false, false, false
		sc.bound = append(sc.bound[:0], key(50)...)
		var want, got []uint64
		for i := range uint64(gone + limit) {
			k := 50 + i
			if reverse {
				k = 50 - i
			}
			if i >= gone {
				want = append(want, k)
			}
		}
		first := true
		for more := true; sc.left > 0 && more; {
			sc.out = sc.out[:0]
			more, err = s.eachAhead(s.takeLeaf)
			must(t, err)
			if first {
				first = false
				other, err := open(c.Open(t), o)
				must(t, err)
				d, err := other.newSession()
				must(t, err)
				for i := range sc.out[:gone] {
					must(t, d.Delete(bytes.Clone(sc.out[i].key)))
					sc.out[i].ok = false
				}
			}
			_, err = s.visitAll(func(key, _ []byte) bool {
				got = append(got, binary.BigEndian.Uint64(key))
				return true
			})
			must(t, err)
		}
		s.End()
		if !slices.Equal(got, want) {
			t.Errorf("reverse %v: %d, want %d", reverse, got, want)
		}
		for i := range uint64(keys) {
			must(t, s.Upsert(key(i), key(i)))
		}
	}
}

// TestScansKnowHowFullLeavesAre: the first scan of a session READs no more leaves than it is likely
// to need, once another session of the client has met leaves.
func TestScansKnowHowFullLeavesAre(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	x, err := open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
	must(t, err)
	must(t, x.BulkLoad(func(yield func(key, value []byte) bool) error {
		for i := range uint64(3000) {
			k := binary.BigEndian.AppendUint64(nil, i)
			if !yield(k, k) {
				break
			}
		}
		return nil
	}, 2))
	scan := func(s *Session) (leaves int) {
		must(t, s.Scan(binary.BigEndian.AppendUint64(nil, 1000), 100, false, func(_, _ []byte) bool { return true }))
		return s.scan.n
	}
	first, err := x.newSession()
	must(t, err)
	for range fewLeaves {
		scan(first)
	}
	second, err := x.newSession()
	must(t, err)
	if n := scan(second); n > 4 {
		t.Errorf("a scan of 100 pairs READ %d leaves together", n)
	}
}
