package pool

import (
	"fmt"
	"slices"
)

// Memory that was given up waits here until it is used again: until on every memory server of the
// index each client has passed an epoch that came later, or is fenced there (EpochTable).
//
// # Why the epochs of all servers
//
// An address is not only followed, on the server where its memory lies. It is also compared, on any
// server where a word has it. A client can be fenced on one server, where its lease ran out first,
// and alive on another one, since each memory server grants and ends leases itself. Let N be a node
// on server S, which a word on server R leads to, and C such a client, fenced on S and alive on R:
//
//   - C is about to swap the word on R from N to something else. N is taken out. If the epochs of S
//     were enough, N's memory could be used again, and come to be what the word leads to: then the
//     swap of C takes effect, and undoes what others did.
//   - C has a cached parent, by which A, on R, is the leaf left of N. It READs A, whose sibling is
//     N, and concludes that A ends where its copy says. N is merged into A, and A is divided again,
//     at another key. If the new leaf got the memory of N, A would have the sibling that C expects,
//     and end before: C would find nothing, or insert, where the key is not looked for.
//
// The epochs of R wait for C until it is fenced there, and after that neither the swap nor the READ
// succeeds. In general: whatever compares an address is a request to the server of the word. A
// request of C to R takes effect only while R has not fenced C, so while the epochs of R wait for
// the operation that got the address. What waits for R and for every other server comes back after
// all these operations. So no word has an address again, for another node, while an operation that
// saw the word before may be under way on the word's server.
//
// # The class, by what is compared
//
//	what is compared                 why it does not repeat under an operation that saw it
//	slot of SMART with a child       an address: memory waits as said
//	slot of SMART, empty             a slot is empty once, before its first child
//	slot of SMART, tombstone         has random bits (art.TombOf)
//	slot of SMART, frozen            is final; its node's own memory waits as said, for the server
//	                                 of the slot, too
//	way of a root of SMART           is set once, from 0; roots are not used again
//	root word of a B-link tree       an address, under a lock: memory waits as said
//	sibling that a copy of a parent  an address: memory waits as said. Nil, of the rightmost leaf,
//	expects (CHIME)                  comes back only when all that was divided from the leaf is
//	                                 merged into it, so it ends where it did
//	node of a lock handed on         the lock is this client's all the time (handon.go)
//	reference to a block             an address, and a check over address and value
//	holder of a lock, intent slot    a client's id, which is purged from all tables before it is
//	                                 given again
//	word of a chunk's table          the chunk's owner alone writes it
//	root word of a new index, and    are set once, from 0
//	the words of its secret
//	nonce of a redo log              is a random number
//
// # What it costs, and who bounds it
//
// Garbage on one server wants epochs on all. Nodes are spread over all servers, so each of them has
// garbage when any has much. What is given up between two news of epochs waits as one batch.
// Batches come back in the order in which they were made: what is known of epochs only grows.
//
// A server that does not answer holds all batches up, since its epochs do not go on: until it is
// back, or until this client's lease there is over, which ends the client (leaseLost). Meanwhile
// nothing more is handed out than the quota allows, and ErrPoolFull names the server that is waited
// for. There are few batches (mostBatches): the last one takes in what comes then, and waits for
// the later epochs.
//
// A server that joins counts from when this client knows that it is a member: only later any node
// lies there (join.go), and what was given up before is in no word of it.

// batch is what was given up while nothing new was learned of epochs.
type batch struct {
	learned uint64 // Pool.learned
	after   []learnedEpoch
	nodes   []Addr
	chunks  []leaving
}

// learnedEpoch is the one of a server that was known when something was given up. Zero: the server
// was not waited for.
type learnedEpoch struct {
	reach reach
	epoch uint64
}

// mostBatches bounds the batches of a reach.
const mostBatches = 64

// batch is the one that takes what is given up now. a.mu is held.
func (a *allocator) batch(r reach) *batch {
	q, learned := a.limbo[r], a.pool.learned.Load()
	var b *batch
	if n := len(q); n > 0 {
		b = q[n-1]
	}
	switch {
	case b != nil && b.learned == learned:
		return b
	case b == nil || len(q) < mostBatches:
		b = &batch{}
		a.limbo[r] = append(q, b)
	}
	b.learned, b.after = learned, b.after[:0]
	for _, s := range a.pool.servers() {
		var e learnedEpoch
		if s.counts.Load() {
			e = learnedEpoch{s.asKnown(r), s.wantSafe(r)}
		}
		b.after = append(b.after, e)
	}
	return b
}

// awaited is the first server whose clients may still follow, or compare, an address of b; nil =
// there is none.
func (a *allocator) awaited(b *batch) *server {
	for i, s := range a.pool.servers()[:len(b.after)] {
		e := b.after[i]
		if e.epoch > 0 && e.epoch+safeAfter > s.epochs[e.reach].safe.Load() {
			return s
		}
	}
	return nil
}

// returned frees the nodes of batches that wait no longer, and pops the chunks that lingered with
// them. a.mu is held.
func (a *allocator) returned() (gone []leaving) {
	for r := range a.limbo {
		n := 0
		for ; n < len(a.limbo[r]) && a.awaited(a.limbo[r][n]) == nil; n++ {
			b := a.limbo[r][n]
			for _, addr := range b.nodes {
				if k := a.slabAt(addr); k != nil {
					a.pushFree(k, k.index(addr))
				}
			}
			a.pool.reclaimed.Add(uint64(len(b.nodes)))
			gone = append(gone, b.chunks...)
		}
		a.limbo[r] = slices.Delete(a.limbo[r], 0, n)
	}
	return gone
}

// explainFull adds to err, that there is no memory, which server memory that was given up waits
// for.
func (a *allocator) explainFull(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range a.limbo {
		if len(a.limbo[r]) == 0 {
			continue
		}
		if s := a.awaited(a.limbo[r][0]); s != nil {
			return fmt.Errorf("%w; what this client gave up waits for the clients of memory server %d to end their operations, or their leases", err, s.id)
		}
	}
	return err
}
