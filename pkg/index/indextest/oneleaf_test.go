package indextest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/meta"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// oneLeaf is a whole design, as small as one can be: all pairs lie in one leaf, sorted. It shows
// the order of calls; docs/design/adding-a-design.md quotes it.
//
//	offset  size  field
//	0       10    version, sum, kind, flags: see package unit
//	16      4     number of pairs
//	20      4     where they end
//	24      ...   pairs: length of key and value (2 each), key, value
type oneLeaf struct {
	pool     *pool.Pool
	codec    item.Codec
	sums     *sum.Key
	root     pool.Addr
	size     int
	sessions op.Sessions
}

const (
	atCount  = 16
	atEnd    = 20
	leafHead = 24
)

const oneLeafName = "oneleaf"

// A design in a folder of its own passes this to index.Register, from init.
var oneLeafDesign = index.Design{Name: oneLeafName, Number: 255, SharesAll: true, Open: openOneLeaf}

func openOneLeaf(p *pool.Pool, o index.Options) (index.Index, error) {
	if err := index.CheckSwitches(oneLeafName, nil, o.Switches); err != nil {
		return nil, err
	}
	c, err := item.NewCodec(o)
	if err != nil {
		return nil, err
	}
	x := &oneLeaf{pool: p, codec: c, size: min(sum.Most, p.MostNodeBytes())}
	x.sessions.Init(p.Env())
	ps, err := p.NewSession(x.size)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	ps.Begin()
	err = x.openSuperblock(ps, &o)
	ps.End()
	if err = errors.Join(err, ps.Close()); err != nil {
		return nil, op.Failure(err, false)
	}
	return x, nil
}

// openSuperblock reads the superblock. If there is none it makes the leaf, and then the superblock,
// which leads to it.
func (x *oneLeaf) openSuperblock(ps *pool.Session, o *index.Options) error {
	have, root, err := meta.Open(ps, &meta.Request{
		Design: oneLeafName, AnyNode: true, AnyInline: o.InlineBytes == 0,
		Want: meta.Options{Uint64: x.codec.Uint64, MaxKeyBytes: x.codec.MaxKey, MaxValueBytes: x.codec.MaxValue, InlineBytes: o.InlineBytes, NodeBytes: x.size},
		Create: func(secret [2]uint64) (pool.Addr, error) {
			image, err := ps.Buffer(x.size)
			if err != nil {
				return pool.Nil, err
			}
			// nothing but the WRITE may fail from here on: nobody would free the leaf
			a, err := ps.Allocate(x.size, pool.Nil)
			if err != nil {
				return pool.Nil, err
			}
			x.sums = sumsOf(secret)
			x.encode(image, a, unit.NewVersion(x.pool.Env()), nil)
			ps.Write(pool.Sole, a, image) // nobody else knows the address
			return a, ps.Post()
		},
		Discard: func(a pool.Addr) { x.pool.Free(a, x.size) },
	})
	if err != nil {
		return err
	}
	x.root, x.size, x.sums = root, have.NodeBytes, sumsOf(have.Secret)
	return nil
}

func sumsOf(secret [2]uint64) *sum.Key {
	return sum.NewKey(siphash.Key{K0: secret[0], K1: secret[1]})
}

type leafPair struct{ key, value []byte }

// encode makes image a leaf with these pairs. It returns false if it has no room for them.
func (x *oneLeaf) encode(image []byte, a pool.Addr, version uint32, pairs []leafPair) bool {
	at := leafHead
	for _, p := range pairs {
		if at+4+len(p.key)+len(p.value) > len(image) {
			return false
		}
		binary.LittleEndian.PutUint16(image[at:], uint16(len(p.key)))
		binary.LittleEndian.PutUint16(image[at+2:], uint16(len(p.value)))
		at += 4
		at += copy(image[at:], p.key)
		at += copy(image[at:], p.value)
	}
	clear(image[:leafHead])
	binary.LittleEndian.PutUint32(image[unit.AtVersion:], version)
	image[unit.AtFlags] = unit.Node
	binary.LittleEndian.PutUint32(image[atCount:], uint32(len(pairs)))
	binary.LittleEndian.PutUint32(image[atEnd:], uint32(at))
	unit.SealUnder(x.sums, image, at, a, version)
	return true
}

// decode appends the pairs of a leaf, as slices of it. It returns false if the leaf does not
// verify: words of a READ beside a WRITE are of different moments.
func (x *oneLeaf) decode(leaf []byte, a pool.Addr, pairs []leafPair) ([]leafPair, bool) {
	end := int(binary.LittleEndian.Uint32(leaf[atEnd:]))
	if end < leafHead || end > len(leaf) || !unit.VerifyUnder(x.sums, leaf, end, a, unit.Version(leaf)) {
		return nil, false
	}
	at := leafHead
	for range binary.LittleEndian.Uint32(leaf[atCount:]) {
		k := at + 4 + int(binary.LittleEndian.Uint16(leaf[at:]))
		v := k + int(binary.LittleEndian.Uint16(leaf[at+2:]))
		pairs = append(pairs, leafPair{leaf[at+4 : k : k], leaf[k:v:v]})
		at = v
	}
	return pairs, true
}

// Session implements index.Index.
func (x *oneLeaf) Session() (index.Session, error) {
	ps, err := x.pool.NewSession(3 * x.size)
	if err != nil {
		return nil, op.Failure(err, false)
	}
	s := &oneLeafSession{x: x}
	var room []byte
	for _, b := range []*[]byte{&s.leaf, &s.image, &room} {
		if *b, err = ps.Buffer(x.size); err != nil {
			return nil, errors.Join(err, ps.Close())
		}
	}
	s.Open(ps, x.pool.Env(), room)
	if err := x.sessions.Add(&s.Op); err != nil {
		return nil, errors.Join(err, ps.Close())
	}
	return s, nil
}

// BulkLoad implements index.Index.
func (x *oneLeaf) BulkLoad(source index.Pairs, _ int) error {
	var all []leafPair
	var wrong error
	if err := source(func(key, value []byte) bool {
		if wrong = x.codec.CheckPair(key, value); wrong == nil && len(all) > 0 && bytes.Compare(all[len(all)-1].key, key) >= 0 {
			wrong = fmt.Errorf("%x after %x: %w", key, all[len(all)-1].key, index.ErrUnsorted)
		}
		if wrong == nil && len(all) == x.size/4 {
			wrong = fmt.Errorf("%d pairs in one leaf: %w", len(all)+1, index.ErrPoolFull)
		}
		all = append(all, leafPair{slices.Clone(key), slices.Clone(value)})
		return wrong == nil
	}); err != nil || wrong != nil {
		return errors.Join(err, wrong)
	}
	s, err := x.Session()
	if err != nil {
		return err
	}
	err = s.(*oneLeafSession).change(func(pairs []leafPair) ([]leafPair, error) {
		if len(pairs) > 0 {
			return nil, index.ErrNotEmpty
		}
		return all, nil
	})
	return errors.Join(err, s.Close())
}

// Stats implements index.Index.
func (x *oneLeaf) Stats() index.Stats { return x.sessions.Stats(x.pool, nil) }

// Close implements index.Index.
func (x *oneLeaf) Close() error { return x.sessions.Close() }

// Check implements index.Checker. The suite compares Memory with what the pool allocated.
func (x *oneLeaf) Check() (found index.Structure, err error) {
	s, err := x.Session()
	if err != nil {
		return found, err
	}
	found = index.Structure{Levels: 1, Nodes: 1, NodeBytes: uint64(x.size), Memory: []index.Piece{{Addr: x.root, Bytes: x.size, Kind: index.KindLeaf}}}
	err = s.(*oneLeafSession).look(func(pairs []leafPair) {
		for _, p := range pairs {
			found.Pairs++
			found.PairBytes += uint64(len(p.key) + len(p.value))
		}
	})
	return found, errors.Join(err, s.Close())
}

// Verifies implements index.Checker.
func (x *oneLeaf) Verifies(a pool.Addr, node []byte) bool {
	_, ok := x.decode(node, a, nil)
	return ok
}
