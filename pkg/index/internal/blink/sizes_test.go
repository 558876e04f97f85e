package blink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// sizeKinds are kinds of keys and values. Those with a great inline size have leaves that few entries fill.
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

// TestAllNodeSizes grows, splits, changes, merges and empties leaves and inner nodes of the sizes that are allowed for each kind of keys and values: of all up to 4 KiB, and of
// some above; where DMINDEX_SIM_SEEDS is set, of all.
func TestAllNodeSizes(t *testing.T) {
	stride := 64 * 53
	if os.Getenv("DMINDEX_SIM_SEEDS") != "" {
		stride = 64
	}
	for _, o := range sizeKinds {
		t.Run(fmt.Sprintf("uint64=%v,key=%d,value=%d,inline=%d", o.Uint64, o.MaxKeyBytes, o.MaxValueBytes, o.InlineBytes), func(t *testing.T) {
			o := o
			o.NodeBytes = maxNodeBytes
			lay := mustLayout(t, o)
			least := (lay.leastNode() + 63) &^ 63
			sizes := []int{maxNodeBytes - 64, maxNodeBytes}
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
			wrong := []int{maxNodeBytes + 64, maxNodeBytes - 32}
			if !lay.Blocks || o.InlineBytes != 0 { // else smaller nodes have a smaller inline size
				wrong = append(wrong, least-64)
			}
			for _, n := range wrong {
				o.NodeBytes = n
				if _, err := newLayout(o); err == nil {
					t.Errorf("nodes of %d bytes are accepted, at least %d are needed", n, least)
				}
			}
		})
	}
}

// sizeRun is a leaf of one size, and what it shall hold.
type sizeRun struct {
	t    *testing.T
	lay  *layout
	r    *rand.Rand
	b    []byte
	l    leaf
	want map[string][]byte
	heap heapMap
	p    pairs
}

func newSizeRun(t *testing.T, o index.Options) *sizeRun {
	run := &sizeRun{t: t, lay: mustLayout(t, o), r: rand.New(rand.NewPCG(uint64(o.NodeBytes), uint64(o.MaxValueBytes))), want: map[string][]byte{}}
	run.b = make([]byte, run.lay.nodeBytes)
	h := header{version: 1, rightmost: true, low: run.lay.Bottom, high: run.lay.NoHigh()}
	run.build(&h, &pairs{lay: run.lay}, 0, 0)
	return run
}

func (run *sizeRun) fatalf(format string, args ...any) {
	run.t.Helper()
	run.t.Fatalf("nodes of %d bytes: %s", run.lay.nodeBytes, fmt.Sprintf(format, args...))
}

// build makes the leaf, which must open and hold what it shall.
func (run *sizeRun) build(h *header, p *pairs, from, to int) {
	run.t.Helper()
	image := make([]byte, run.lay.nodeBytes)
	if n := buildLeaf(image, run.lay, testAddr, h, p, from, to); n > len(image) {
		run.fatalf("a leaf of %d bytes", n)
	}
	run.b = image
	run.check()
}

func (run *sizeRun) check() {
	run.t.Helper()
	if !run.l.open(run.lay, testAddr, run.b) || !run.l.verifyAll() {
		run.fatalf("the leaf does not verify")
	}
	for key, value := range run.want {
		_, e, o := run.l.find([]byte(key), run.lay.Fingerprint([]byte(key)))
		if o != present {
			run.fatalf("key %x is lost", key)
		}
		if _, v, _ := run.lay.Pair(e); !bytes.Equal(v, value) {
			run.fatalf("key %x has another value", key)
		}
	}
	if d := run.l.load(); d.count != len(run.want) {
		run.fatalf("the leaf holds %d entries, want %d", d.count, len(run.want))
	}
}

// draw draws a key between the fences of the leaf, and a value: mostly the longest ones, or the shortest ones.
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
		if !item.Below(key, run.l.low) && !run.l.above(key) {
			return key, bytes.Repeat([]byte{byte(r.Uint32())}, most(lay.Inline))
		}
		if r.IntN(50) == 0 { // few keys lie there: one that does
			return bytes.Clone(run.l.low), make([]byte, most(lay.Inline))
		}
	}
}

// upsert does what a write does to a locked leaf. split says that the leaf was divided: what it holds now is one of the halves.
func (run *sizeRun) upsert(key, value []byte) (split bool) {
	run.t.Helper()
	lay := run.lay
	e := lay.PutEntry(make([]byte, maxEntryBytes), key, value)
	i, _, o := run.l.find(key, lay.Fingerprint(key))
	if o == absent {
		i = run.l.vacant()
	}
	if off := run.l.place(&run.heap, len(e)); i >= 0 && off > 0 {
		run.l.put(i, lay.Fingerprint(key), off, e)
		run.want[string(key)] = value
		return false
	}
	p := &run.p
	if !run.l.collect(p) {
		run.fatalf("the leaf is torn")
	}
	if o == present {
		p.replace(e)
	} else {
		p.add(e)
	}
	p.sort()
	run.want[string(key)] = value
	d, h := loadOf(p.list), run.l.header
	h.version++
	if d.packs(lay.room(h.low, h.high), true) {
		run.build(&h, p, 0, len(p.list))
		return false
	}
	newLast := o == absent && p.list[len(p.list)-1].off == 0
	at := splitAt(&h, p, newLast)
	sep := bytes.Clone(lay.Separator(p.key(at-1), p.key(at)))
	halves := [2]header{h, h}
	halves[0].high, halves[0].rightmost, halves[0].sibling = sep, false, testAddr+64
	halves[1].low = sep
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
		low, high := bytes.Clone(halves[half].low), bytes.Clone(halves[half].high)
		halves[half].low, halves[half].high = low, high
		if half == 0 {
			run.build(&halves[0], p, 0, at)
		} else {
			run.build(&halves[1], p, at, len(p.list))
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
		i, _, o := run.l.find([]byte(key), run.lay.Fingerprint([]byte(key)))
		if o != present {
			run.fatalf("key %x is lost before it is deleted", key)
		}
		run.l.remove(i)
		delete(run.want, key)
	}
	run.check()
	run.inner()
}

// merge divides the leaf in every way that leaves its parts together small enough, and merges them.
func (run *sizeRun) merge() {
	lay := run.lay
	if !run.l.collect(&run.p) {
		run.fatalf("the leaf is torn")
	}
	run.p.sort()
	all := pairs{lay: lay, image: bytes.Clone(run.b), skip: run.p.skip, list: slices.Clone(run.p.list)}
	h := run.l.header
	h.low, h.high = bytes.Clone(h.low), bytes.Clone(h.high)
	for len(all.list) > 1 {
		d := loadOf(all.list)
		at := len(all.list) / 2
		sep := lay.Separator(all.key(at-1), all.key(at))
		left, right := h, h
		left.high, left.rightmost, left.sibling = sep, false, testAddr+pool.Addr(lay.nodeBytes)
		right.low = sep
		if l, r := loadOf(all.list[:at]), loadOf(all.list[at:]); l.used() > lay.room(left.low, sep) || r.used() > lay.room(sep, right.high) {
			all.list = all.list[:len(all.list)-1]
			continue
		}
		m := &merger{both: make([]byte, 2*lay.nodeBytes)}
		for i := range 2 {
			m.node[i], m.image[i] = make([]byte, lay.nodeBytes), make([]byte, lay.nodeBytes)
		}
		a := [2]pool.Addr{testAddr, left.sibling}
		buildLeaf(m.node[0], lay, a[0], &left, &all, 0, at)
		buildLeaf(m.node[1], lay, a[1], &right, &all, at, len(all.list))
		run.fillEnd(m.node[0], a[0])
		run.fillEnd(m.node[1], a[1])
		s := &session{lay: lay}
		n := s.mergeLeaves(m, a)
		if fits := d.used()+d.spare() <= mayFill(lay.room(h.low, h.high), false); fits != (n > 0) {
			run.fatalf("leaves of %d entries, %d bytes: merged to %d", d.count, d.used(), n)
		}
		if n == 0 {
			all.list = all.list[:len(all.list)-1]
			continue
		}
		run.want = map[string][]byte{}
		for i := range all.list {
			k, v := all.pair(i)
			run.want[string(k)] = bytes.Clone(v)
		}
		run.b = m.image[0]
		run.check()
		return
	}
}

// fillEnd moves an entry of the leaf in b to the end of the node, if there is room, as updates do in time.
func (run *sizeRun) fillEnd(b []byte, a pool.Addr) {
	var l leaf
	if !l.open(run.lay, a, b) {
		run.fatalf("a leaf does not verify before its merge")
	}
	end := 0
	for i := range l.count {
		w := l.slot(i)
		end = max(end, slotOffset(w)+slotLength(w))
	}
	for i := range l.count {
		w := l.slot(i)
		if off := len(b) - roundUp(slotLength(w)); slotLength(w) > 0 && off >= end {
			e := bytes.Clone(l.entry(w))
			l.put(i, run.lay.Fingerprint(run.lay.KeyOf(e)), off, e)
			return
		}
	}
}

// inner grows an inner node until it was divided, joins its halves, and takes all children away but one.
func (run *sizeRun) inner() {
	lay := run.lay
	b := make([]byte, lay.nodeBytes)
	d := &draft{low: lay.Bottom, high: lay.NoHigh(), rightmost: true, level: 1, children: []pool.Addr{64}}
	run.l.header = header{rightmost: true, low: lay.Bottom, high: lay.NoHigh()}
	for n := 0; n < 10000; n++ {
		sep, _ := run.draw()
		i, found := slices.BinarySearchFunc(d.seps, sep, bytes.Compare)
		if found || !item.Below(d.low, sep) {
			continue
		}
		d.insert(i, sep, pool.Addr(64*(n+2)))
		if d.bytes(lay) <= lay.nodeBytes {
			continue
		}
		count := len(d.children)
		right, _ := d.split(lay, n%2 == 0)
		if len(d.children)+len(right.children) != count || len(d.children) == 0 || len(right.children) == 0 {
			run.fatalf("an inner node of %d children is divided into %d and %d", count, len(d.children), len(right.children))
		}
		for _, half := range []*draft{d, right} {
			if size := half.bytes(lay); size > lay.nodeBytes {
				run.fatalf("half of an inner node of %d children, %d of them, takes %d bytes", count, len(half.children), size)
			}
			n := half.build(b, lay, testAddr, 1)
			if got := decodeInner(lay, testAddr, b[:n]); got == nil || len(got.children) != len(half.children) {
				run.fatalf("half of an inner node does not decode")
			}
		}
		for len(d.children)+len(right.children) > 2 && (len(right.children) > 1 || len(d.children) > 1) {
			if len(right.children) > 1 {
				right.remove(len(right.children) - 1)
			} else {
				d.remove(len(d.children) - 1)
			}
		}
		d.join(right)
		d.build(b, lay, testAddr, 2)
		return
	}
}
