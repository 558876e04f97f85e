package smart

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
)

// round is the part of a batch of which the leaves are READ together.
type round struct {
	n    int
	keys [mostReads]sought
	long []int // the keys with long values
	room []byte
	lay  *layout

	value []byte // of a key that is looked up alone
}

// sought is a key of a round: where the descent ended, and what was READ for it.
type sought struct {
	key   []byte
	ended art.Outcome
	art.Step
	read int // the number of the READ; -1 = none was needed
	leaf leaf
}

// Len implements blocks.Entries.
func (r *round) Len() int { return len(r.long) }

// Entry implements blocks.Entries.
func (r *round) Entry(i int) []byte {
	k := &r.keys[r.long[i]]
	v, _ := k.leaf.value()
	ref := reference(v)
	return ref.PutEntry(&r.lay.Codec, r.room, k.key)
}

// LookupBatch implements index.Session. It goes round by round: descents for some keys; the READs
// of their leaves, and of the slots or nodes that prove that a key is not there, in one round trip
// to all servers; then those of long values. What is true of a lookup is true of each key: its
// leaf, or its proof, is READ once. A key for which that is not enough is looked up alone: its leaf
// is torn, gone or has another key, or the slot is another one by now.
//
// What a round has got is forgotten at its end, so the epochs wait for no more than a round,
// however many keys there are. The limit is of the whole batch.
func (s *Session) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	s.Begin()
	defer s.End()
	if s.round == nil {
		s.round = &round{lay: s.lay, room: s.entry, long: make([]int, 0, mostReads)}
	}
	r := s.round
	for first := 0; first < len(keys); first += r.n {
		if first > 0 {
			s.End()
			s.Resume()
			s.Forget()
		}
		if err := s.readRound(keys[first:]); err != nil {
			return explain("look up", err)
		}
		if err := s.visitRound(first, visit); err != nil {
			return explain("look up", err)
		}
		for i := range r.n {
			if first+i > 0 { // Begin counts one
				s.Counted()
			}
		}
	}
	return nil
}

// readRound READs what as many keys need as there is room for, but at least one.
func (s *Session) readRound(keys [][]byte) error {
	r := s.round
	n := min(len(keys), mostReads)
	for i, key := range keys[:n] {
		if err := s.lay.CheckKey(key); err != nil {
			return err
		}
		ended, err := s.Seek(key)
		if err != nil {
			return err
		}
		r.keys[i] = sought{key: key, ended: ended, Step: s.Path[s.Level]}
	}
	s.ring.reset()
	for r.n = 0; r.n < n; r.n++ {
		k := &r.keys[r.n]
		switch {
		case k.ended == art.Leafed:
			if k.read = s.ring.find(k.Word); k.read < 0 {
				k.read = s.fetchLeaf(k.Word)
			}
		case k.Fresh:
			k.read = -1
			continue
		case k.searched():
			k.read = s.fetch(k.nodeSlot(), 0, k.Node.Kind.Bytes())
		default:
			k.read = s.fetch(k.nodeSlot(), art.SlotAt(k.Idx), art.SlotBytes)
		}
		if k.read < 0 {
			break
		}
	}
	return s.fetchAll(0)
}

// nodeSlot is a word that leads to the node where the descent ended.
func (k *sought) nodeSlot() art.Slot {
	at, _ := art.Pack(k.Node.Addr)
	return at
}

// searched reports whether all of the node is needed to prove that it has not the key.
func (k *sought) searched() bool {
	return k.ended == art.Vacant && k.Node.Kind != art.Direct && art.Branch(k.key, k.Node.End()) != art.EndBranch
}

// absent reports whether what was READ for a key proves that it is not there (art.Session.Confirm).
func (s *Session) absent(k *sought) bool {
	if k.Fresh {
		return true
	}
	b := s.ring.bytes(k.read)
	if !k.searched() {
		w := art.Slot(binary.LittleEndian.Uint64(b))
		return w == k.Word && !w.Frozen()
	}
	unfrozen := false
	for i := k.Node.Base(); i < k.Node.Size(); i++ {
		w := art.GetSlot(b, i)
		if w.Empty() {
			return !w.Frozen()
		}
		if int(w.Key()) == art.Branch(k.key, k.Node.End()) {
			return false
		}
		unfrozen = unfrozen || !w.Frozen()
	}
	return unfrozen
}

// visitRound visits the keys of the round, of which the first is number first of the batch.
func (s *Session) visitRound(first int, visit func(i int, value []byte, err error)) error {
	r := s.round
	r.long = r.long[:0]
	for i := range r.n {
		k := &r.keys[i]
		if k.ended != art.Leafed {
			if s.absent(k) {
				visit(first+i, nil, index.ErrNotFound)
				continue
			}
		} else if v := s.ring.open(&k.leaf, k.read); v == whole && k.leaf.ctl.state() == alive && k.leaf.hasKey(k.key) {
			if value, long := k.leaf.value(); long {
				r.long = append(r.long, i)
			} else {
				visit(first+i, value, nil)
			}
			continue
		}
		if err := s.visitAlone(k.key, first+i, visit); err != nil {
			return err
		}
	}
	s.Blocks.BeginScan()
	for j, i := range r.long {
		value, err := s.Blocks.Next(r, j, 1, len(r.long)-j)
		if err != nil {
			return err
		}
		if value == nil { // looking the key up says why
			if err := s.visitAlone(r.keys[i].key, first+i, visit); err != nil {
				return err
			}
			s.Blocks.BeginScan()
			continue
		}
		visit(first+i, value, nil)
	}
	return nil
}

// visitAlone looks key n of a batch up as if it were the only one.
func (s *Session) visitAlone(key []byte, n int, visit func(i int, value []byte, err error)) (err error) {
	r := s.round
	switch r.value, err = s.find(key, r.value[:0]); {
	case err == nil:
		visit(n, r.value, nil)
	case err == index.ErrNotFound:
		visit(n, nil, err)
	default:
		return err
	}
	return nil
}
