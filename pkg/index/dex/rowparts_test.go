package dex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

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
// Every unwritten entry is there all the time, with its last value and position; others have the
// last value or are not there; and of what is kept when there is room for all, all is there when
// the number is as it was.
func TestEntriesMove(t *testing.T) {
	x, e := fewEntries(t, 32<<10)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	type state struct {
		value    []byte
		position uint64
	}
	model := map[string]state{}
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
			if _, _, st := e.look(x, k, nil); st == absentee {
				v := fmt.Appendf(nil, "%d", step)[:r.IntN(3)]
				e.keep(x, k, v, pool.NewAddr(1, 4096), 0)
				model[string(k)] = state{value: v}
			}
		case 1: // as changeEntry does
			p, b, ok := e.acquire(k)
			if !ok {
				t.Fatal("somebody has the bucket")
			}
			if number, at, head := seek(b, p.head, k); head != 0 && head&stale == 0 {
				used, v := 0, fmt.Appendf(nil, "%d", step)[:valueLen(head)]
				for at := bucketBegin; at < len(b) && b[at] != 0; at += extent(b[at]) {
					used += int(b[at]&unwritten/unwritten) * extent(b[at])
				}
				if head&unwritten != 0 || used < (len(b)-bucketBegin)/unwrittenShare-4 {
					e.rewrite(p.bucket, number, at, p.head|unwritten, k, v, count(b, number), uint64(step+1))
					model[string(k)] = state{v, uint64(step + 1)}
				}
			}
			unlock(b)
		case 2: // as a frame does
			p, b, ok := e.acquire(k)
			if !ok {
				t.Fatal("somebody has the bucket")
			}
			if number, at, head := seek(b, p.head, k); head&unwritten != 0 {
				e.rewrite(p.bucket, number, at, p.head|stale, k, nil, count(b, number), 0)
				delete(model, string(k))
			}
			unlock(b)
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
			value, lsn, st := e.look(x, k, nil)
			want, there := model[string(k)]
			if st == busy || st == done && (!there || !bytes.Equal(value, want.value) || lsn != want.position) || st == absentee && want.position != 0 {
				t.Fatalf("step %d: key %x: %q at %d, state %d, want %q at %d", step, k, value, lsn, st, want.value, want.position)
			}
			if st == done {
				moved++
			}
		}
	}
	for k, want := range model {
		if _, lsn, st := e.look(x, []byte(k), nil); want.position != 0 && (st != done || lsn != want.position) {
			t.Errorf("key %x is not there, or with position %d in place of %d", k, lsn, want.position)
		}
	}
	t.Logf("%d added, %d removed, %d refused, %d found", up, down, refused, moved)
	if up < steps/100 || down < steps/100 || moved < steps/100 {
		t.Error("this tests nothing")
	}
}

// TestUnwrittenEntriesKeepTheirBuckets: a bucket is not removed if its unwritten entries have no
// room elsewhere, and is when they have.
func TestUnwrittenEntriesKeepTheirBuckets(t *testing.T) {
	x, e := fewEntries(t, 8<<10)
	for e.buckets() > e.part {
		if !e.resize(x, false) {
			t.Fatal("not removed")
		}
	}
	last := e.buckets()
	if !e.resize(x, true) {
		t.Fatal("not added")
	}
	var keys [][]byte
	for n := uint64(0); len(keys) < 22; n++ { // some 16 have room in a bucket
		k := binary.BigEndian.AppendUint64(nil, n)
		p, b, ok := e.acquire(k)
		if !ok {
			t.Fatal("somebody has the bucket")
		}
		words := 0
		for at := bucketBegin; at < len(b) && b[at] != 0; at += extent(b[at]) {
			words += extent(b[at])
		}
		if p.bucket%e.part == last%e.part && words < 44 {
			end := e.insert(p.bucket, p.head|unwritten, k, k, 4, 1)
			b[end] = n + 1
			e.hint(p.bucket)
			e.some.Store(true)
			keys = append(keys, k)
		}
		unlock(b)
	}
	check := func() {
		t.Helper()
		for _, k := range keys {
			if v, lsn, st := e.look(x, k, nil); st != done || !bytes.Equal(v, k) || lsn != binary.BigEndian.Uint64(k)+1 {
				t.Fatalf("key %x has %x at %d, state %d", k, v, lsn, st)
			}
		}
	}
	check()
	if e.resize(x, false) {
		t.Fatal("removed")
	}
	check()
	for _, k := range keys[10:] { // these leaves got frames
		p, b, _ := e.acquire(k)
		number, at, _ := seek(b, p.head, k)
		e.rewrite(p.bucket, number, at, p.head|stale, k, k, 1, 0)
		unlock(b)
	}
	keys = keys[:10]
	if !e.resize(x, false) {
		t.Fatal("not removed")
	}
	check()
	e.hold()
	if e.resize(x, true) {
		t.Error("added while somebody goes through all buckets")
	}
	e.release()
}
