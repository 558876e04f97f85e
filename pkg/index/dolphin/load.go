package dolphin

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Bulk load. Leaves are made one after another, without right halves. Package art makes the inner
// nodes above them, and has the moment at which a load takes effect.

const (
	// maxLoaders bounds the sessions of one bulk load
	maxLoaders = 64
	// A leaf that is loaded is filled up to loadShare eighths.
	loadShare = 7
)

// builder is a bulk load under way.
type builder struct {
	*art.Builder
	s *Session // its operation replaces the root

	pairs     []loadedPair // of the leaf that is being filled
	bytes     []byte       // their keys and values
	low, high []byte
	last      []byte
	some      bool // a pair came
	fill      int  // bytes of records
}

// loadedPair is a pair. Its key lies in bytes, and the value, or a reference, behind it.
type loadedPair struct {
	at, key, value int
	long           bool
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
		all = append(all, loader.Session{Op: &s.Op, Blocks: &s.Blocks, Room: s.ringRoom, Largest: max(art.RootBytes, t.lay.size), Close: s.Close})
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
	switch {
	case failed != nil:
		return failed
	case err != nil || !ld.some:
		return err
	}
	return ld.leaf(nil)
}

// add adds the next pair.
func (ld *builder) add(key, value []byte) error {
	lay := ld.s.lay
	if err := lay.CheckPair(key, value); err != nil {
		return err
	}
	if ld.some && !item.Below(ld.last, key) {
		return fmt.Errorf("key %s comes after key %s, keys must ascend: %w", keyrange.Quote(key), keyrange.Quote(ld.last), index.ErrUnsorted)
	}
	n, long := len(value), lay.InBlock(len(value))
	if long {
		n = item.ReferenceBytes
	}
	needs := lay.recordSize(len(key), n)
	if room := lay.size - headBytes(len(ld.low), len(key)); len(ld.pairs) > 0 && (ld.fill+needs)*8 > room*loadShare {
		ld.high = append(ld.high[:0], separator(ld.last, key)...)
		if err := ld.leaf(ld.high); err != nil {
			return err
		}
	}
	p := loadedPair{at: len(ld.bytes), key: len(key), value: n, long: long}
	ld.bytes = append(ld.bytes, key...)
	if long {
		r, err := ld.PutBlock(&lay.Codec, value, pool.Nil)
		if err != nil {
			return err
		}
		ld.Note(r.Addr)
		var b [item.ReferenceBytes]byte
		r.Encode(b[:])
		value = b[:]
	}
	ld.bytes = append(ld.bytes, value...)
	ld.pairs = append(ld.pairs, p)
	ld.fill += needs
	ld.last, ld.some = append(ld.last[:0], key...), true
	return nil
}

// leaf makes the leaf of the pairs that came since the last one. high nil = it is the last one.
func (ld *builder) leaf(high []byte) error {
	if err := ld.Next(ld.low); err != nil {
		return err
	}
	a, at, err := ld.Room(ld.s.lay.size)
	if err != nil {
		return err
	}
	n := ld.Batch.Leaves.(*loadLeaves).add(ld, high)
	ld.Batch.AddLeaf(n, a, unit.NewVersion(ld.s.Env))
	ld.pairs, ld.bytes, ld.fill = ld.pairs[:0], ld.bytes[:0], 0
	ld.low = append(ld.low[:0], high...)
	return ld.Leaf(art.LeafFlag | at)
}

// loadLeaves implements loader.Leaves.
type loadLeaves struct {
	lay    *layout
	leaves []loadedLeaf
	pairs  []loadedPair
	bytes  []byte
}

// loadedLeaf is one leaf. Its bounds lie in the batch's bytes, one behind the other.
type loadedLeaf struct {
	at, low, high int
	endless       bool
	from, to      int // its pairs
	filler        uint64
}

func (b *loadLeaves) add(ld *builder, high []byte) int {
	n := loadedLeaf{at: len(b.bytes), low: len(ld.low), high: len(high), endless: high == nil, from: len(b.pairs), filler: ld.s.Env.Uint64()}
	b.bytes = append(append(b.bytes, ld.low...), high...)
	for _, p := range ld.pairs {
		p.at += len(b.bytes)
		b.pairs = append(b.pairs, p)
	}
	b.bytes = append(b.bytes, ld.bytes...)
	n.to = len(b.pairs)
	b.leaves = append(b.leaves, n)
	return len(b.leaves) - 1
}

// Reset implements loader.Leaves.
func (b *loadLeaves) Reset() { b.leaves, b.pairs, b.bytes = b.leaves[:0], b.pairs[:0], b.bytes[:0] }

// Build implements loader.Leaves.
func (b *loadLeaves) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	n := &b.leaves[i]
	low, high := b.bytes[n.at:n.at+n.low], b.bytes[n.at+n.low:][:n.high]
	if n.endless {
		high = nil
	}
	l := leaf{lay: b.lay}
	l.build(dst, a, version, n.filler, low, high, pool.Nil, pool.Nil)
	c := l.first()
	for _, p := range b.pairs[n.from:n.to] {
		key, value := b.bytes[p.at:p.at+p.key], b.bytes[p.at+p.key:][:p.value]
		_, c = l.put(c, key, b.lay.tagOf(key), value, p.long)
	}
	return b.lay.size
}
