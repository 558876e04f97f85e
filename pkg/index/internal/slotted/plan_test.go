package slotted

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestPlan plans for leaves and batches of all kinds. The parts follow each other, have all that
// the leaf has, each between its fences, and when all that was planned for has come each has room
// for it.
func TestPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var plan Plan
	several, cutShort := 0, 0
	for _, l := range layouts(t) {
		for round := range 300 {
			p := randomPairs(l, r, r.IntN(20))
			h := fence.Header{Version: r.Uint32(), Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
			for d := LoadOf(p.List); d.Used() > l.Room(h.Low, h.High); d = LoadOf(p.List) {
				p.List = p.List[:len(p.List)-1]
			}
			p.Sort()
			next := randomPairs(l, r, 1+r.IntN(64))
			next.Sort()
			var coming []Coming
			for i := range next.List {
				coming = append(coming, Coming{Key: next.Key(i), Bytes: len(next.Entry(i))})
			}
			most := 3 + r.IntN(14)
			plan.Make(&h, p, coming, most)
			if len(plan.Parts) > most {
				t.Fatalf("%d parts, at most %d", len(plan.Parts), most)
			}
			if len(plan.Parts) > 1 {
				several++
			}
			if err := fills(l, &h, p, next, &plan); err != nil {
				t.Fatalf("%+v, round %d: %v", l, round, err)
			}
			all := 0
			for i := range plan.Parts {
				all += plan.Parts[i].Load.Count
			}
			if plan.Out > 0 {
				cutShort++
			}
			if len(plan.Parts) > 0 && all > len(p.List)+len(coming)-plan.Out {
				t.Fatalf("there is room for %d pairs of %d, and %d are left out", all, len(p.List)+len(coming), plan.Out)
			}
		}
	}
	if several == 0 || cutShort == 0 {
		t.Errorf("%d plans have several parts, and %d leave something out: this tests too little", several, cutShort)
	}
}

// fills builds the parts of a plan for a leaf with pairs p, and puts into them what was planned of
// the next ones.
func fills(l *fence.Layout, h *fence.Header, p, next *Pairs, plan *Plan) error {
	if len(plan.Parts) == 0 {
		return nil
	}
	low, from := h.Low, 0
	for i := range plan.Parts {
		part := &plan.Parts[i]
		if !bytes.Equal(part.Low, low) || part.From != from || part.To < part.From {
			return fmt.Errorf("part %d is %+v, and the one before ends at %x, %d", i, *part, low, from)
		}
		g := *h
		g.Low = part.Low
		if i+1 < len(plan.Parts) {
			g.High, g.Rightmost, g.Sibling = plan.Parts[i+1].Low, false, testAddr+pool.Addr(64*(i+1))
			if !item.Below(g.Low, g.High) {
				return fmt.Errorf("part %d is of %x to %x", i, g.Low, g.High)
			}
		}
		b := make([]byte, l.NodeBytes)
		BuildFor(b, l, testAddr, &g, p, part.From, part.To, part.Load) // it checks itself
		var leaf Leaf
		if !leaf.Open(l, testAddr, b) {
			return fmt.Errorf("part %d does not open", i)
		}
		room := part.Load.Count - (part.To - part.From)
		var m Space
		for k := range next.List {
			key, e := next.Key(k), next.Entry(k)
			if room == 0 || leaf.Below(key) || leaf.Above(key) {
				continue
			}
			if _, _, o := leaf.Find(key, l.Fingerprint(key)); o == Present {
				continue
			}
			slot, off := leaf.Vacant(), leaf.Place(&m, len(e))
			if slot < 0 || off == 0 {
				return fmt.Errorf("part %d of %d, %+v, has no room for %x", i, len(plan.Parts), *part, key)
			}
			leaf.Put(slot, l.Fingerprint(key), off, e)
			room--
		}
		if room > 0 {
			return fmt.Errorf("part %d, %+v, keeps room for %d pairs that do not come", i, *part, room)
		}
		low, from = g.High, part.To
	}
	if from != len(p.List) {
		return fmt.Errorf("the parts have %d pairs of %d", from, len(p.List))
	}
	return nil
}

// TestPlanForOne: a leaf as full as can be gets room for any one pair, new or longer than the one
// that is there, in three parts at most.
func TestPlanForOne(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	var plan Plan
	var parts [4]int
	packed := 0
	for _, l := range layouts(t) {
		for round := range 500 {
			p := randomPairs(l, r, r.IntN(100))
			h := fence.Header{Version: 1, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
			for d := LoadOf(p.List); d.Used() > l.Room(h.Low, h.High); d = LoadOf(p.List) {
				p.List = p.List[:len(p.List)-1]
			}
			p.Sort()
			next := randomPairs(l, r, 1)
			key, n := next.Key(0), l.LongestEntry()
			if len(p.List) > 0 && round%2 == 0 {
				key = p.Key(r.IntN(len(p.List)))
			}
			at := p.countBelow(key)
			replaces := at > 0 && bytes.Equal(p.Key(at-1), key)
			plan.Make(&h, p, []Coming{{key, n}}, 3)
			if plan.Out > 0 || len(plan.Parts) == 0 || len(plan.Parts) > 3 {
				t.Fatalf("%+v, round %d: %d parts, %d pairs left out", l, round, len(plan.Parts), plan.Out)
			}
			parts[len(plan.Parts)]++
			for range 2 {
				if err := hasRoom(l, &h, p, &plan, key, n, replaces); err != nil {
					t.Fatalf("%+v, round %d: %v", l, round, err)
				}
				if !plan.Pack(&h, l) {
					break
				}
				packed++
			}
		}
	}
	if parts[1] == 0 || parts[2] == 0 || parts[3] == 0 || packed == 0 {
		t.Errorf("plans by number of parts: %v, %d are packed into one: this tests too little", parts, packed)
	}
}

// hasRoom builds the part of a plan that key belongs to, and looks for room for its entry.
func hasRoom(l *fence.Layout, h *fence.Header, p *Pairs, plan *Plan, key []byte, n int, replaces bool) error {
	i := len(plan.Parts) - 1
	for i > 0 && item.Below(key, plan.Parts[i].Low) {
		i--
	}
	part, g := &plan.Parts[i], *h
	g.Low = part.Low
	if i+1 < len(plan.Parts) {
		g.High, g.Rightmost, g.Sibling = plan.Parts[i+1].Low, false, testAddr+64
	}
	b := make([]byte, l.NodeBytes)
	BuildFor(b, l, testAddr, &g, p, part.From, part.To, part.Load)
	var leaf Leaf
	var m Space
	if !leaf.Open(l, testAddr, b) {
		return fmt.Errorf("part %d does not open", i)
	}
	if leaf.Place(&m, n) == 0 || !replaces && leaf.Vacant() < 0 {
		return fmt.Errorf("part %d of %d, %+v, has no room for %d bytes of %x", i, len(plan.Parts), *part, n, key)
	}
	return nil
}

// TestPlanFillsRuns: keys above all that there are fill leaves but for one entry, and so do those
// of a run in a gap; others leave a part of each leaf free.
func TestPlanFillsRuns(t *testing.T) {
	l := mustLayout(t, index.Options{Uint64: true, MaxValueBytes: 8})
	h := fence.Header{Version: 1, Rightmost: true, Low: l.Bottom, High: l.NoHigh()}
	fit := l.Room(h.Low, h.High) / (SlotBytes + l.EntryBytes(8, 8))
	number := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for _, row := range []struct {
		what        string
		key         func(i int) []byte
		least, most int
	}{
		{"above", func(i int) []byte { return number(1<<20 + i) }, fit * 9 / 10, fit - 1},
		{"in a gap", func(i int) []byte { return number(2000<<8 + 1 + i) }, fit * 9 / 10, fit - 1},
		{"between", func(i int) []byte { return number((1000+i%fit)<<8 + 1 + i) }, fit / 2, fit * 4 / 5},
	} {
		p := &Pairs{Lay: l, Image: make([]byte, 8)}
		for i := range fit {
			key := number((1000 + i) << 8)
			if row.what == "in a gap" && i > fit/2 {
				key = number((3000 + i) << 8)
			}
			e := l.PutEntry(make([]byte, 64), key, make([]byte, 8))
			p.List = append(p.List, EntryAt{item.PrefixOf(key), uint32(len(p.Image)), uint16(len(e))})
			p.Image = append(p.Image, e...)
		}
		var coming []Coming
		for i := range 200 {
			coming = append(coming, Coming{Key: row.key(i), Bytes: l.EntryBytes(8, 8)})
		}
		slices.SortFunc(coming, func(a, b Coming) int { return bytes.Compare(a.Key, b.Key) })
		var plan Plan
		plan.Make(&h, p, coming, 16)
		for i, part := range plan.Parts {
			if n := part.Load.Count; i+1 < len(plan.Parts) && (n < row.least || n > row.most) {
				t.Errorf("%s: part %d of %d has room for %d pairs, want %d to %d", row.what, i, len(plan.Parts), n, row.least, row.most)
			}
		}
		if len(plan.Parts) < 4 || plan.Out != 0 {
			t.Errorf("%s: %d parts, %d keys are left out", row.what, len(plan.Parts), plan.Out)
		}
	}
}
