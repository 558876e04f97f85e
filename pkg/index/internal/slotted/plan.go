package slotted

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// Coming is a pair that is about to come into a leaf.
type Coming struct {
	Key   []byte
	Bytes int // of its entry
}

// Part is one of the leaves that a leaf becomes.
type Part struct {
	Low      []byte // where it begins
	From, To int    // its entries
	Load     Load   // what it has, with what is to come
}

// Plan is how a leaf becomes as many as its pairs need together with those that are to come.
type Plan struct {
	Parts []Part
	Out   int // how many of those that are to come it leaves out, the largest ones

	all []planned
}

// planned is a pair that a leaf has, or that is to come.
type planned struct {
	key   []byte
	bytes int // with a new entry that is to replace it
	there bool
}

// leastRun is how many keys make a run, if nothing lies between them.
const leastRun = 8

// Make plans for the leaf with header h, whose entries p are sorted; so is what is to come, all of
// it between the leaf's fences. A pair that is to come with a key that is there is a longer entry,
// which needs room beside the one that it replaces. There are most parts at most, three or more, so
// some of what is to come may be left out, the largest keys. The first pair never is: even without
// spare room three parts are enough, since the leaf had room for all but that one. What the plan
// has of keys is theirs.
//
// If all that is to come lies above what the leaf has, as where keys ascend, parts are filled as
// far as a leaf ever is: nothing is likely to follow but behind the last one. So are those of a run
// of keys that comes into one gap, as where several programs load. Else parts are made as full as
// each other, and to three quarters, since more may follow between them.
func (d *Plan) Make(h *fence.Header, p *Pairs, coming []Coming, most int) {
	wanted, dense := len(coming), false
	if wanted > 0 {
		first, last := p.countBelow(coming[0].Key), p.countBelow(coming[wanted-1].Key)
		dense = first == last && (first == len(p.List) || wanted >= leastRun)
	}
	for d.Parts = d.Parts[:0]; len(coming) > 0; {
		d.Out = wanted - len(coming)
		d.gather(p, coming)
		if dense {
			d.cut(h, p.Lay, 1, 0)
		} else if d.cut(h, p.Lay, 4, 0); len(d.Parts) > 1 {
			all := 0
			for i := range d.Parts {
				all += d.Parts[i].Load.Used()
			}
			d.cut(h, p.Lay, 1, all/len(d.Parts))
		}
		if len(d.Parts) <= most {
			return
		}
		if len(coming) == 1 {
			d.cut(h, p.Lay, 0, 0)
			return
		}
		coming = coming[:max(1, len(coming)*(most-1)/len(d.Parts))]
		d.Parts = d.Parts[:0]
	}
}

// Pack makes the plan one part, without room to spare, and reports whether it has room for all. It
// follows Make.
func (d *Plan) Pack(h *fence.Header, l *fence.Layout) bool {
	d.Parts = append(d.Parts[:0], Part{Low: h.Low})
	part := &d.Parts[0]
	for i := range d.all {
		if part.Load.Add(d.all[i].bytes); d.all[i].there {
			part.To++
		}
	}
	return part.Load.Used() <= l.Room(h.Low, h.High)
}

// countBelow is how many of the sorted entries are of keys below key, or of key.
func (p *Pairs) countBelow(key []byte) int {
	n := len(p.List)
	for n > 0 && item.Below(key, p.Key(n-1)) {
		n--
	}
	return n
}

// gather makes all what the leaf is to hold, in order.
func (d *Plan) gather(p *Pairs, coming []Coming) {
	d.all = d.all[:0]
	i := 0
	for k := range coming {
		c := &coming[k]
		for ; i < len(p.List) && bytes.Compare(p.Key(i), c.Key) <= 0; i++ {
			d.all = append(d.all, planned{p.Key(i), int(p.List[i].N), true})
		}
		switch n := len(d.all); {
		case n == 0 || !bytes.Equal(d.all[n-1].key, c.Key):
			d.all = append(d.all, planned{c.Key, c.Bytes, false})
		case d.all[n-1].there:
			d.all[n-1].bytes = fence.RoundUp(d.all[n-1].bytes) + c.Bytes
		}
	}
	for ; i < len(p.List); i++ {
		d.all = append(d.all, planned{p.Key(i), int(p.List[i].N), true})
	}
}

// cut makes parts, each of which leaves one of so many shares of its room free (1: none), and has
// room for one entry more; with 0 shares not even that. A part that has so many bytes in use ends,
// if enough is not 0.
func (d *Plan) cut(h *fence.Header, l *fence.Layout, shares, enough int) {
	d.Parts = d.Parts[:0]
	low, had := h.Low, 0
	for i := 0; i < len(d.all); {
		part := Part{Low: low, From: had, To: had}
		for ; i < len(d.all); i++ {
			more, high := part.Load, h.High
			more.Add(d.all[i].bytes)
			if i+1 < len(d.all) {
				high = l.Separator(d.all[i].key, d.all[i+1].key)
			}
			room := l.Room(low, high)
			if shares > 1 {
				room -= room / shares
			}
			need := more.Used()
			if shares > 0 {
				need += more.Spare()
			}
			full := need > room || enough > 0 && part.Load.Used() >= enough
			if full && part.Load.Count > 0 {
				break
			}
			if part.Load = more; d.all[i].there {
				part.To++
			}
		}
		had = part.To
		d.Parts = append(d.Parts, part)
		if i < len(d.all) {
			low = l.Separator(d.all[i-1].key, d.all[i].key)
		}
	}
}
