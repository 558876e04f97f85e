package pool

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
)

// Presence words let sessions change parts of a node side by side, without a lock, and let the
// holder of its lock wait until they have left. Each intent slot (wordslot.go) has one: 8 aligned
// bytes, in an array of its own, which one READ brings. Only the session that uses the slot WRITEs
// its word, and no atomic touches it (G2):
//
//	bit 0-47   offset of the node where the session is; all zero = it is nowhere
//	bit 48-63  sequence number of the slot's use, so that a node named again is another word
//
// # The protocol
//
// N is a node, G a word of N that reports whether N is shut: only who holds N's lock changes it. P
// is a session's presence word, on the server of N. Each line is one list, posted and awaited
// before the next. A session that changes a part of N:
//
//	Enter      1. WRITE of P: N; the caller's READs of N, of G too
//	PostLeave  2. the caller's WRITEs, if N was not shut; WRITE of P: zero
//
// A session that holds N's lock and needs N to itself:
//
//	AwaitAbsent  3. the caller's WRITE of G: shut; READ of all presence words
//	             4. READ of a word that named N, and of its slot's owner, again and again, until
//	                the word is another one, the slot is nobody's, or its client is fenced
//
// After 4 it READs N, and changes it or copies it. Before it gives the lock up it opens N again, or
// says in G where N has gone. If it changes N by a Rewrite, the image says that N is shut, and the
// WRITE that opens N comes behind it.
//
// Why nothing is lost. Let 1 see that N is not shut. G was READ behind the WRITE of P (G1), and
// before the WRITE of 3 took effect; so the READ of 3, behind that WRITE, finds P naming N, unless
// 2 has cleared it. The holder goes on when P is another word: P is cleared behind the WRITEs of 2
// (G1), so the holder's READs see them. Let 1 see that N is shut: the session changes nothing.
//
//   - The READs of 4 may take effect in either order, as those of all words in 3 (G1, G2). Each is
//     behind the READ of 3 that found P naming N. So if one of them shows that the session left, or
//     lost its slot, that was so before the holder goes on, and whoever is there now entered behind
//     3.
//   - Sessions that enter behind 3 see that N is shut, so nobody waits for them: 4 waits for the
//     very words that 3 found. They cannot keep the holder waiting, however many come.
//   - A holder dies behind the WRITE of 3: N stays shut. Sessions that entered before may still be
//     there. So who gets the lock next, and finds N shut, does 3 and 4 all the same.
//   - A holder dies within a Rewrite: its image is written over N when the lock is repaired. Nobody
//     has entered meanwhile, since the image is shut, and N is opened when nothing is owed any
//     more. An image that is open lets sessions change what the repair then takes back.
//   - A client dies between 1 and 2: its word stays. Its fence gives its slots back, or marks them
//     as owed, when nothing of it takes effect any more (lock.Sweep). Then its WRITEs have taken
//     effect, or never will. So the fence does not look at presence words.
//   - Another client claims that slot: the first list in which it uses the slot clears the word, or
//     names another node. A list that fails ends that client. Until then the holder waits for a
//     word of nobody's; the slot is given back if it is not used. What the new client enters, it
//     enters behind 3.
//   - A client stands still between 1 and 2: the holder's wait ends with its operation's limit, and
//     the message names the client. It is like a holder of a lock that stands still: its lease
//     ends. One that renews its lease, and never leaves, keeps N from being moved, and no more:
//     each holder opens N again when its own limit is over.
//   - A session dies between 1 and 2 while its client lives, or queues what cannot be posted: it
//     gives its client up, as one with a lock does, since nobody else clears its word. Lists in
//     between may take as long as those under a lock (boundLists).
//   - A client that is fenced at one server and alive at another: N, G, P and the slot are all at
//     one server.
//   - A memory server restarts: the array is in its data region. Connections end, and so do the
//     sessions of both sides, with the clients of those that were in a node. Slots of before are
//     given back as those of clients that died.
//   - An idle slot is given back, or passes to another session of its client, only when no session
//     uses it: between 1 and 2 it is in use. Behind 2 its word is zero.
//   - A slot goes on naming the lock word that it named. If an epoch waits for that name, line 1
//     clears it: a session that enters node after node leaves no moment to those who would
//     (forgetName).
//   - Memory of N in another use: a session that entered does not let the epoch of its operation
//     pass, and one that finds N shut or gone changes nothing. A word of a dead client, or of an
//     index that had the array before, that names what is another node now costs who shuts that
//     node a READ of the slot's owner.
//   - A client that does not know presence words would wait for nobody. So a design whose sessions
//     enter nodes is one that all clients of the index know to.
//   - The clients of one index trust each other, as with locks: one that lies can delay a holder.
//     Those of another index do not reach the words.
//
// One goroutine must not wait with a session for the node that another one of its sessions has
// entered. Under N's lock alone nothing of N is known that sessions change: an image that is handed
// on (HandOn) is none of such a node.

// PresenceBytes is the size of a presence word.
const PresenceBytes = 8

const (
	presenceSeqAt = 48
	presenceMask  = 1<<presenceSeqAt - 1
)

// presence is where a session is.
type presence struct {
	slot   *wordSlot // whose word says so; nil = it is nowhere
	server int       // dense number
	was    uint32    // the slot's state before
}

// HasPresence reports whether the server of a has presence words.
func (p *Pool) HasPresence(a Addr) bool {
	i, ok := p.serverOf(a)
	return ok && p.servers()[i].grant.Presence != 0
}

// presenceAddr is the address of the presence word of the slot at an offset.
func (s *Session) presenceAddr(server int, slot uint64) Addr {
	srv := s.pool.servers()[server]
	return NewAddr(srv.id, srv.grant.Presence+(slot-srv.grant.Intents)/lock.SlotBytes*PresenceBytes)
}

// Enter says that the session is about to change a part of a node without a lock, and queues that:
// READs that the caller queues then see whether the node is shut. If it is not, whoever shuts it
// waits until PostLeave. The session must hold no lock, and nothing may be queued. An operation
// must be under way. The first time on a server it claims an intent slot, by requests of its own:
// ErrNoIntent as from Acquire. The server of the node must have presence words (HasPresence).
//
// PostLeave always follows, whatever the READs find, unless the session died: then its client is
// given up.
func (s *Session) Enter(node Addr) error {
	if s.broken != nil {
		return s.broken
	}
	if s.busy() {
		panic("pool: a session enters a node with a lock held, requests queued, or in another node")
	}
	if invariants.Enabled {
		invariants.Check(s.active.Load() != 0, "node %v is entered outside of an operation", node)
	}
	server, ok := s.pool.serverOf(node)
	if !ok || s.pool.servers()[server].grant.Presence == 0 {
		return fmt.Errorf("enter node %v: its memory server has no presence words, or is none of this index", node)
	}
	slot, was, err := s.slotFor(server)
	if err != nil {
		return fmt.Errorf("enter node %v: %w", node, err)
	}
	if was == slotNamed && slot.since.Load() < s.pool.keeper.forgetAll.Load() {
		// an epoch waits for that: see forgetName
		s.write(s.slotAddr(server, slot, lock.NameAt), s.zero)
		was = slotBlank
	}
	s.present, slot.stale = presence{slot, server, was}, false
	binary.LittleEndian.PutUint64(s.there, node.Offset()|uint64(slot.seq.Load())<<presenceSeqAt)
	s.write(s.presenceAddr(server, slot.at), s.there)
	return nil
}

// diedWithin gives the client up if the session, which ended with err, is in a node.
func (s *Session) diedWithin(err error) {
	if s.present.slot != nil {
		s.pool.Condemn(fmt.Errorf("a session died in a node that it entered: %w", err))
	}
}

// clearStale queues the WRITE that clears the presence word of a slot that l begins to use.
func (s *Session) clearStale(l *wordLock) {
	if l.slot.stale {
		s.write(s.presenceAddr(l.server, l.slot.at), s.zero)
		l.slot.stale = false
	}
}

// PostLeave posts what is queued, and says behind it that the session has left the node that it
// entered. What is queued may be WRITEs to the node, and nothing else. An error kills the session,
// and its client is given up.
func (s *Session) PostLeave() error {
	at := s.present
	if at.slot == nil {
		panic("pool: PostLeave in no node")
	}
	s.write(s.presenceAddr(at.server, at.slot.at), s.zero)
	if err := s.Post(); err != nil {
		return err
	}
	s.present = presence{}
	at.slot.state.Store(at.was)
	return nil
}

// AwaitAbsent posts what is queued, the last of which is the caller's WRITE that shuts a node, and
// returns when all sessions have left that entered the node before. The session holds the node's
// lock. One READ brings as many words as a server has by default; more come in parts. ErrTimeout:
// one did not leave within the operation's limit; the message names its client. The node is shut
// then, and the caller opens it.
func (s *Session) AwaitAbsent(node Addr) error {
	server, ok := s.pool.serverOf(node)
	if !ok || !s.Holds() {
		panic(fmt.Sprintf("pool: nobody holds the lock of node %v, or it is of no server", node))
	}
	grant := &s.pool.servers()[server].grant
	if grant.Presence == 0 {
		return s.Post()
	}
	for slot, left := grant.Intents, grant.IntentSlots; left > 0; {
		n := min(left, len(s.area)/PresenceBytes)
		s.Read(s.presenceAddr(server, slot), s.area[:n*PresenceBytes])
		if err := s.Post(); err != nil {
			return err
		}
		for i := range n {
			word := binary.LittleEndian.Uint64(s.area[i*PresenceBytes:])
			if word&presenceMask != node.Offset() {
				continue
			}
			if err := s.awaitLeft(server, slot+uint64(i)*lock.SlotBytes, word); err != nil {
				return fmt.Errorf("wait until node %v is left: %w", node, err)
			}
		}
		slot, left = slot+uint64(n)*lock.SlotBytes, left-n
	}
	return nil
}

// awaitLeft is line 4, for the word of the slot at an offset.
func (s *Session) awaitLeft(server int, slot, word uint64) error {
	now, owner := s.word, s.old
	for n := 0; ; n++ {
		s.Read(s.presenceAddr(server, slot), now)
		s.Read(NewAddr(s.pool.servers()[server].id, slot), owner)
		if err := s.Post(); err != nil {
			return err
		}
		o := binary.NativeEndian.Uint64(owner)
		if binary.LittleEndian.Uint64(now) != word || lock.Holder(o) == 0 || o&lock.Owed != 0 {
			return nil
		}
		if late := s.Overdue(); late != nil {
			return fmt.Errorf("client %d is there: %w", lock.Holder(o), late)
		}
		s.conflicts.Add(1)
		s.backOff(n)
	}
}
