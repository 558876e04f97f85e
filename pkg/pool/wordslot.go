package pool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// Intent slots. They say what a Rewrite changes, and where a fence finds a word of no strip. A
// session that does neither needs none. Each memory server has room for some of each index
// (Grant.IntentSlots), 64 bytes each. A client claims them one by one, by a CAS of the owner's word
// from nobody's, and keeps them until it is fenced, or they are idle; its sessions use them, each
// its own. The fence gives them back, but for those whose change is owed: a repairer does that.
//
// # When a slot forgets its word
//
// A slot goes on naming a word after its release, since an own request behind the release would
// cost more than it is worth. So a name is an address that the client holds, and the fence looks
// there. Memory of words gets another use only when epochs say that nobody holds an address of it
// (reclaim.go). So a client passes an epoch only when none of its slots names a word on behalf of
// an operation that began before: forget WRITEs zero over the first word of such a name. It does so
// only in slots that no session uses just now: use and forget exclude each other by the slot's
// state.
//
// Whoever gives memory of lock words another use sees to it besides that none of them says Repair
// or is held, now that nobody holds its address: it acquires each that is not free. And it acquires
// each once when the memory is out of the structure, before it retires it: slots of dead clients
// that owe a change name words, too, and repairOwed has the addresses from there. A word that was
// free then, and whose node nobody changes any more, is in no such slot later. Memory that is
// used for the same again keeps its words as they are. Free, which waits for nothing, is for memory
// whose words nobody ever acquired.

// wordSlot is a slot of this client.
type wordSlot struct {
	at    uint64        // its offset on its server
	seq   atomic.Uint32 // the last one; the session that uses it raises it
	seen  uint32        // seq at the last look for idle slots; of clearSlots
	state atomic.Uint32
	since atomic.Uint64 // when the operation began that used it last, on the client's clock
	// its presence word may be what a dead client left; of the session that uses it
	stale bool
}

// States of a slot. A session moves it from blank or named to used, and leaves it named, or as it
// was if it named no word (Enter). forget moves it from named to forgetting, and leaves it blank.
const (
	slotBlank = iota
	slotUsed
	slotNamed
	slotForgetting
	slotGone // given back: nobody's of this client any more
)

// release ends the use of the slot with l: it names l's word from now on, for an operation that
// began at a time, or says what it said before.
func (l *wordLock) release(active uint64) {
	if l.slot == nil {
		return
	}
	if l.named {
		l.slot.since.Store(active)
		l.was = slotNamed
	}
	l.slot.state.Store(l.was)
	l.slot = nil
}

// useSlot makes l use the session's slot on its server.
func (s *Session) useSlot(l *wordLock) (err error) {
	l.slot, l.was, err = s.slotFor(l.server)
	return err
}

// wordSlots are the slots of this client on one server.
type wordSlots struct {
	mu   env.Mutex
	all  []*wordSlot
	free []*wordSlot // no session's
	// how many are being claimed: each counts in this client's share before it is had
	claimed int
	// above all that slots had which were given back: see idleslot.go
	seq uint32
}

// ErrNoIntent is returned when a session needs an intent slot, to acquire a lock word, and there is
// none: the index has as many sessions as its memory server has room for, or this client has its
// share of them.
var ErrNoIntent = errors.New("no intent slot is left")

// slotShare is the part of a server's slots that one client may have.
const slotShare = 2

// slotsRead is how many slots are read at once.
const slotsRead = 32

// slotFor is the session's slot on a server, for it to use now, and the state that it was in.
func (s *Session) slotFor(server int) (*wordSlot, uint32, error) {
	if len(s.slots) <= server {
		s.slots = append(s.slots, make([]*wordSlot, len(s.pool.servers())-len(s.slots))...)
	}
	for n := 0; ; n++ {
		slot := s.slots[server]
		if slot == nil || slot.state.Load() == slotGone {
			var err error
			if slot, err = s.acquireSlot(server); err != nil {
				return nil, 0, err
			}
			s.slots[server] = slot
		}
		for _, from := range []uint32{slotNamed, slotBlank} {
			if slot.state.CompareAndSwap(from, slotUsed) {
				if from == slotBlank { // else it says what it said, until it has another name
					slot.since.Store(s.active.Load())
				}
				slot.seq.Add(1)
				return slot, from, nil
			}
		}
		if late := s.Overdue(); late != nil {
			return nil, 0, fmt.Errorf("wait until the session's intent slot is cleared: %w", late)
		}
		s.backOff(n)
	}
}

// acquireSlot finds a slot for the session: one that no session of this client uses any more, or
// one that is nobody's.
func (s *Session) acquireSlot(server int) (*wordSlot, error) {
	srv := s.pool.servers()[server]
	slots := &srv.slots
	share := min(srv.grant.IntentSlots, max(1, srv.grant.IntentSlots/slotShare))
	slots.mu.Lock()
	have := len(slots.all) + slots.claimed
	if n := len(slots.free); n > 0 {
		slot := slots.free[n-1]
		slots.free = slots.free[:n-1]
		slots.mu.Unlock()
		return slot, nil
	}
	if have < share {
		slots.claimed++
	}
	slots.mu.Unlock()
	if have >= share {
		return nil, fmt.Errorf("%w on memory server %d: %d sessions of this client have one, of %d a client may have; close sessions", ErrNoIntent, srv.id, have, share)
	}
	at, err := s.claimSlot(server)
	slots.mu.Lock()
	defer slots.mu.Unlock()
	slots.claimed--
	if err != nil {
		return nil, err
	}
	slot := &wordSlot{at: at, stale: srv.grant.Presence != 0}
	slot.seq.Store(slots.seq)
	slots.all = append(slots.all, slot)
	s.pool.keeper.forgets()
	return slot, nil
}

// claimSlot makes a slot this client's that is nobody's.
func (s *Session) claimSlot(server int) (at uint64, err error) {
	srv := s.pool.servers()[server]
	n := srv.grant.IntentSlots
	// Clients begin at different places, so that they do not want the same ones.
	first := int(uint64(s.pool.client) * 0x9E3779B97F4A7C15 >> 32 % uint64(n))
	err = s.eachSlot(server, first, func(offset uint64, b []byte) (bool, error) {
		if binary.NativeEndian.Uint64(b) != 0 {
			return true, nil
		}
		found, err := s.SwapWord(NewAddr(srv.id, offset), 0, lock.Owner(s.pool.number))
		if err == nil && found == 0 {
			at = offset
		}
		return at == 0, err
	})
	if err == nil && at == 0 {
		err = fmt.Errorf("%w on memory server %d: all %d of the index are taken; close sessions of any of its clients, or end clients", ErrNoIntent, srv.id, n)
	}
	return at, err
}

// eachSlot calls see for the slots of a server, from the first on and around, until it returns
// false. The bytes are those of s.area, which see may not read anew.
func (s *Session) eachSlot(server, first int, see func(offset uint64, b []byte) (more bool, err error)) error {
	srv := s.pool.servers()[server]
	n := srv.grant.IntentSlots
	for done := 0; done < n; {
		from := (first + done) % n
		part := min(slotsRead, n-from, n-done)
		at := srv.grant.Intents + uint64(from)*lock.SlotBytes
		b := s.area[:part*lock.SlotBytes]
		s.Read(NewAddr(srv.id, at), b)
		if err := s.Post(); err != nil {
			return err
		}
		for i := range part {
			more, err := see(at+uint64(i)*lock.SlotBytes, b[i*lock.SlotBytes:][:lock.SlotBytes])
			if err != nil || !more {
				return err
			}
		}
		done += part
	}
	return nil
}

// slotAddr is the address of a part of a slot.
func (s *Session) slotAddr(server int, slot *wordSlot, part uint64) Addr {
	return NewAddr(s.pool.servers()[server].id, slot.at+part)
}

// nameIn is what the slot of l says of its word.
func (s *Session) nameIn(l *wordLock) []byte {
	n := lock.Name{Word: l.word.At.Offset(), Node: l.word.Node.Offset(), Seq: l.slot.seq.Load(), Client: s.pool.number}
	n.Encode(s.name)
	return s.name
}

// leaveSlots gives the session's slots to other sessions of its client.
func (s *Session) leaveSlots() {
	for i, slot := range s.slots {
		// used: it died with a word
		if slot == nil || slot.state.Load() == slotUsed || slot.state.Load() == slotGone {
			continue
		}
		slots := &s.pool.servers()[i].slots
		slots.mu.Lock()
		slots.free = append(slots.free, slot)
		slots.mu.Unlock()
	}
	s.slots = nil
}

// eachOlder calls see for the slots that name a word, perhaps, on behalf of an operation that began
// before since.
func (t *wordSlots) eachOlder(since uint64, see func(*wordSlot)) {
	t.mu.Lock()
	all := t.all
	t.mu.Unlock()
	for _, slot := range all {
		if state := slot.state.Load(); state != slotBlank && state != slotGone && slot.since.Load() < since {
			see(slot)
		}
	}
}

// forgotten reports whether none of the slots of s names a word on behalf of an operation that
// began before since, when none of these is under way any more. If some do, they are cleared soon.
func (p *Pool) forgotten(s *server, since uint64) bool {
	all := true
	s.slots.eachOlder(since, func(*wordSlot) { all = false })
	if !all {
		raise(&p.keeper.forgetAll, since) // above the floor, if the epoch is of uncached memory
		p.keeper.forget.Set()
	}
	return all
}

// forgets starts what clears slots, with the first slot of this client.
func (k *leaseKeeper) forgets() {
	if k.forgetting.CompareAndSwap(false, true) {
		k.group.Go("clear intent slots", k.clearSlots)
	}
}

// clearSlots clears slots when it is told to, and gives idle ones back, for as long as the pool is
// open.
func (k *leaseKeeper) clearSlots() {
	p := k.pool
	s, err := p.NewSession(64)
	if err != nil {
		// epochs would stand still for everybody
		p.Condemn(fmt.Errorf("clear intent slots: %w", err))
		return
	}
	defer s.Close()
	for i := range p.members() { // what nobody else came to repair would keep its slot for ever
		_ = s.repairOwed(i, false) // who wants such a word is told
		if err = s.broken; err != nil {
			break
		}
	}
	s.End()
	next := env.Deadline(p.env, p.idleSlots())
	for err = s.broken; ; {
		if err != nil {
			p.Condemn(fmt.Errorf("clear intent slots: %w", err))
			return
		}
		k.forget.Wait(env.Remaining(p.env, next))
		if k.stopped.Load() || p.condemned.Load() != nil {
			return
		}
		for i, srv := range p.servers() {
			srv.slots.eachOlder(k.forgetAll.Load(), func(slot *wordSlot) {
				if err == nil {
					err = s.forgetName(i, slot)
				}
			})
		}
		if env.Remaining(p.env, next) <= 0 {
			for i := range p.servers() {
				if err == nil {
					err = s.giveIdleSlots(i)
				}
			}
			next = env.Deadline(p.env, p.idleSlots())
		}
	}
}

// forgetName clears the name in a slot of a server, unless a session uses it. After an error the
// slot stays slotForgetting, and this client is given up: the WRITE may yet take effect, so no
// session may use the slot, and no epoch is passed while it names a word.
func (s *Session) forgetName(server int, slot *wordSlot) error {
	if !slot.state.CompareAndSwap(slotNamed, slotForgetting) {
		return nil
	}
	s.write(s.slotAddr(server, slot, lock.NameAt), s.zero)
	if err := s.Post(); err != nil {
		s.pool.Condemn(fmt.Errorf("clear an intent slot: %w", err))
		return err
	}
	slot.state.Store(slotBlank)
	return nil
}
