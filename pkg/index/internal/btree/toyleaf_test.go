package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/checker"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A design with the least that leaves can be: sorted pairs of 16 bytes behind the header, all of
// the leaf is one unit, and every change rewrites it. The tree's tests run with it, so the tree
// needs no more of leaves than is here.

const toyPair = 16

// toyLeaves implements Leaves and LeafChecker.
type toyLeaves struct{ lay *fence.Layout }

// pairs returns the pairs of the leaf with header h.
func (toyLeaves) pairs(h *fence.Header, b []byte) []byte { return b[h.End : h.End+toyPair*h.Count] }

func (f toyLeaves) Open(a pool.Addr, b []byte) (h fence.Header, ok bool) {
	ok = h.Decode(b, f.lay) && h.Level == 0
	end := h.End + toyPair*h.Count
	return h, ok && end <= len(b) && f.lay.Verify(b, end, a, h.Version)
}

func (f toyLeaves) Verify(a pool.Addr, b []byte) bool {
	_, ok := f.Open(a, b)
	return ok
}

func (f toyLeaves) Load(a pool.Addr, b []byte) Load {
	h, _ := f.Open(a, b)
	return Load{Pairs: h.Count, Bytes: toyPair * h.Count}
}

func (f toyLeaves) build(b []byte, a pool.Addr, h fence.Header, pairs []byte) int {
	h.Level, h.Count = 0, len(pairs)/toyPair
	h.Encode(b)
	end := h.End + copy(b[h.End:], pairs)
	f.lay.Seal(b, end, a, h.Version)
	return end
}

func (f toyLeaves) BuildEmpty(b []byte, a pool.Addr, h *fence.Header) int {
	return f.build(b, a, *h, nil)
}

func (f toyLeaves) Merge(b []byte, a [2]pool.Addr, nodes *[2][]byte) int {
	l, ok := f.Open(a[0], nodes[0])
	r, fits := f.Open(a[1], nodes[1])
	if !ok || !fits || l.Rightmost || l.Sibling != a[1] {
		return 0
	}
	all := slices.Concat(f.pairs(&l, nodes[0]), f.pairs(&r, nodes[1]))
	if len(all) > MayFill(f.lay.Room(l.Low, r.High), l.Count == 0 || r.Count == 0) {
		return 0
	}
	l.Version++
	l.High, l.Rightmost, l.Sibling = r.High, r.Rightmost, r.Sibling
	return f.build(b, a[0], l, all)
}

func (f toyLeaves) CheckLeaf(_ *Session, r *checker.Report, a pool.Addr, b []byte) (bool, error) {
	h, ok := f.Open(a, b)
	if !ok {
		return false, nil
	}
	last, all := h.Low, f.pairs(&h, b)
	for i := 0; i < len(all); i += toyPair {
		key := all[i : i+8]
		if item.Below(key, last) || h.Above(key) {
			r.Fault("leaf %v has key %x behind %x", a, key, last)
		}
		last = key
		r.Pair(8, 8)
	}
	return true, nil
}

// toyTree is an index of such leaves.
type toyTree struct{ *Tree }

// toySession is a session of one.
type toySession struct{ Session }

func openToy(p *pool.Pool, cache LeafCache) (*toyTree, error) {
	t, err := Open(p, Config{
		Design: index.Design{Name: "toy"}, Cache: cache,
		Options: index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256},
		Layout: func(o index.Options) (l fence.Layout, err error) {
			l.NodeBytes = o.NodeBytes
			l.Codec, err = item.NewCodec(index.Options{Uint64: true, MaxValueBytes: 8, InlineBytes: 8})
			return l, err
		},
		Leaves: func(l *fence.Layout) Leaves { return toyLeaves{l} },
	})
	return &toyTree{t}, err
}

func (t *toyTree) session() (*toySession, error) {
	s := new(toySession)
	return s, t.OpenSession(&s.Session)
}

// search returns where key is among pairs, or would be.
func search(pairs, key []byte) (at int, found bool) {
	for at < len(pairs) && item.Below(pairs[at:at+8], key) {
		at += toyPair
	}
	return at, at < len(pairs) && bytes.Equal(pairs[at:at+8], key)
}

// lockLeaf returns the leaf that holds key, which is locked then and in Node.
func (s *toySession) lockLeaf(key []byte) (a pool.Addr, h fence.Header, err error) {
	p, err := s.Descend(key)
	for hops := 0; err == nil; {
		if err = s.Lock(p.Addr()); err != nil {
			break
		}
		var header *fence.Header
		if h, ok := (toyLeaves{s.Lay}).Open(p.Addr(), s.Node); ok {
			if !h.Below(key) && !h.Above(key) {
				return p.Addr(), h, nil
			}
			header = &h
		}
		err = s.ResolveLocked(&p, header, key, &hops)
	}
	return pool.Nil, h, err
}

// change puts a value for key, or deletes it.
func (s *toySession) change(key, value []byte) error {
	s.Begin()
	defer s.End()
	return s.insert(key, value)
}

// insert is change as a part of an operation.
func (s *toySession) insert(key, value []byte) error {
	f := toyLeaves{s.Lay}
	a, h, err := s.lockLeaf(key)
	if err != nil {
		return err
	}
	all := bytes.Clone(f.pairs(&h, s.Node))
	at, found := search(all, key)
	if found {
		all = slices.Delete(all, at, at+toyPair)
	}
	if value != nil {
		all = slices.Insert(all, at, slices.Concat(key, value)...)
	}
	if len(all) > s.Lay.Room(h.Low, h.High) {
		mid := len(all) / 2 / toyPair * toyPair
		d := &toyHalves{toyLeaves: f, a: a, h: h, all: all, mid: mid}
		err := s.SplitLeaf(&h, all[mid:mid+8], at == len(all)-toyPair, d)
		if err != nil && s.PS.Holds() {
			return s.Unlock(err)
		}
		return err
	}
	if err := s.PS.ReserveRewrite(a, s.Lay.NodeBytes); err != nil {
		return s.Unlock(op.Failure(err, false))
	}
	h.Version++
	s.PS.Rewrite(a, s.Image[:f.build(s.Image, a, h, all)])
	if err := s.Publish(); err != nil {
		return err
	}
	if value == nil {
		return s.Tidy(key, a, Load{Pairs: len(all) / toyPair, Bytes: len(all)})
	}
	return s.ConnectMet()
}

// toyHalves implements Halves.
type toyHalves struct {
	toyLeaves
	a   pool.Addr
	h   fence.Header
	all []byte
	mid int
}

func (d *toyHalves) Left(b, separator []byte, to pool.Addr) int {
	h := d.h
	h.Version++
	h.High, h.Rightmost, h.Sibling = separator, false, to
	return d.build(b, d.a, h, d.all[:d.mid])
}

func (d *toyHalves) Right(b, separator []byte, to pool.Addr) int {
	h := d.h
	h.Low = separator
	return d.build(b, to, h, d.all[d.mid:])
}

// lookup returns the value of key; nil if there is none.
func (s *toySession) lookup(key []byte) ([]byte, error) {
	s.Begin()
	defer s.End()
	p, err := s.Descend(key)
	for hops := 0; err == nil; {
		if err = s.Read(p.Addr(), s.Node); err != nil {
			break
		}
		var header *fence.Header
		f := toyLeaves{s.Lay}
		if h, ok := f.Open(p.Addr(), s.Node); ok {
			if !h.Below(key) && !h.Above(key) {
				all := f.pairs(&h, s.Node)
				if at, found := search(all, key); found {
					return bytes.Clone(all[at+8 : at+toyPair]), nil
				}
				return nil, nil
			}
			header = &h
		}
		err = s.Resolve(&p, header, key, s.Node, &hops)
	}
	return nil, err
}

// scan returns the keys from start on, or below it.
func (s *toySession) scan(start []byte, limit int, reverse bool) (keys []uint64, err error) {
	s.Begin()
	defer s.End()
	err = s.ScanPairs(&toyPairs{s: s}, false, start, limit, reverse, func(key, _ []byte) bool {
		keys = append(keys, binary.BigEndian.Uint64(key))
		return true
	})
	return keys, err
}

// toyPairs implements LeafPairs. The pairs of a leaf are sorted, and nothing is in blocks.
type toyPairs struct {
	s   *toySession
	h   fence.Header
	all []byte
}

func (p *toyPairs) Open(a pool.Addr, b []byte) *fence.Header {
	f, ok := toyLeaves{p.s.Lay}, false
	if p.h, ok = f.Open(a, b); !ok {
		return nil
	}
	p.all = f.pairs(&p.h, b)
	return &p.h
}

func (p *toyPairs) Collect() (bool, error) { return true, nil }
func (p *toyPairs) Sort()                  {}
func (p *toyPairs) Len() int               { return p.h.Count }
func (p *toyPairs) Entry(i int) []byte     { return p.all[toyPair*i:][:toyPair] }
func (p *toyPairs) Key(i int) []byte       { return p.Entry(i)[:8] }
func (p *toyPairs) Same(int) bool          { return false }
func (p *toyPairs) Pair(i int) (key, value []byte, long bool) {
	return p.Key(i), p.Entry(i)[8:], false
}
func (p *toyPairs) Find(key, _ []byte) ([]byte, error) { return p.s.lookup(key) }

// load is a bulk load.
func (t *toyTree) load(source index.Pairs) error {
	return t.Load(source, 2, &toyLoader{f: toyLeaves{&t.Lay}}, func() loader.Leaves { return &toyBatch{f: toyLeaves{&t.Lay}} })
}

func (t *toyTree) check() (index.Structure, error) { return t.Check(toyLeaves{&t.Lay}) }

// toyLoader implements LeafLoader.
type toyLoader struct {
	Cutter
	f   toyLeaves
	all []byte
}

// toyBatch implements loader.Leaves.
type toyBatch struct {
	f      toyLeaves
	leaves []toyLoaded
}

type toyLoaded struct {
	h   fence.Header
	all []byte
}

func (b *toyBatch) Reset() { b.leaves = nil }

func (b *toyBatch) Build(i int, dst []byte, a pool.Addr, version uint32) int {
	h := b.leaves[i].h
	h.Version = version
	return b.f.build(dst, a, h, b.leaves[i].all)
}

func (ld *toyLoader) Start(b *Builder) error { return ld.Begin(b, ld) }

func (ld *toyLoader) Empties(a pool.Addr, b []byte) error {
	if ld.f.Load(a, b).Pairs > 0 {
		return fmt.Errorf("it has pairs: %w", index.ErrNotEmpty)
	}
	return nil
}

func (ld *toyLoader) Add(key, value []byte) error {
	if len(ld.all) > ld.f.lay.Room(ld.Low(), key)*Fill/100 {
		if err := ld.Cut(key); err != nil {
			return err
		}
	}
	ld.all = append(append(ld.all, key...), value...)
	return nil
}

// BeginLeaf and EndLeaf implement CutLeaves.
func (ld *toyLoader) BeginLeaf() { ld.all = nil }

func (ld *toyLoader) EndLeaf(low, high []byte, sibling pool.Addr) int {
	b := ld.Batch.Leaves.(*toyBatch)
	h := fence.Header{Low: bytes.Clone(low), High: bytes.Clone(high), Sibling: sibling, Rightmost: sibling == pool.Nil}
	b.leaves = append(b.leaves, toyLoaded{h, ld.all})
	return len(b.leaves) - 1
}
