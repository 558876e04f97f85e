package smart

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Bulk load. Each pair is a leaf. Package art makes the inner nodes above them, and has the moment
// at which a load takes effect.

// maxLoaders bounds the sessions of one bulk load.
const maxLoaders = 64

// builder is a bulk load under way.
type builder struct {
	*art.Builder
	s *Session // its operation replaces the root
}

// BulkLoad implements index.Index.
func (t *Tree) BulkLoad(source index.Pairs, parallel int) error {
	t.Loads(1)
	defer t.Loads(-1)
	ld, err := t.newBuilder(min(max(1, parallel), maxLoaders))
	if err != nil {
		return fmt.Errorf("bulk load: %w", err)
	}
	err = ld.Run(func() error { return ld.addAll(source) })
	closing := errors.Join(ld.s.Close(), ld.Close())
	if err != nil { // a load that took effect has not failed, however its sessions end
		return fmt.Errorf("bulk load: %w", errors.Join(err, closing))
	}
	return nil
}

// newBuilder makes a builder with its sessions at work.
func (t *Tree) newBuilder(parallel int) (*builder, error) {
	s, err := t.newSession()
	if err != nil {
		return nil, err
	}
	ld := &builder{s: s}
	largest := max(art.RootBytes, t.lay.maxRead)
	var all []loader.Session
	for range parallel {
		s, err := t.newSession()
		if err != nil {
			err = errors.Join(err, ld.s.Close())
			for _, s := range all {
				err = errors.Join(err, s.Close())
			}
			return nil, err
		}
		all = append(all, loader.Session{Op: &s.Op, Blocks: &s.Blocks, Room: s.ring.room, Largest: largest, Close: s.Close})
	}
	ld.Builder = s.NewBuilder(loader.New(t.Pool, all, func() loader.Leaves { return &loadLeaves{lay: &t.lay} }), s.isGone)
	return ld, nil
}

// addAll makes the leaves of all pairs.
func (ld *builder) addAll(source index.Pairs) error {
	var failed error
	err := source(func(key, value []byte) bool {
		failed = ld.add(key, value)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// add makes the leaf of the next pair.
func (ld *builder) add(key, value []byte) error {
	if err := ld.s.lay.CheckPair(key, value); err != nil {
		return err
	}
	if err := ld.Next(key); err != nil {
		return err
	}
	return ld.leaf(key, value)
}

// isGone reports whether the leaf of slot w, which is left in a root, has no pair, and will have
// none. Whoever deleted it died.
func (s *Session) isGone(w art.Slot) (bool, error) {
	v, err := s.readWhole(w)
	return err == nil && v == whole && s.leaf.ctl.state() == gone, err
}

// leaf makes the leaf of a pair.
func (ld *builder) leaf(key, value []byte) (err error) {
	l := loadedLeaf{long: ld.s.lay.InBlock(len(value))}
	n := len(value)
	if l.long {
		n = referenceBytes
	}
	l.shape = newShape(len(key), n)
	a, at, err := ld.Room(art.LeafSlot(0, l.bytes(), 0).LeafBytes())
	if err != nil {
		return err
	}
	if l.long {
		if l.ref, err = ld.PutBlock(&ld.s.lay.Codec, value, a); err != nil {
			return err
		}
		ld.Note(l.ref.Addr)
		if _, ok := art.Pack(l.ref.Addr); !ok {
			return art.Beyond(l.ref.Addr)
		}
		value = nil
	}
	ld.Batch.AddLeaf(ld.Batch.Leaves.(*loadLeaves).add(l, key, value), a, unit.NewVersion(ld.s.Env))
	return ld.Leaf(art.LeafSlot(0, l.bytes(), at))
}

// loadLeaves implements loader.Leaves.
type loadLeaves struct {
	lay    *layout
	leaves []loadedLeaf
	bytes  []byte // keys and values
}

// loadedLeaf is one leaf. Its key and value lie in the batch's bytes.
type loadedLeaf struct {
	shape
	at    int // of the key; the value lies behind it
	value int // its bytes
	long  bool
	ref   blocks.Reference
}

func (b *loadLeaves) add(l loadedLeaf, key, value []byte) int {
	l.at, l.value = len(b.bytes), len(value)
	b.bytes = append(append(b.bytes, key...), value...)
	b.leaves = append(b.leaves, l)
	return len(b.leaves) - 1
}

// Reset implements loader.Leaves.
func (b *loadLeaves) Reset() { b.leaves, b.bytes = b.leaves[:0], b.bytes[:0] }

// Build implements loader.Leaves.
func (b *loadLeaves) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	n := &b.leaves[i]
	key := b.bytes[n.at : n.at+n.key]
	c := content{value: b.bytes[n.at+n.key:][:n.value], long: n.long, ref: n.ref}
	var l leaf
	return len(l.build(b.lay.Sums, n.shape, dst, a, version, key, &c))
}
