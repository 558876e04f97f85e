package smart

import (
	"encoding/binary"
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Insert implements index.Session (section 4.5).
func (s *Session) Insert(key, value []byte) error {
	s.Begin()
	defer s.End()
	if err := s.lay.CheckPair(key, value); err != nil {
		return explain("insert", err)
	}
	for {
		err := s.insert(key, value)
		switch {
		case err == nil || err == index.ErrExists:
			return err
		case !errors.Is(err, index.ErrPoolFull) || !s.awaitMemory():
			return explain("insert", err)
		}
	}
}

// insert is Insert as a part of an operation. It does not wait for memory.
func (s *Session) insert(key, value []byte) error {
	for {
		out, err := s.Seek(key)
		if err != nil {
			return err
		}
		if out == art.Leafed {
			w := s.Path[s.Level].Word
			v, err := s.readLeaf(w)
			switch {
			case err != nil:
				return err
			case v == torn:
				if err := s.renewTorn(key, w); err != nil {
					return err
				}
				continue
			case v == whole && s.leaf.stays() && s.leaf.has(key):
				if s.leaf.ctl.state() == alive {
					return index.ErrExists
				}
				if done, err := s.revive(key, value); done || err != nil {
					return err
				}
				continue
			}
			done, err := s.besideLeaf(key, value, v)
			if done || err != nil {
				return err
			}
			continue
		}
		if done, err := s.insertAt(key, value, out); done || err != nil {
			return err
		}
	}
}

// revive makes the leaf of key alive, which was dead when it was READ. done is false if it is
// neither alive nor dead any more.
func (s *Session) revive(key, value []byte) (done bool, err error) {
	c := s.offers(combine.Insert, key, value)
	_, got, _, err := s.lockLeafOr(key, c)
	switch {
	case err != nil || got == nothing:
		return false, err
	case got == answered:
		return true, c.Answer
	}
	return true, s.changeLocked(c)
}

// insertAt inserts where a descent ended that came to no leaf. done is false if somebody was
// faster, and the descent is to begin anew.
func (s *Session) insertAt(key, value []byte, out art.Outcome) (done bool, err error) {
	st := &s.Path[s.Level]
	switch {
	case out == art.Mismatched:
		return s.headerSplit(key, value)
	case st.Idx < 0 || st.Word.Frozen():
		return s.switchType(key, value)
	}
	return s.normalInsert(key, value, st)
}

// besideLeaf inserts where the descent came to a leaf that has not the key, which is in s.leaf.
func (s *Session) besideLeaf(key, value []byte, v verdict) (done bool, err error) {
	st := &s.Path[s.Level]
	switch {
	case v == whole && s.leaf.ctl.state() == moved:
		_, err := s.swingMoved(st, s.leaf.forward())
		return false, err
	case st.Word.Frozen():
		return false, s.replace(s.Level)
	case v == whole && s.leaf.stays():
		return s.leafSplit(key, value)
	}
	// It is gone: the new leaf takes its place.
	return s.normalInsert(key, value, st)
}

// normalInsert (section 4.1.2) puts a leaf into the slot of st: an empty one, a tombstone, or one
// whose leaf is gone. The requests, in one list if all of it is on one server:
//
//  1. WRITE of the leaf, and of the block of a long value: nobody knows them;
//  2. CAS of the slot: the insert takes effect. By G1, or G3, whoever sees the slot finds the leaf.
//
// A client that dies before 2 leaves memory that nobody knows.
func (s *Session) normalInsert(key, value []byte, st *art.Step) (done bool, err error) {
	near := st.Node.Addr
	p, err := s.planLeaf(key, value, near)
	if err == nil {
		err = s.LockNode(st)
	}
	if err == nil {
		err = s.writeLeaf(&p, key, value, near)
	}
	if err != nil {
		s.Discard()
		return false, err
	}
	before := st.Word
	w := p.word.WithKey(art.BranchKey(art.Branch(key, st.Node.End())))
	won, err := s.publish(st, w)
	if !won || err != nil {
		return false, err
	}
	if before.Leaf() {
		return true, s.RetireChild(before)
	}
	return true, nil
}

// plan is a leaf whose memory is allocated. Everything that a change takes is allocated before its
// first request is queued: what is queued cannot be taken back.
type plan struct {
	shape
	at   pool.Addr
	word art.Slot // lacks the partial key
}

// makeLeaf allocates the leaf of a pair and queues its WRITE. The word lacks the partial key.
func (s *Session) makeLeaf(key, value []byte, near pool.Addr) (art.Slot, error) {
	p, err := s.planLeaf(key, value, near)
	if err == nil {
		err = s.writeLeaf(&p, key, value, near)
	}
	return p.word, err
}

// planLeaf allocates the leaf of a pair.
func (s *Session) planLeaf(key, value []byte, near pool.Addr) (p plan, err error) {
	n := len(value)
	if s.lay.InBlock(n) {
		n = referenceBytes
	}
	p.shape = newShape(len(key), n)
	a, at, err := s.Allocate(p.bytes(), near)
	p.at, p.word = a, art.LeafSlot(0, p.bytes(), at)
	return p, err
}

// writeLeaf queues the WRITE of a leaf, and that of the block of a long value. ErrPoolFull: there
// is no memory for the block, and nothing is queued.
func (s *Session) writeLeaf(p *plan, key, value []byte, near pool.Addr) error {
	c, err := s.content(key, value, near)
	if err != nil {
		return err
	}
	s.PS.Write(pool.Sole, p.at, s.newLeaf.build(s.lay.Sums, p.shape, s.image, p.at, unit.NewVersion(s.Env), key, &c))
	return nil
}

// content is what a cell gets for a value. The WRITE of a block is queued where it needs one. near
// is where the word lies that is to lead to it.
func (s *Session) content(key, value []byte, near pool.Addr) (content, error) {
	if !s.lay.InBlock(len(value)) {
		return content{value: value}, nil
	}
	e, err := s.Blocks.PutEntry(s.entry, key, value, near)
	s.t.noteMemory(err)
	if err != nil {
		return content{}, err
	}
	r, _ := blocks.ReferenceIn(&s.lay.Codec, e)
	if _, ok := art.Pack(r.Addr); !ok {
		// The WRITE of the block is queued: it has to be over before the block is given back.
		if err := s.PS.Post(); err != nil {
			return content{}, op.Failure(err, false)
		}
		s.Blocks.Discard()
		return content{}, art.Beyond(r.Addr)
	}
	s.Apart = s.Apart || r.Addr.Server() != near.Server()
	return content{long: true, ref: r}, nil
}

// publish posts what is queued, and then swaps the word of st to w, under the node's lock if
// LockNode acquired that. won: what was made is known now. Else it is given back, and the copy has
// the word that was found.
func (s *Session) publish(st *art.Step, w art.Slot) (won bool, err error) {
	if err := s.AwaitStrayed(st.Node.Addr); err != nil {
		return false, err
	}
	s.Pause()
	s.PS.CompareSwap(st.Node.Addr+pool.Addr(art.SlotAt(st.Idx)), uint64(st.Word), uint64(w), s.Answers[:8])
	if err := s.PostSwap(); err != nil {
		s.Forget()
		return false, art.Failure(err)
	}
	found := art.Slot(binary.NativeEndian.Uint64(s.Answers))
	if found != st.Word {
		st.Node.Store(st.Idx, found)
		s.Discard()
		if err := s.Retry(); err != nil {
			return false, err
		}
		return false, s.unblock(st, found)
	}
	st.Node.Store(st.Idx, w)
	s.Forget()
	return true, nil
}

// unblock is called where the word of path[s.level] was another one than expected. If it is that
// word, frozen, somebody replaces the node, and may have died: so this session does it, too.
func (s *Session) unblock(st *art.Step, found art.Slot) error {
	if found.Frozen() && found.Clean() == st.Word {
		st.Word = found
		return s.replace(s.Level)
	}
	return nil
}
