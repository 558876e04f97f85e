package chime

import (
	"slices"

	"github.com/dmindex/dmindex/pkg/pool"
)

// An insertion changes words of a leaf here and there in its hop range, all of which was READ under
// the leaf's word. So one WRITE can have several of them, with what lies between, which is what the
// memory holds there: readers and repairs do not find it changed. It saves messages where the range
// is short, as NICs pass a few in the time of a message more (messageCost).
//
// In one WRITE the words change in any order, and a hop overwrites the slot that its key comes
// from. So for hops it is such a WRITE that takes effect whole or not at all, also if somebody dies
// (pool.Pool.WholeAlways). Who may see what then:
//
//   - A client that dies leaves a prefix of the list. The WRITEs go from the far end of the range
//     to the home. Each hop goes away from the home, so the slot that gets a key is in the same
//     WRITE as the one that it comes from, or in one before. So each key is in a slot.
//   - A reader that looks at the slots of a key during the WRITE that has both may find the key in
//     neither: in the one before, and in the other one after it changed. But the home word that it
//     sees says of the key that it is in one of them, whether it is the old one or the new; so what
//     the reader saw does not match, and it READs again.
//   - One that finds a key has its value: no value changes here.

// writeRun is bytes of a leaf that changed, with what lies between.
type writeRun struct {
	ahead    int // how far the first slot of it is behind the target's home
	from, to int // bytes
}

// maxWriteRuns is how many pieces an insertion changes at most: a slot and a home word for each
// key.
const maxWriteRuns = 2 * (maxHops + 1)

// A NIC passes a message in the time of so many bytes, if it is short; what a longer one has beside
// its content is messageHead. They say when one WRITE is faster than two, and nothing else.
const (
	shortMessage = 120
	messageHead  = 42
)

// messageCost is how long a WRITE of n bytes keeps a NIC, in bytes.
func messageCost(n int) int { return messageHead + max(n, shortMessage) }

// joinIsFaster reports whether one WRITE of n bytes is not slower than two with a and b of them.
func joinIsFaster(n, a, b int) bool { return messageCost(n) <= messageCost(a)+messageCost(b) }

// writeHops queues the WRITEs of what the hops of p, and the new key, change in the locked leaf:
// slots, and home words of the homes in changed. The image has it.
func (s *session) writeHops(t *target, p *plan, changed []int16) {
	whole := s.Pool.WholeAlways(t.addr)
	if whole < t.slot {
		s.writeApart(t, p, changed)
		return
	}
	var room [maxWriteRuns]writeRun
	list := room[:0]
	add := func(i, from, to int) {
		at := t.slotAt(i)
		list = append(list, writeRun{t.ahead(t.home, i), at + from, at + to})
	}
	for _, m := range p.moves {
		add(int(m.to), 0, t.used(int(m.to)))
	}
	add(p.slot, 0, t.used(p.slot))
	for n, home := range changed {
		if !p.writes(int(home)) && !slices.Contains(changed[:n], home) {
			add(int(home), atDigest, atDigest+homeWord)
		}
	}
	// from the far end to the home; there are few of them
	slices.SortFunc(list, func(a, b writeRun) int { return b.ahead - a.ahead })
	last := list[0]
	for _, next := range list[1:] {
		if n := last.to - next.from; next.from < last.from && n <= whole && joinIsFaster(n, last.to-last.from, next.to-next.from) {
			last.from = next.from
			continue
		}
		s.writeOneRun(t, last)
		last = next
	}
	s.writeOneRun(t, last)
}

// writeApart is writeHops slot by slot, and then home word by home word.
func (s *session) writeApart(t *target, p *plan, changed []int16) {
	for _, m := range p.moves {
		s.writeSlot(t, int(m.to))
	}
	s.writeSlot(t, p.slot)
	for n, home := range changed {
		if !p.writes(int(home)) && !slices.Contains(changed[:n], home) {
			s.writeHome(t, int(home))
		}
	}
}

func (s *session) writeOneRun(t *target, p writeRun) {
	s.PS.Write(pool.Shared, t.addr+pool.Addr(p.from), t.b[p.from:p.to])
}
