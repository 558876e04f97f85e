package chime_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// One test for each fault that the published program of this design is known for, or that its paper
// leaves open.

func open(t *testing.T, c *pooltest.Cluster, o index.Options) (index.Index, index.Session) {
	t.Helper()
	x, err := chime.Open(c.Open(t), o)
	must(t, err)
	s, err := x.Session()
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return x, s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, s index.Session, key, value []byte) {
	t.Helper()
	v, err := s.Lookup(key, nil)
	if value == nil && !errors.Is(err, index.ErrNotFound) || value != nil && (err != nil || !bytes.Equal(v, value)) {
		t.Fatalf("key %x has %x, %v, want %x", key, v, err, value)
	}
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

var small = index.Options{Uint64: true, MaxValueBytes: 8}

// lows are where the leaves of x begin.
func lows(t *testing.T, x index.Index) (all [][]byte) {
	t.Helper()
	must(t, x.(index.Surveyor).Survey(func(low []byte, _ int) error {
		all = append(all, bytes.Clone(low))
		return nil
	}))
	return all
}

// TestLargestKeyGoes: the largest key of each leaf is deleted, and then keys are inserted between
// it and the next leaf, until leaves split there. Who takes the largest key for the end of a leaf
// puts them elsewhere. A client that cached the tree before finds them all.
func TestLargestKeyGoes(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 16})
	x, s := open(t, c, small)
	const n, apart = 2000, 1 << 20
	for i := range uint64(n) {
		must(t, s.Insert(number(i*apart), number(i)))
	}
	_, other := open(t, c, small)
	for i := range uint64(n) {
		wantValue(t, other, number(i*apart), number(i))
	}
	leaves := lows(t, x)
	if len(leaves) < 20 {
		t.Fatalf("%d leaves", len(leaves))
	}
	for _, low := range leaves[1:] {
		first := binary.BigEndian.Uint64(low)
		must(t, s.Delete(number(first-apart)))
		for j := range uint64(40) {
			must(t, s.Insert(number(first-apart+1+j), number(j)))
		}
	}
	for _, low := range leaves[1:] {
		first := binary.BigEndian.Uint64(low)
		for _, who := range []index.Session{other, s} {
			wantValue(t, who, number(first-apart), nil)
			wantValue(t, who, number(first), number(first/apart))
			for j := range uint64(40) {
				wantValue(t, who, number(first-apart+1+j), number(j))
			}
		}
	}
	_, err := x.(index.Checker).Check()
	must(t, err)
}

// TestHalfKnownSplits: a client whose copies of inner nodes are older than all splits finds each
// key where it went, and misses none, by the siblings in replicas alone.
func TestHalfKnownSplits(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 16})
	_, s := open(t, c, small)
	x, old := open(t, c, small)
	random := rand.New(rand.NewPCG(1, 1))
	var keys [][]byte
	for range 6000 {
		keys = append(keys, number(random.Uint64()))
	}
	for i, k := range keys {
		must(t, s.Insert(k, k))
		if i == 500 { // now it knows some inner nodes
			for _, k := range keys[:i] {
				wantValue(t, old, k, k)
			}
		}
	}
	for _, k := range keys {
		wantValue(t, old, k, k)
		wantValue(t, old, number(binary.BigEndian.Uint64(k)^1), nil)
	}
	if st := x.Stats(); st.Retries == 0 && st.CacheMisses < 10 {
		t.Errorf("%+v: nothing was old", st)
	}
}

// TestSpeculationOnReusedLeaf: a client knows where hot keys lie. Others delete them all, leaves
// are merged and their memory is used again, for other keys. Nothing of the old is answered.
func TestSpeculationOnReusedLeaf(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 64, ChunkBytes: 64 << 10, RenewEvery: time.Millisecond})
	x, s := open(t, c, small)
	y, hot := open(t, c, small)
	const n = 3000
	key := func(round, i int) []byte { return number(uint64(i)<<32 | uint64(round)) }
	reclaimed := uint64(0)
	for round := range 6 {
		for i := range n {
			must(t, s.Insert(key(round, i), number(uint64(round))))
		}
		for range 3 {
			for i := range n {
				wantValue(t, hot, key(round, i), number(uint64(round)))
			}
		}
		if tried, right := chime.Speculations(y); right == 0 {
			t.Fatalf("round %d: %d speculative READs, none is right", round, tried)
		}
		for i := range n {
			must(t, s.Delete(key(round, i)))
			if i%7 == 0 {
				wantValue(t, hot, key(round, i), nil)
			}
		}
		for i := range n {
			wantValue(t, hot, key(round, i), nil)
		}
		reclaimed = x.Stats().Reclaimed
	}
	if reclaimed == 0 {
		t.Error("no leaf was used again")
	}
	tried, right := chime.Speculations(y)
	if right < 6*n {
		t.Errorf("%d speculative READs are right, of 18 * %d lookups of keys that were looked up before", right, n)
	}
	t.Logf("%d speculative READs, %d of them right; %d leaves were used again", tried, right, reclaimed)
}

// TestTornSlotIsNotNotFound: a lookup that meets a torn slot reads again; it does not answer that
// the key is not there. Nor does a lookup of another key of that home.
func TestTornSlotIsNotNotFound(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 8})
	_, s := open(t, c, index.Options{Uint64: true, MaxValueBytes: 16})
	mark := []byte("a value to find.")
	must(t, s.Insert(number(1), mark))
	for i := range c.Options.Servers {
		m := c.Memory(c.Options.FirstID+uint16(i), verbs.RegionData)
		if at := bytes.Index(m, mark); at >= 0 {
			m[at] ^= 1
			s.SetLimit(50 * time.Millisecond)
			if _, err := s.Lookup(number(1), nil); !errors.Is(err, index.ErrTimeout) {
				t.Errorf("lookup of a torn slot: %v", err)
			}
			if err := s.Scan(nil, 10, false, func(_, _ []byte) bool { return true }); !errors.Is(err, index.ErrTimeout) {
				t.Errorf("scan over a torn slot: %v", err)
			}
			m[at] ^= 1
			wantValue(t, s, number(1), mark)
			return
		}
	}
	t.Fatal("the value is in no server's memory")
}

// TestTornRootUnderItsWord: a client knows the root as a leaf, while a bulk load has made an inner
// node of it. It acquires the lock word of the leaf that it takes it for. The word does not guard
// an inner node, so what it READs may be torn: that is no damage. It READs again.
func TestTornRootUnderItsWord(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 8})
	x, _ := open(t, c, small)
	_, old := open(t, c, small)
	must(t, x.BulkLoad(func(yield func(key, value []byte) bool) error {
		for i := range uint64(1000) {
			yield(number(i), number(i))
		}
		return nil
	}, 1))
	found, err := x.(index.Checker).Check()
	must(t, err)
	inner := 0
	for _, p := range found.Memory {
		m := c.Memory(p.Addr.Server(), verbs.RegionData)[p.Addr.Offset():]
		if m[8] != 1 { // its level
			continue
		}
		inner++
		m[4] ^= 1
		old.SetLimit(50 * time.Millisecond)
		if err := old.Upsert(number(7), number(8)); !errors.Is(err, index.ErrTimeout) {
			t.Errorf("upsert while the root is torn: %v", err)
		}
		m[4] ^= 1
	}
	if inner != 1 {
		t.Fatalf("%d inner nodes", inner)
	}
	old.SetLimit(time.Minute)
	must(t, old.Upsert(number(7), number(8)))
	wantValue(t, old, number(7), number(8))
}

// TestMuchToMend: a holder died, and no home word of the leaf is what the keys make of it. That is
// more than one client leaves that dies, and more than one list of requests has room for. Who
// acquires the word mends it all the same.
func TestMuchToMend(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 8})
	o := small
	o.NodeBytes = 8 << 10
	x, s := open(t, c, o)
	const n = 100
	for i := range uint64(n) {
		must(t, s.Insert(number(i), number(i)))
	}
	found, err := x.(index.Checker).Check()
	must(t, err)
	if found.Nodes != 1 {
		t.Fatalf("%d nodes", found.Nodes)
	}
	a := found.Memory[0].Addr
	homes, word, err := chime.HomeWords(x, a)
	must(t, err)
	m := c.Memory(a.Server(), verbs.RegionData)
	for _, at := range homes {
		m[a.Offset()+uint64(at)] ^= 0xff
	}
	binary.NativeEndian.PutUint16(m[word.Offset():], pool.Repair)
	must(t, s.Update(number(7), number(8)))
	for i := range uint64(n) {
		if i != 7 {
			wantValue(t, s, number(i), number(i))
		}
	}
	_, err = x.(index.Checker).Check()
	must(t, err)
}

// TestManySlotsAreNotUnderfull: the lock word of a leaf of a thousand slots does not say how many
// pairs it has. A delete does not look for a neighbour to merge it with, but where it has looked.
func TestManySlotsAreNotUnderfull(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 32})
	o := small
	o.NodeBytes = 32 << 10
	x, s := open(t, c, o)
	const n, gone = 4000, 800
	for i := range uint64(n) {
		must(t, s.Insert(number(i*0x9E3779B97F4A7C15), number(i)))
	}
	before := s.Counters()
	for i := range uint64(gone) {
		must(t, s.Delete(number(i*0x9E3779B97F4A7C15)))
	}
	d := s.Counters()
	d = d.Sub(&before)
	if each := d.Bytes[verbs.Read] / gone; each > 12<<10 { // one delete in eight may READ the leaf
		t.Errorf("a delete READs %d bytes", each)
	}
	for i := uint64(gone); i < n; i++ {
		must(t, s.Delete(number(i*0x9E3779B97F4A7C15)))
	}
	if x.Stats().Merges == 0 {
		t.Error("no leaf was merged in the end")
	}
}

// TestSparseScans: scans have the keys that are there, however far apart or of whatever length they
// are, and no other ones.
func TestSparseScans(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 8})
	_, s := open(t, c, index.Options{MaxKeyBytes: 200, MaxValueBytes: 8})
	var keys []string
	for i := range 300 {
		k := fmt.Sprintf("%03d/%0*d", i, 1+i%150, 0)
		keys = append(keys, k)
		must(t, s.Insert([]byte(k), nil))
	}
	for i := 0; i < len(keys); i += 17 {
		var got []string
		must(t, s.Scan([]byte(keys[i]), 40, false, func(key, _ []byte) bool { got = append(got, string(key)); return true }))
		if want := keys[i:min(i+40, len(keys))]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("scan from %q: %q, want %q", keys[i], got, want)
		}
	}
}

// TestOneFingerprint: keys that have one fingerprint, eight in a leaf at most, are told apart by
// their blocks, also when they come and go.
func TestOneFingerprint(t *testing.T) {
	for _, values := range []uint64{1, 4} {
		t.Run(fmt.Sprint(values), func(t *testing.T) {
			defer chime.FewFingerprints(values)()
			c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 32, RenewEvery: time.Millisecond})
			x, s := open(t, c, index.Options{MaxKeyBytes: 60, MaxValueBytes: 20})
			key := func(i int) []byte { return fmt.Appendf(nil, "a common beginning of %03d", i) }
			there := map[int]string{}
			random := rand.New(rand.NewPCG(values, 9))
			for step := range 3000 {
				i, v := random.IntN(150), fmt.Sprint("value ", step)
				switch random.IntN(4) {
				case 0:
					err := s.Delete(key(i))
					if _, ok := there[i]; ok == errors.Is(err, index.ErrNotFound) {
						t.Fatalf("step %d: delete: %v", step, err)
					}
					delete(there, i)
				case 1:
					must(t, s.Upsert(key(i), []byte(v)))
					there[i] = v
				default:
					want := []byte(nil)
					if v, ok := there[i]; ok {
						want = []byte(v)
					}
					wantValue(t, s, key(i), want)
				}
			}
			var keys [][]byte
			for i := range 150 {
				keys = append(keys, key(i))
			}
			must(t, s.LookupBatch(keys, func(i int, v []byte, err error) {
				if want, ok := there[i]; ok != (err == nil) || string(v) != want {
					t.Errorf("key %d in a batch: %q, %v, want %q", i, v, err, want)
				}
			}))
			found, err := x.(index.Checker).Check()
			if err != nil || found.Pairs != uint64(len(there)) {
				t.Errorf("%d pairs of %d, %v", found.Pairs, len(there), err)
			}
		})
	}
}
