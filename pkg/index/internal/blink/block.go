package blink

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A value that is longer than the index's inline size lies in a block of its own, and the entry has a pointer to it. A block is written once,
// before anybody can find it, and never changed but for its dead mark.
//
//	offset  size  field
//	0       4     version: random
//	4       4     CRC-32C of bytes 8 to 24, started with address and version (package unit)
//	8       1     level: 255
//	9       1     flags: as in a node's header; dead = what a dead node is (header.go)
//	10      2     zero
//	12      4     length of the value
//	16      4     check of the value
//	20      4     zero
//	24      ...   the value
//
// The check is a CRC-32C of the value, started with address and length. The pointer has it too, so a reader needs nothing of the block but the
// value: a dead mark does not touch that. An entry's pointer, in the place of its value:
//
//	offset  size  field
//	0       8     address of the block
//	8       4     check of the value
//	12      2     length of the value
//	14      2     size of the block in units of 64 bytes
const (
	atLength     = 12
	atValueCheck = 16
	blockFixed   = HeaderBytes
	blockLevel   = 255
	blockUnit    = 64

	maxBlockValue = 32 << 10
)

// pointer is where a value lies that is not in its entry.
type pointer struct {
	addr   pool.Addr
	check  uint32
	length int
	size   int // of the block
}

func (p *pointer) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(p.addr))
	binary.LittleEndian.PutUint32(b[8:], p.check)
	binary.LittleEndian.PutUint16(b[12:], uint16(p.length))
	binary.LittleEndian.PutUint16(b[14:], uint16(p.size/blockUnit))
}

func (p *pointer) decode(b []byte) {
	p.addr = pool.Addr(binary.LittleEndian.Uint64(b))
	p.check = binary.LittleEndian.Uint32(b[8:])
	p.length = int(binary.LittleEndian.Uint16(b[12:]))
	p.size = int(binary.LittleEndian.Uint16(b[14:])) * blockUnit
}

// pointerOf is the pointer of a verified entry; false if its value is in it.
func (l *layout) pointerOf(e []byte) (p pointer, ok bool) {
	if !l.HasReference(e) {
		return p, false
	}
	_, value, _ := l.Pair(e)
	p.decode(value)
	return p, true
}

// valueCheck is the check of a value in the block at a.
func valueCheck(a pool.Addr, value []byte) uint32 {
	return crc.Sum(unit.Seed(a, uint32(len(value))), value)
}

// holds says whether value is what the pointer stands for.
func (p *pointer) holds(value []byte) bool { return p.check == valueCheck(p.addr, value) }

// blockBytes is the size of the block for a value of n bytes: one of two in each doubling, so that blocks of few sizes share chunks and waste a third
// at most.
func (l *layout) blockBytes(n int) int {
	n = min(roundTo(n, l.MaxValue), l.MaxValue)
	return (blockFixed + n + blockUnit - 1) &^ (blockUnit - 1)
}

// leastBlock is the least value that blocks are made for.
const leastBlock = 64

// roundTo is the least number from n on that is a power of two or one and a half of one, or most if that is less.
func roundTo(n, most int) int {
	n = max(n, leastBlock)
	up := 1 << bits.Len(uint(n-1))
	if n <= up*3/4 {
		up = up * 3 / 4
	}
	return min(up, most)
}

// pointTo is the pointer to a value in the block of size bytes at a.
func pointTo(a pool.Addr, size int, value []byte) pointer {
	return pointer{addr: a, check: valueCheck(a, value), length: len(value), size: size}
}

// build makes the image of the block in b and returns it.
func (p *pointer) build(b []byte, version uint32, value []byte) []byte {
	clear(b[:blockFixed])
	binary.LittleEndian.PutUint32(b[unit.AtVersion:], version)
	b[unit.AtKind], b[unit.AtFlags] = blockLevel, unit.Node
	binary.LittleEndian.PutUint32(b[atLength:], uint32(len(value)))
	binary.LittleEndian.PutUint32(b[atValueCheck:], p.check)
	unit.Seal(b, blockFixed, p.addr, version)
	return b[:blockFixed+copy(b[blockFixed:], value)]
}

// verifyBlock says whether b, which may be any bytes, is a living block at a.
func verifyBlock(a pool.Addr, b []byte) bool {
	if b[unit.AtKind] != blockLevel || b[unit.AtFlags] != unit.Node || !unit.Verify(b, blockFixed, a, binary.LittleEndian.Uint32(b)) {
		return false
	}
	n := int(binary.LittleEndian.Uint32(b[atLength:]))
	return n <= len(b)-blockFixed && binary.LittleEndian.Uint32(b[atValueCheck:]) == valueCheck(a, b[blockFixed:blockFixed+n])
}

// Marks implements pool.Marks. A block is marked behind the word that forgot it; what made a node dead may have to be repaired.
func Marks(a pool.Addr, head []byte) pool.Mark {
	switch {
	case !unit.IsDead(a, head):
		return pool.Used
	case head[unit.AtKind] == blockLevel:
		return pool.Over
	}
	return pool.Dead
}

// blockAllocator is a session, whose operation the block is for, or the pool, where nobody waits for the caller.
type blockAllocator interface {
	AllocateBlock(size int, near pool.Addr) (pool.Addr, error)
}

// allocateBlock takes a block for a value of n bytes, near a node. Where there is none of the right size a larger one will do.
func (lay *layout) allocateBlock(from blockAllocator, n int, near pool.Addr) (a pool.Addr, size int, err error) {
	for size = lay.blockBytes(n); ; size = lay.blockBytes(size - blockFixed + 1) {
		a, e := from.AllocateBlock(size, near)
		if e == nil {
			return a, size, nil
		}
		if err == nil {
			err = e
		}
		if !errors.Is(e, index.ErrPoolFull) || size >= lay.blockBytes(lay.MaxValue) {
			return pool.Nil, 0, op.Failure(err, false)
		}
	}
}

// entry makes the entry of a pair that is to come into the locked leaf at near. A long value gets a block, whose WRITE is queued: the entry is published
// behind it, since PostUnlock posts and awaits what is for other servers before the list of the leaf's. ErrPoolFull: there is no memory for the block, and nothing is queued.
func (s *session) entry(key, value []byte, near pool.Addr) (e []byte, err error) {
	if s.made != nil {
		return s.made, nil
	}
	if len(value) <= s.lay.Inline {
		return s.lay.PutEntry(s.scratch, key, value), nil
	}
	a, size, err := s.lay.allocateBlock(s.PS, len(value), near)
	if err != nil {
		return nil, err
	}
	s.fresh = pointTo(a, size, value)
	s.PS.Write(a, s.fresh.build(s.long, unit.NewVersion(s.Env), value))
	return s.lay.putPointer(s.scratch, key, &s.fresh), nil
}

// discard gives the block of an entry back that was not published. Not if the session died: then nobody knows.
func (s *session) discard() {
	if s.fresh.addr != pool.Nil && s.PS.Err() == nil {
		s.Pool.Free(s.fresh.addr, s.fresh.size)
	}
	s.fresh = pointer{}
}

// leaves notes that the change under way takes out entry e, so that its block, if it has one, is marked behind it (publish).
func (s *session) leaves(e []byte) {
	if !s.leaving {
		s.gone, _ = s.lay.pointerOf(e)
	}
}

// markGone queues the WRITE that marks the block dead which the change under way takes out. Whoever reads its value goes on to do so: it becomes
// another block only when no operation is under way any more that may have its address.
func (s *session) markGone() {
	n := unit.PutDead(s.mark, s.gone.addr, blockLevel, unit.NewVersion(s.Env))
	s.PS.Write(s.gone.addr, s.mark[:n])
}

// value READs a value from its block into s.long: one round trip. nil: it is not what the pointer says, so the block was used again, which is only
// possible where this client is fenced, or its memory damaged.
func (s *session) value(p *pointer) ([]byte, error) {
	if p.length > s.lay.MaxValue {
		return nil, nil
	}
	b := s.long[:p.length]
	if err := s.Read(p.addr+blockFixed, b); err != nil {
		return nil, err
	}
	return s.intact(p, b), nil
}

// intact is b, READ from the block of p, if it is the value of p; else nil. While this client lives, an operation that got p finds it there: the block
// is used again only when the operation is over. So what fails here is the epochs, or the memory; the check only keeps it from being answered.
func (s *session) intact(p *pointer, b []byte) []byte {
	if p.holds(b) {
		return b
	}
	if invariants.Enabled {
		alive := s.Pool.Alive()
		invariants.Check(alive != nil, "block %v does not hold the value that %+v points to", p.addr, *p)
	}
	return nil
}

// fetched are the values of blocks that a scan has READ together, in the order in which it visits their pairs.
type fetched struct {
	n, next int
	items   [maxFetched]int // of s.pairs
	at      [maxFetched]int // in s.long
}

// maxFetched is how many blocks a scan reads at once at most.
const maxFetched = 32

// fetch READs the blocks of item i and of those that come after it, of at most left pairs, as many as there is room for: one round trip.
func (s *session) fetch(i, step, left int) error {
	f, at := &s.fetched, 0
	f.n, f.next = 0, 0
	for ; i >= 0 && i < len(s.pairs.list) && left > 0 && f.n < maxFetched; i, left = i+step, left-1 {
		p, ok := s.lay.pointerOf(s.pairs.entry(i))
		if !ok {
			continue
		}
		n := roundUp(p.length)
		if p.length > s.lay.MaxValue || at+n > len(s.long) {
			break
		}
		s.PS.Read(p.addr+blockFixed, s.long[at:at+p.length])
		f.items[f.n], f.at[f.n] = i, at
		f.n++
		at += n
	}
	if err := s.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.Pause()
	return nil
}

// longValue is the value of item i of s.pairs, whose block a scan READs with those of the pairs that it visits next. nil: the block does not hold it.
func (s *session) longValue(i, step, left int) ([]byte, error) {
	f := &s.fetched
	for f.next < f.n && f.items[f.next] != i {
		f.next++ // it was not visited: the key was there twice
	}
	if f.next == f.n {
		if err := s.fetch(i, step, left); err != nil || f.n == 0 {
			return nil, err
		}
	}
	p, _ := s.lay.pointerOf(s.pairs.entry(i))
	b := s.long[f.at[f.next]:][:p.length]
	f.next++
	return s.intact(&p, b), nil
}

// longBytes is how much a session has room for of what blocks hold: at least the longest.
func (l *layout) longBytes() int {
	if !l.Blocks {
		return 0
	}
	return max(16<<10, l.blockBytes(l.MaxValue))
}

// block checks the block that a leaf's entry points to.
func (c *checker) block(l *leaf, p *pointer) error {
	c.blocks = append(c.blocks, p.addr)
	b := c.s.long[:blockFixed+p.length]
	if err := c.s.Read(p.addr, b); err != nil {
		return err
	}
	if !verifyBlock(p.addr, b) || !p.holds(b[blockFixed:]) {
		c.fault("leaf %v: the block at %v is not what its entry says: %w", l.addr, p.addr, index.ErrFormat)
	}
	c.found.Blocks++
	c.found.BlockBytes += uint64(p.size)
	return nil
}
