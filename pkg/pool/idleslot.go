package pool

import (
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// A session that acquires no lock word for a while gives its intent slot back, for sessions of any
// client of the index. clearSlots does it, in a slot that no session uses: it holds the slot as
// slotForgetting meanwhile, so a session that wants it waits for one round trip, and then claims
// another one. The requests, in one list:
//
//  1. WRITE of zero over the first word of the name;
//  2. CAS of the owner, from this client to nobody.
//
// Who may see what:
//
//   - Before 2 the slot is this client's, and its change is cleared: each session clears it before
//     it releases its word, and waits for that. A fence finds a slot that owes nothing.
//   - After 2 the slot is anybody's. It names no word, so no epoch waits for it. Nothing of this
//     client writes to it any more: a session whose list failed never left the slot (slotUsed), or
//     gave its client up.
//   - If the CAS finds another owner, this client was fenced meanwhile, and the fence gave the slot
//     back.
//
// The client may claim the same slot again. A change that is cut short then has its first word in
// front of what an earlier change left there, and must not verify: its name has another sequence
// number. So the numbers of a slot go on above those of all slots that were given back.

// idleLooks is how many renewals of the lease are between two looks for idle slots. A slot is given
// back that nobody used between two of them: after one lease, and before two are over.
const idleLooks = 4

// idleSlots is how long two looks for idle slots are apart.
func (p *Pool) idleSlots() time.Duration { return idleLooks * p.servers()[0].lease.interval() }

// giveIdleSlots gives slots of a server back that were not used since the last look.
func (s *Session) giveIdleSlots(server int) error {
	srv := s.pool.servers()[server]
	slots := &srv.slots
	slots.mu.Lock()
	all := slots.all
	slots.mu.Unlock()
	for _, slot := range all {
		if seq := slot.seq.Load(); seq != slot.seen {
			slot.seen = seq
			continue
		}
		if !slot.state.CompareAndSwap(slotNamed, slotForgetting) && !slot.state.CompareAndSwap(slotBlank, slotForgetting) {
			continue // a session uses it
		}
		// Before the requests: a session may claim the slot as soon as the CAS took effect, which
		// is before this goroutine hears of it.
		slots.mu.Lock()
		slots.seq = max(slots.seq, slot.seq.Load())
		slots.mu.Unlock()
		s.write(s.slotAddr(server, slot, lock.NameAt), s.zero)
		if _, err := s.SwapWord(NewAddr(srv.id, slot.at), lock.Owner(s.pool.number), 0); err != nil {
			return err
		}
		slots.mu.Lock()
		is := func(o *wordSlot) bool { return o == slot }
		slots.all = slices.DeleteFunc(slices.Clone(slots.all), is) // others go through the old list
		slots.free = slices.DeleteFunc(slots.free, is)
		slots.mu.Unlock()
		slot.state.Store(slotGone)
	}
	return nil
}
