package dex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestOwnersOfSlots: parts have slots alike, and one more part takes slots from others only for
// itself.
func TestOwnersOfSlots(t *testing.T) {
	const n = 40
	owners := ownersOf(n)
	for k := 1; k <= n; k++ {
		var has [n]int
		for i := range entrySlots {
			o, before := owners[k*entrySlots+i], owners[(k-1)*entrySlots+i]
			if int(o) >= k || k > 1 && o != before && int(o) != k-1 {
				t.Fatalf("slot %d of %d parts is of part %d, and before of %d", i, k, o, before)
			}
			has[o]++
		}
		for i, h := range has[:k] {
			if h < entrySlots/k || h > entrySlots/k+k {
				t.Errorf("part %d of %d has %d slots", i, k, h)
			}
		}
	}
}

// TestEntriesMove keeps, changes and drops entries while the number of buckets goes up and down.
// An entry has the last value, or is not there.
func TestEntriesMove(t *testing.T) {
	x, e := fewEntries(t, 32<<10)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	model := map[string][]byte{}
	key := func() []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64N(3000)<<20) }
	refused, up, down, moved := 0, 0, 0, 0
	steps := 100_000
	if testing.Short() {
		steps = 30_000
	}
	for step := range steps {
		k := key()
		switch r.IntN(8) {
		case 0:
			if _, st := e.look(x, k, nil); st == frame.NotFound {
				v := fmt.Appendf(nil, "%d", step)[:r.IntN(3)]
				e.keep(x, k, v, pool.NewAddr(1, 4096), 0)
				model[string(k)] = v
			}
		case 1:
			if _, ok := e.drop(x, k); !ok {
				t.Fatal("somebody has the bucket")
			}
			delete(model, string(k))
		case 2: // as a frame does
			if _, err := x.takeOutEntry(k); err != nil {
				t.Fatal(err)
			}
			delete(model, string(k))
		case 3, 4:
			before, more := e.buckets(), r.IntN(2) == 0
			ok := e.resize(x, more)
			switch {
			case !ok && (more && before < e.rowParts.most || !more && before > e.part):
				refused++
			case ok && more:
				up++
			case ok:
				down++
			}
			if n := e.buckets(); ok != (n != before) || n > e.rowParts.most || n < e.part {
				t.Fatalf("%d buckets, before %d", n, before)
			}
		default:
			value, st := e.look(x, k, nil)
			if want, there := model[string(k)]; st == frame.Busy || st == frame.Done && (!there || !bytes.Equal(value, want)) {
				t.Fatalf("step %d: key %x: %q, state %d, want %q", step, k, value, st, want)
			}
			if st == frame.Done {
				moved++
			}
		}
	}
	t.Logf("%d added, %d removed, %d refused, %d found", up, down, refused, moved)
	if up < steps/100 || down < steps/100 || moved < steps/100 {
		t.Error("this tests nothing")
	}
}

// TestEntriesKeepTheirPlaces: entries for which there is room are there after a bucket has come and
// gone. While somebody goes through all buckets their number stays.
func TestEntriesKeepTheirPlaces(t *testing.T) {
	x, e := fewEntries(t, 8<<10)
	var keys [][]byte
	for n := range e.buckets() * 4 {
		k := binary.BigEndian.AppendUint64(nil, n)
		e.keep(x, k, k, pool.NewAddr(1, 4096), 0)
		keys = append(keys, k)
	}
	for _, more := range []bool{true, false} {
		if !e.resize(x, more) {
			t.Fatal("the number stays")
		}
		for _, k := range keys {
			mustFind(t, x, k, k)
		}
	}
	e.hold()
	if e.resize(x, true) {
		t.Error("added while somebody goes through all buckets")
	}
	e.release()
}

// TestValuesGrowWhileEntriesMove: values of keys with entries change, two buckets become one, and
// the values grow. Each key has its last value, and the log's records are written back.
func TestValuesGrowWhileEntriesMove(t *testing.T) {
	x, s := openedBy(t, "shm", index.Options{MaxKeyBytes: 8, MaxValueBytes: 16, NodeBytes: 256, CacheBytes: 64 << 10})
	e := &x.cache.rows
	key := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n)[3:] }
	const keys = 6000
	for n := range uint64(keys) {
		mustDo(t, s.Insert(key(n), []byte("12345678")))
	}
	to := func(n uint64) { // buckets
		for tries := 0; e.buckets() != n; tries++ {
			if e.resize(x, e.buckets() < n); tries > 10_000 {
				t.Fatalf("there are %d buckets still, and not %d", e.buckets(), n)
			}
		}
	}
	to(e.part + 1)
	e.hold()
	model := map[string]string{}
	for range 3 {
		for n := range uint64(keys) {
			if b := e.place(key(n)).bucket; b != 0 && b != e.part {
				continue
			}
			_, err := s.Lookup(key(n), nil)
			mustDo(t, err)
			v := fmt.Sprintf("%08d", n)
			mustDo(t, s.Update(key(n), []byte(v)))
			model[string(key(n))] = v
		}
	}
	e.release()
	to(e.part)
	s.SetLimit(time.Second)
	for k, v := range model {
		mustDo(t, s.Update([]byte(k), []byte(v+"9")))
	}
	for k, v := range model {
		if got, err := s.Lookup([]byte(k), nil); err != nil || string(got) != v+"9" {
			t.Fatalf("key %x has %q, want %q: %v", k, got, v+"9", err)
		}
	}
	mustDo(t, x.flushAll(false))
	const head = 16 // of a batch without records
	if x.dirty.truncate(); x.log.Used() > head {
		t.Fatalf("%d bytes of the log are in use, and all is written back", x.log.Used())
	}
}
