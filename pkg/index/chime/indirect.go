package chime

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
)

// Keys that are long, or can be, lie outside of the leaf (section 4.5). An entry then is a
// fingerprint of the key, of 8 bytes, and the reference to a block with all of the pair:
//
//	offset  size  field
//	0       2     length of the key, little-endian
//	2       n     key
//	2+n     ...   value
//
// To a leaf the fingerprint is the key, and the pair the value. Several keys of a leaf can have one
// fingerprint, and each an entry of its own: their blocks are READ together. The fingerprint is a
// hash and not the key's beginning, as in the paper: keys with a common prefix would all have one
// home. Nobody chooses keys with one fingerprint, of which a leaf takes no more than a
// neighbourhood has slots, since the hash is under the index's secret. A leaf says nothing of the
// order of its keys, so its blocks are READ where that matters: in scans and splits, not in merges.
const (
	// longestKey is the longest key that lies in the leaf. Slots are all of one size.
	longestKey = 32

	pairHead = 2
)

// indirect reports whether keys lie in blocks.
func indirect(l *fence.Layout) bool { return !l.Uint64 && l.MaxKey > longestKey }

// codecOf is that of the entries of leaves.
func codecOf(l *fence.Layout) *item.Codec {
	if !indirect(l) {
		return &l.Codec
	}
	return &item.Codec{Uint64: true, MaxKey: 8, MaxValue: pairHead + l.MaxKey + l.MaxValue, Blocks: true, Bottom: make([]byte, 8)}
}

// fingerprint writes the fingerprint of key to b.
func (s *shape) fingerprint(b *[8]byte, key []byte) {
	binary.BigEndian.PutUint64(b[:], s.hash(key)&fingerprintMask)
}

// fingerprintMask has the bits of fingerprints that are used: all, but in tests of keys that have
// one fingerprint.
var fingerprintMask = ^uint64(0)

// leafKey is what leaves have for key: the key, or its fingerprint, which stays until the next
// call.
func (s *session) leafKey(key []byte) []byte {
	if !s.t.indirect {
		return key
	}
	s.t.fingerprint(&s.fingerprint, key)
	return s.fingerprint[:]
}

// leafValue is what leaves have for the value of key: the value, or the pair.
func (s *session) leafValue(key, value []byte) []byte {
	if !s.t.indirect {
		return value
	}
	s.content = appendPair(s.content[:0], key, value)
	return s.content
}

func appendPair(dst, key, value []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(key)))
	return append(append(dst, key...), value...)
}

// splitPair returns the pair in a block.
func splitPair(b []byte) (key, value []byte, ok bool) {
	if len(b) < pairHead {
		return nil, nil, false
	}
	n := int(binary.LittleEndian.Uint16(b))
	if b = b[pairHead:]; n > len(b) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// candidates are entries of a neighbourhood with one fingerprint. It implements blocks.Entries.
type candidates struct {
	n       int
	slots   [mostNeighbourhood]int
	entries [mostNeighbourhood][]byte
}

// Len implements blocks.Entries.
func (c *candidates) Len() int { return c.n }

// Entry implements blocks.Entries.
func (c *candidates) Entry(i int) []byte { return c.entries[i] }

// match looks for key, which leaves have as k, in the neighbourhood of its home, as leaf.find does.
// Where keys lie in blocks it READs those of the entries with the key's fingerprint, all in one
// round trip, and value is that of key, until blocks are used again.
func (s *session) match(l *leaf, key, k []byte, home int, version uint32) (slot int, e, value []byte, o outcome, err error) {
	if !s.t.indirect {
		slot, e, o = l.find(k, home, version)
		return slot, e, nil, o, nil
	}
	c := &s.candidates
	c.n = 0
	for j := range l.hood {
		i := l.next(home, j)
		if e := l.entryAt(i, k); e != nil {
			c.slots[c.n], c.entries[c.n] = i, e
			c.n++
		}
	}
	s.Blocks.BeginScan()
	for i := range c.n {
		b, err := s.Blocks.Next(c, i, 1, c.n-i)
		if err != nil {
			return -1, nil, nil, torn, err
		}
		has, value, ok := splitPair(b)
		if !ok {
			return -1, nil, nil, torn, nil
		}
		if bytes.Equal(has, key) {
			return c.slots[i], c.entries[i], value, present, nil
		}
	}
	if !l.isHomeComplete(home, version) {
		return -1, nil, nil, torn, nil
	}
	return -1, nil, nil, absent, nil
}

// loadKeys READs the pairs of p that lie in blocks. ok is false if a block does not hold one.
func (s *session) loadKeys(p *pairs) (ok bool, err error) {
	if !s.t.indirect {
		return true, nil
	}
	p.bytes = p.bytes[:0]
	s.Blocks.BeginScan()
	for i := range p.list {
		b, err := s.Blocks.Next(p, i, 1, len(p.list)-i)
		if err != nil {
			return false, err
		}
		key, _, ok := splitPair(b)
		if !ok {
			return false, nil
		}
		at := &p.list[i]
		at.prefix, at.at, at.n = item.PrefixOf(key), int32(len(p.bytes)), int32(len(b))
		p.bytes = append(p.bytes, b...)
	}
	return true, nil
}

// checkPair READs the block of an entry for a check.
func checkPair(s *blocks.Session, at *blocks.Reference) (key, value []byte, err error) {
	b, err := s.Value(at)
	if err != nil {
		return nil, nil, err
	}
	key, value, ok := splitPair(b)
	if !ok {
		return nil, nil, fmt.Errorf("block %v holds no pair: %w", at.Addr, index.ErrFormat)
	}
	return key, value, nil
}
