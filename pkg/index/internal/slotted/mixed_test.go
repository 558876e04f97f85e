package slotted

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
)

// TestUnmix writes any words of other entries over those of their keys, as a WRITE that is cut
// short does, and makes the leaf verify: their keys have values of zeros then, and all others
// what they had. Other damage stays damage.
func TestUnmix(t *testing.T) {
	all := layouts(t)
	for _, uint64s := range []bool{false, true} {
		all = append(all, mustLayout(t, index.Options{Uint64: uint64s, MaxKeyBytes: map[bool]int{false: 40}[uint64s], MaxValueBytes: 500, InlineBytes: 30}))
	}
	r := rand.New(rand.NewPCG(2, 2))
	for _, l := range all {
		for range 100 {
			unmixOne(t, l, r)
		}
	}
}

func unmixOne(t *testing.T, l *fence.Layout, r *rand.Rand) {
	p := randomPairs(l, r, 1+r.IntN(20))
	for d := LoadOf(p.List); d.Used() > l.Room(l.Bottom, l.NoHigh()); d = LoadOf(p.List) {
		p.List = p.List[:len(p.List)-1]
	}
	b := make([]byte, l.NodeBytes)
	Build(b, l, testAddr, &fence.Header{Version: r.Uint32(), Rightmost: true, Low: l.Bottom, High: l.NoHigh()}, p, 0, len(p.List))
	var leaf Leaf
	if !leaf.Open(l, testAddr, b) {
		t.Fatal("a leaf does not open")
	}
	put, mixed := map[string]bool{}, map[string]bool{}
	for i := range p.List {
		key, _ := p.Pair(i)
		had := leaf.EntryAt(leaf.SlotWord(i))
		room := len(had) - l.ValueAt(len(key))
		e := l.PutEntry(make([]byte, MaxEntryBytes), key, bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(room+1)))
		if l.Blocks && room >= 16 && r.IntN(3) == 0 {
			e = l.PutReference(make([]byte, MaxEntryBytes), key, bytes.Repeat([]byte{byte(r.Uint32())}, 16))
		}
		if put[string(key)] = true; r.IntN(2) == 0 {
			continue
		}
		e = append(e, make([]byte, fence.RoundUp(len(e))-len(e))...)
		to := b[SlotOffset(leaf.SlotWord(i)):]
		for at := 0; at < len(e); at += 8 {
			if r.IntN(2) == 0 {
				copy(to[at:at+8], e[at:])
			}
		}
		if !leaf.verified(i, leaf.SlotWord(i), had) {
			mixed[string(key)] = true
		}
	}
	damaged := bytes.Clone(b)
	if n, ok := leaf.Unmix(func(key []byte) bool { return put[string(key)] }); !ok || n != len(mixed) || !leaf.Verify() {
		t.Fatalf("%+v: %d of %d slots were made to verify: %v", l, n, len(mixed), ok)
	}
	for i := range p.List {
		key, value := p.Pair(i)
		if mixed[string(key)] {
			value = make([]byte, len(value))
		}
		e, there := leaf.EntryOf(key)
		if _, got, _ := l.Pair(e); !there || !bytes.Equal(got, value) || mixed[string(key)] && l.HasReference(e) {
			t.Fatalf("%+v: key %x has %x, %v; want %x", l, key, got, there, value)
		}
	}
	if len(mixed) == 0 {
		return
	}
	for name, harm := range map[string]func(*Leaf){
		"keys that nobody knows": func(*Leaf) {},
		"another key": func(d *Leaf) {
			key, _ := p.Pair(0)
			if len(key) > 0 {
				d.EntryAt(d.SlotWord(0))[l.ValueAt(len(key))-1-l.ValueAt(0)%2] ^= 1
			}
		},
		"an empty slot's word": func(d *Leaf) {
			binary.LittleEndian.PutUint64(d.Bytes[d.SlotAt(0):], 1<<40)
		},
		"a slot that leads nowhere": func(d *Leaf) {
			binary.LittleEndian.PutUint64(d.Bytes[d.SlotAt(0):], slotWord(0, 0, 8*0xfff, 0xff))
		},
	} {
		var d Leaf
		d.Open(l, testAddr, bytes.Clone(damaged))
		harm(&d)
		known := func(key []byte) bool { return name != "keys that nobody knows" && put[string(key)] }
		if _, ok := d.Unmix(known); ok && (name != "another key" || len(p.Key(0)) > 0) {
			t.Fatalf("%+v: %s is taken for a mixture", l, name)
		}
	}
}
