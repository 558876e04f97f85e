package smart

import (
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
	return s.write(key, value, combine.Insert, "insert")
}

// insert is writeOnce of an insert.
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
			case v == whole && s.leaf.isInTree() && s.leaf.hasKey(key):
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
		if done, err := s.Link(s.setNewcomer(key, value), out); done || err != nil {
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

// besideLeaf inserts where the descent came to a leaf that has not the key, which is in s.leaf.
func (s *Session) besideLeaf(key, value []byte, v verdict) (done bool, err error) {
	st := &s.Path[s.Level]
	switch {
	case v == whole && s.leaf.ctl.state() == moved:
		_, err := s.ReplaceLeaf(st, s.leaf.forward())
		return false, err
	case st.Word.Frozen():
		return false, s.Replace(s.Level)
	case v == whole && s.leaf.isInTree():
		s.other = s.leaf.appendKey(s.other[:0])
		return s.Fork(s.setNewcomer(key, value), s.other)
	}
	// It is gone: the new leaf takes its place.
	return s.LinkAt(s.setNewcomer(key, value), st)
}

// coming implements art.Newcomer: the leaf of a pair that gets a slot, or takes the place of one.
type coming struct {
	s          *Session
	key, value []byte
	shape
	at   pool.Addr
	word art.Slot // lacks the partial key
}

// setNewcomer makes the session's newcomer the leaf of a pair.
func (s *Session) setNewcomer(key, value []byte) *coming {
	c := &s.coming
	c.s, c.key, c.value = s, key, value
	return c
}

func (c *coming) Place() []byte { return c.key }

func (c *coming) Allot(near pool.Addr) (art.Slot, error) {
	n := len(c.value)
	if c.s.lay.InBlock(n) {
		n = referenceBytes
	}
	c.shape = newShape(len(c.key), n)
	a, at, err := c.s.Allocate(c.bytes(), near)
	c.at, c.word = a, art.LeafSlot(0, c.bytes(), at)
	return c.word, err
}

// Queue queues the WRITE of the leaf, and that of the block of a long value.
func (c *coming) Queue(near pool.Addr) error {
	s := c.s
	v, err := s.content(c.key, c.value, near)
	if err != nil {
		return err
	}
	s.PS.Write(pool.Sole, c.at, s.newLeaf.build(s.lay.Sums, c.shape, s.image, c.at, unit.NewVersion(s.Env), c.key, &v))
	return nil
}

// content is what a cell gets for a value. The WRITE of a block is queued where it needs one. near
// is where the word lies that is to lead to it.
func (s *Session) content(key, value []byte, near pool.Addr) (content, error) {
	if !s.lay.InBlock(len(value)) {
		return content{value: value}, nil
	}
	e, err := s.Blocks.PutEntry(s.entry, key, value, near)
	s.t.NoteMemory(err)
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
