package pool

import (
	"fmt"
	"iter"
	"math/bits"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// A review finds the nodes that no sweep finds: those that look as if they were in use, and are no
// part of the index. A client that died had made them, and not published them yet; or had taken
// them out, and not marked them yet. Only the design knows what the index consists of. So it says
// of each part that it saw it, and what nobody saw is given back.
//
//  1. BeginReview notes the nodes of this client's chunks that are in use. Who is handed out one
//     later is not suspected: what becomes free, or is retired, is noted no more.
//  2. AwaitOperations. Whoever made a suspect has published it by then, or never will: its
//     operation is over, or its client is fenced, on every server. And nobody follows a cached copy
//     from before. So a suspect that is not in the index then does not come into it any more: its
//     address is in nobody's hands.
//  3. The design walks through the index, and says of each part that it is Seen. It has to see what
//     is in the index during all of the walk.
//  4. AwaitOperations. Who took a suspect out before, or during the walk, has marked it by then, or
//     never will.
//  5. GiveBack marks and retires the suspects that nobody saw and nobody marked: some in each of
//     its operations. It is in the operation that it takes them from the notes. A sweep may find
//     the mark of one, and retire it, at any time: before, then it is no suspect any more; later,
//     then it is not used again before the operation is over.
//
// A step that is cut short leaves nothing behind but the notes, which the next review replaces. Who
// dies in 5 leaves nodes that are marked, and whoever adopts their chunks finds these, and nodes
// that are not, which its review finds.
//
// What an operation allocates it has published, retired or freed when it ends, unless the client
// dies. A client whose session died, while what it posted may yet take effect, lives on with other
// designs. With one that uses reviews it is given up (GiveUpInDoubt): else such a request could
// reach a node that was given back.
type Review struct {
	pool *Pool
	turn Addr // the last chunk whose suspects GiveBack took
}

// suspect is a node that a review suspects.
type suspect struct {
	addr Addr
	size int
}

// BeginReview begins a review, in the place of one that is under way.
func (p *Pool) BeginReview() *Review {
	a := p.alloc
	a.eachChunk(func(k *chunk) {
		for b := range k.open() {
			b.suspects = make([]uint64, len(b.idle))
			for n := range b.cut {
				if !b.isIdle(n) {
					b.suspects[n/64] |= 1 << (n % 64)
				}
			}
		}
	})
	return &Review{pool: p}
}

// Seen says that these nodes are parts of the index.
func (r *Review) Seen(parts []Addr) {
	a := r.pool.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range parts {
		if b := a.slabAt(addr); b != nil {
			b.clear(b.index(addr))
		}
	}
}

// Left is how many nodes are suspects still.
func (r *Review) Left() (n int) {
	r.pool.alloc.eachChunk(func(k *chunk) {
		for b := range k.open() {
			for _, word := range b.suspects {
				n += bits.OnesCount64(word)
			}
		}
	})
	return n
}

// GiveBack marks the suspects that are left as dead, by what mark makes of their addresses in
// HeadBytes at most, and retires them. It returns how many these are. The review is over.
func (r *Review) GiveBack(mark func(b []byte, a Addr) int) (n int, err error) {
	p := r.pool
	s, err := p.NewSession(2 * sweepList * 64)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	room, err := s.Buffer(2 * sweepList * 64)
	if err != nil {
		return 0, err
	}
	list := make([]suspect, 0, sweepList)
	marks := p.marks.Load()
	for {
		s.Begin()
		some := r.takeSuspects(list)
		if len(some) == 0 {
			return n, nil
		}
		for i, v := range some {
			s.Read(v.addr, room[i*64:][:HeadBytes])
		}
		if err := s.Post(); err != nil {
			return n, err
		}
		left := some[:0]
		for i, v := range some {
			// what is marked a sweep finds
			if head := room[i*64:][:HeadBytes]; marks == nil || (*marks)(v.addr, head) == Used {
				left = append(left, v)
			}
		}
		for i, v := range left {
			b := room[(sweepList+i)*64:][:HeadBytes]
			s.Write(Sole, v.addr, b[:mark(b, v.addr)])
		}
		if err := s.Post(); err != nil {
			return n, err
		}
		for _, v := range left {
			p.Retire(v.addr, v.size)
		}
		s.End()
		n += len(left)
	}
}

// takeSuspects moves suspects to list, as many as it has room for.
func (r *Review) takeSuspects(list []suspect) []suspect {
	a := r.pool.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(list) < cap(list) {
		k := a.chunkAfter(r.turn)
		if k == nil {
			break
		}
		for b := range k.open() {
			for n := range b.suspected() {
				if len(list) == cap(list) {
					return list
				}
				list = append(list, suspect{b.addr(n), b.class.size})
				b.clear(n)
			}
			b.suspects = nil
		}
		r.turn = k.first
	}
	return list
}

// suspected are the nodes of b that are suspects.
func (b *slab) suspected() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range b.suspects {
			for ; word != 0; word &= word - 1 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// eachChunk calls do for the chunks that this client has, each under a.mu.
func (a *allocator) eachChunk(do func(k *chunk)) {
	for turn := Nil; ; {
		a.mu.Lock()
		k := a.chunkAfter(turn)
		if k != nil {
			turn = k.first
			do(k)
		}
		a.mu.Unlock()
		if k == nil {
			return
		}
	}
}

// AwaitOperations returns when every operation of any client is over that was under way when it was
// called, and nobody follows what was cached before: on every server each client has passed an
// epoch that came later, or is fenced. So nothing of these operations takes effect any more on any
// server. ErrTimeout: not within limit. An error of goOn ends the wait.
func (p *Pool) AwaitOperations(limit time.Duration, goOn func() error) error {
	for deadline := env.Deadline(p.env, limit); ; {
		var all []*server
		var until []uint64
		for _, s := range p.members() {
			all, until = append(all, s), append(until, s.wantSafe(cached)+safeAfter)
			s.wake.Set()
		}
		for i, s := range all {
			for s.epochs[cached].safe.Load() < until[i] {
				if why := p.condemned.Load(); why != nil {
					return *why
				}
				if err := goOn(); err != nil {
					return err
				}
				left := env.Remaining(p.env, deadline)
				if left <= 0 {
					return fmt.Errorf("wait until all clients of memory server %d ended what they began: %w", s.id, ErrTimeout)
				}
				p.env.Sleep(min(left, hurried(s.lease.interval())))
			}
		}
		now := 0
		for range p.members() {
			now++
		}
		if now == len(all) { // else others joined, and a client may be at work there
			return nil
		}
	}
}

// Adopted is how many chunks of clients that ended this client has adopted.
func (p *Pool) Adopted() uint64 { return p.adopted.Load() }

// GiveUpInDoubt says that what sessions post may change what others use without a lock. A session
// of this client that dies, while a change that it posted may yet take effect, then gives the
// client up: until that is fenced its operation counts as one under way. The opening of slabs
// allows for such a change in another way (openslabs.go), so it gives up nobody.
func (p *Pool) GiveUpInDoubt() { p.inDoubt.Store(true) }

// postFailed is called when what was posted failed.
func (s *Session) postFailed(err error) {
	if s.certain {
		return
	}
	if !s.pool.inDoubt.Load() {
		s.reserveDoubtful()
		return
	}
	if s.changing {
		s.pool.Condemn(fmt.Errorf("a change has no answer: %w", err))
	}
}
