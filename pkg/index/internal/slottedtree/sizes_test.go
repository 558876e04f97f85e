package slottedtree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// sizeKinds are kinds of keys and values. Those with a great inline size have leaves that few
// entries fill.
var sizeKinds = []index.Options{
	{Uint64: true},
	{Uint64: true, MaxValueBytes: 16},
	{Uint64: true, MaxValueBytes: 4000, InlineBytes: 4000},
	{Uint64: true, MaxValueBytes: 2000, InlineBytes: 16},
	{MaxKeyBytes: 1, MaxValueBytes: 4000, InlineBytes: 4000},
	{MaxKeyBytes: 40, MaxValueBytes: 100},
	{MaxKeyBytes: 256, MaxValueBytes: 1000},
	{MaxKeyBytes: 2000, MaxValueBytes: 2000, InlineBytes: 2000},
	{MaxKeyBytes: 4093},
}

// TestAllNodeSizes grows, splits, changes, merges and empties leaves and inner nodes of the sizes
// that are allowed for each kind of keys and values: of all up to 4 KiB, and of some above; where
// DMINDEX_SIM_SEEDS is set, of all.
func TestAllNodeSizes(t *testing.T) {
	stride := 64 * 53
	if os.Getenv("DMINDEX_SIM_SEEDS") != "" {
		stride = 64
	}
	for _, o := range sizeKinds {
		t.Run(fmt.Sprintf("uint64=%v,key=%d,value=%d,inline=%d", o.Uint64, o.MaxKeyBytes, o.MaxValueBytes, o.InlineBytes), func(t *testing.T) {
			o := o
			o.NodeBytes = fence.MaxNodeBytes
			lay := testLayout(t, o)
			least := (slotted.LeastNode(lay) + 63) &^ 63
			sizes := []int{fence.MaxNodeBytes - 64, fence.MaxNodeBytes}
			for n := least; n < sizes[0]; n += stride {
				for ; n < 4<<10 && stride > 64; n += 64 {
					if !testing.Short() || n%1024 == 0 {
						sizes = append(sizes, n)
					}
				}
				sizes = append(sizes, n)
			}
			for _, n := range sizes {
				o.NodeBytes = n
				newSizeRun(t, o).do()
			}
			wrong := []int{fence.MaxNodeBytes + 64, fence.MaxNodeBytes - 32}
			if !lay.Blocks || o.InlineBytes != 0 { // else smaller nodes have a smaller inline size
				wrong = append(wrong, least-64)
			}
			for _, n := range wrong {
				o.NodeBytes = n
				if _, err := slotted.NewLayout(o); err == nil {
					t.Errorf("nodes of %d bytes are accepted, at least %d are needed", n, least)
				}
			}
		})
	}
}

// sizeRun is a leaf of one size, and what it shall hold.
type sizeRun struct {
	t    *testing.T
	lay  *fence.Layout
	r    *rand.Rand
	b    []byte
	l    slotted.Leaf
	want map[string][]byte
	heap slotted.Space
	p    slotted.Pairs
}

func newSizeRun(t *testing.T, o index.Options) *sizeRun {
	run := &sizeRun{t: t, lay: testLayout(t, o), r: rand.New(rand.NewPCG(uint64(o.NodeBytes), uint64(o.MaxValueBytes))), want: map[string][]byte{}}
	run.b = make([]byte, run.lay.NodeBytes)
	h := fence.Header{Version: 1, Rightmost: true, Low: run.lay.Bottom, High: run.lay.NoHigh()}
	run.build(&h, &slotted.Pairs{Lay: run.lay}, 0, 0)
	return run
}

func (run *sizeRun) fatalf(format string, args ...any) {
	run.t.Helper()
	run.t.Fatalf("nodes of %d bytes: %s", run.lay.NodeBytes, fmt.Sprintf(format, args...))
}

// build makes the leaf, which must open and hold what it shall.
func (run *sizeRun) build(h *fence.Header, p *slotted.Pairs, from, to int) {
	run.t.Helper()
	image := make([]byte, run.lay.NodeBytes)
	if n := slotted.Build(image, run.lay, testAddr, h, p, from, to); n > len(image) {
		run.fatalf("a leaf of %d bytes", n)
	}
	run.b = image
	run.check()
}

func (run *sizeRun) check() {
	run.t.Helper()
	if !run.l.Open(run.lay, testAddr, run.b) || !run.l.Verify() {
		run.fatalf("the leaf does not verify")
	}
	for key, value := range run.want {
		_, e, o := run.l.Find([]byte(key), run.lay.Fingerprint([]byte(key)))
		if o != slotted.Present {
			run.fatalf("key %x is lost", key)
		}
		if _, v, _ := run.lay.Pair(e); !bytes.Equal(v, value) {
			run.fatalf("key %x has another value", key)
		}
	}
	if d := run.l.Load(); d.Count != len(run.want) {
		run.fatalf("the leaf holds %d entries, want %d", d.Count, len(run.want))
	}
}

// draw draws a key between the fences of the leaf, and a value: mostly the longest ones, or the
// shortest ones.
func (run *sizeRun) draw() (key, value []byte) {
	lay, r := run.lay, run.r
	most := func(n int) int { return []int{n, n, 0, r.IntN(n + 1)}[r.IntN(4)] }
	for {
		key = make([]byte, lay.MaxKey)
		if !lay.Uint64 {
			key = key[:most(lay.MaxKey)]
		}
		for i := range key {
			key[i] = byte(r.Uint32())
			if len(key) > 100 && i > len(key)-4 {
				key[i] = byte(r.IntN(2))
			} else if len(key) > 100 {
				key[i] = 7 // long separators
			}
		}
		if lay.MaxKey > 100 && !lay.Uint64 && len(key) > 3 {
			binary.BigEndian.PutUint16(key[len(key)-2:], uint16(r.Uint32()))
		}
		if !item.Below(key, run.l.Low) && !run.l.Above(key) {
			return key, bytes.Repeat([]byte{byte(r.Uint32())}, most(lay.Inline))
		}
		if r.IntN(50) == 0 { // few keys lie there: one that does
			return bytes.Clone(run.l.Low), make([]byte, most(lay.Inline))
		}
	}
}

// upsert does what a write does to a locked leaf. split says that the leaf was divided: what it
// holds now is one of the halves.
func (run *sizeRun) upsert(key, value []byte) (split bool) {
	run.t.Helper()
	lay := run.lay
	e := lay.PutEntry(make([]byte, slotted.MaxEntryBytes), key, value)
	i, _, o := run.l.Find(key, lay.Fingerprint(key))
	if o == slotted.Absent {
		i = run.l.Vacant()
	}
	if off := run.l.Place(&run.heap, len(e)); i >= 0 && off > 0 {
		run.l.Put(i, lay.Fingerprint(key), off, e)
		run.want[string(key)] = value
		return false
	}
	p := &run.p
	if !run.l.Collect(p) {
		run.fatalf("the leaf is torn")
	}
	if o == slotted.Present {
		p.Replace(e)
	} else {
		p.Add(e)
	}
	p.Sort()
	run.want[string(key)] = value
	d, h := slotted.LoadOf(p.List), run.l.Header
	h.Version++
	if d.Packs(lay.Room(h.Low, h.High), true) {
		run.build(&h, p, 0, len(p.List))
		return false
	}
	newLast := o == slotted.Absent && p.List[len(p.List)-1].Off == 0
	at := slotted.SplitAt(&h, p, newLast)
	sep := bytes.Clone(lay.Separator(p.Key(at-1), p.Key(at)))
	halves := [2]fence.Header{h, h}
	halves[0].High, halves[0].Rightmost, halves[0].Sibling = sep, false, testAddr+64
	halves[1].Low = sep
	whole, stay := run.want, run.r.IntN(2)
	for _, half := range []int{1 - stay, stay} {
		run.want = map[string][]byte{}
		for k, v := range whole {
			if item.Below([]byte(k), sep) == (half == 0) {
				run.want[k] = v
			}
		}
		if len(run.want) == 0 {
			run.fatalf("half %d of a split gets nothing", half)
		}
		low, high := bytes.Clone(halves[half].Low), bytes.Clone(halves[half].High)
		halves[half].Low, halves[half].High = low, high
		if half == 0 {
			run.build(&halves[0], p, 0, at)
		} else {
			run.build(&halves[1], p, at, len(p.List))
		}
	}
	return true
}

func (run *sizeRun) do() {
	// One entry, of all lengths.
	key, _ := run.draw()
	for i := range 40 {
		value := make([]byte, run.lay.Inline*(i%5)/4)
		if run.upsert(key, value) {
			run.fatalf("a leaf with one key is divided")
		}
	}
	// Grow until the leaf was divided a few times.
	for splits, n := 0, 0; splits < 3 && n < 3000; n++ {
		if run.upsert(run.draw()) {
			splits++
		}
	}
	run.check()
	run.merge()
	for key := range run.want { // delete everything
		i, _, o := run.l.Find([]byte(key), run.lay.Fingerprint([]byte(key)))
		if o != slotted.Present {
			run.fatalf("key %x is lost before it is deleted", key)
		}
		run.l.Remove(i)
		delete(run.want, key)
	}
	run.check()
}

// merge divides the leaf in every way that leaves its parts together small enough, and merges them.
func (run *sizeRun) merge() {
	lay := run.lay
	if !run.l.Collect(&run.p) {
		run.fatalf("the leaf is torn")
	}
	run.p.Sort()
	all := run.p
	all.Image, all.List = bytes.Clone(run.b), slices.Clone(run.p.List)
	h := run.l.Header
	h.Low, h.High = bytes.Clone(h.Low), bytes.Clone(h.High)
	for len(all.List) > 1 {
		d := slotted.LoadOf(all.List)
		at := len(all.List) / 2
		sep := lay.Separator(all.Key(at-1), all.Key(at))
		left, right := h, h
		left.High, left.Rightmost, left.Sibling = sep, false, testAddr+pool.Addr(lay.NodeBytes)
		right.Low = sep
		if l, r := slotted.LoadOf(all.List[:at]), slotted.LoadOf(all.List[at:]); l.Used() > lay.Room(left.Low, sep) || r.Used() > lay.Room(sep, right.High) {
			all.List = all.List[:len(all.List)-1]
			continue
		}
		image, nodes := make([]byte, lay.NodeBytes), [2][]byte{make([]byte, lay.NodeBytes), make([]byte, lay.NodeBytes)}
		a := [2]pool.Addr{testAddr, left.Sibling}
		slotted.Build(nodes[0], lay, a[0], &left, &all, 0, at)
		slotted.Build(nodes[1], lay, a[1], &right, &all, at, len(all.List))
		run.fillEnd(nodes[0], a[0])
		run.fillEnd(nodes[1], a[1])
		n := (&leaves{lay: lay}).Merge(image, a, &nodes)
		if fits := d.Used()+d.Spare() <= btree.MayFill(lay.Room(h.Low, h.High), false); fits != (n > 0) {
			run.fatalf("leaves of %d entries, %d bytes: merged to %d", d.Count, d.Used(), n)
		}
		if n == 0 {
			all.List = all.List[:len(all.List)-1]
			continue
		}
		run.want = map[string][]byte{}
		for i := range all.List {
			k, v := all.Pair(i)
			run.want[string(k)] = bytes.Clone(v)
		}
		run.b = image
		run.check()
		return
	}
}

// fillEnd moves an entry of the leaf in b to the end of the node, if there is room, as updates do
// in time.
func (run *sizeRun) fillEnd(b []byte, a pool.Addr) {
	var l slotted.Leaf
	if !l.Open(run.lay, a, b) {
		run.fatalf("a leaf does not verify before its merge")
	}
	end := 0
	for i := range l.Count {
		w := l.SlotWord(i)
		end = max(end, slotted.SlotOffset(w)+slotted.SlotLength(w))
	}
	for i := range l.Count {
		w := l.SlotWord(i)
		if off := len(b) - fence.RoundUp(slotted.SlotLength(w)); slotted.SlotLength(w) > 0 && off >= end {
			e := bytes.Clone(l.EntryAt(w))
			l.Put(i, run.lay.Fingerprint(run.lay.KeyOf(e)), off, e)
			return
		}
	}
}
