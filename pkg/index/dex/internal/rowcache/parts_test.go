package rowcache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
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
	e := fewEntries(t, 32<<10)
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
			if _, st := e.look(k, nil); st == absent {
				v := fmt.Appendf(nil, "%d", step)[:r.IntN(3)]
				e.Put(k, v, nil)
				model[string(k)] = v
			}
		case 1:
			if _, ok := e.Drop(k); !ok {
				t.Fatal("somebody has the bucket")
			}
			delete(model, string(k))
		case 2: // as a frame does
			if _, err := e.Invalidate(k); err != nil {
				t.Fatal(err)
			}
			delete(model, string(k))
		case 3, 4:
			before, more := e.Buckets(), r.IntN(2) == 0
			ok := e.Resize(more)
			switch {
			case !ok && (more && before < e.parts.Most || !more && before > e.Part):
				refused++
			case ok && more:
				up++
			case ok:
				down++
			}
			if n := e.Buckets(); ok != (n != before) || n > e.parts.Most || n < e.Part {
				t.Fatalf("%d buckets, before %d", n, before)
			}
		default:
			value, st := e.look(k, nil)
			if want, there := model[string(k)]; st == busy || st == found && (!there || !bytes.Equal(value, want)) {
				t.Fatalf("step %d: key %x: %q, state %d, want %q", step, k, value, st, want)
			}
			if st == found {
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
	e := fewEntries(t, 8<<10)
	var keys [][]byte
	for n := range e.Buckets() * 4 {
		k := binary.BigEndian.AppendUint64(nil, n)
		e.Put(k, k, nil)
		keys = append(keys, k)
	}
	for _, more := range []bool{true, false} {
		if !e.Resize(more) {
			t.Fatal("the number stays")
		}
		for _, k := range keys {
			mustFind(t, e, k, k)
		}
	}
	e.Hold()
	if e.Resize(true) {
		t.Error("added while somebody goes through all buckets")
	}
	e.Release()
}
