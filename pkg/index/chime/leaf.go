package chime

import (
	"bytes"
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/crc"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leaf is the bytes of a leaf, or of pieces of it, each in its place. It posts nothing.
type leaf struct {
	*shape
	addr pool.Addr
	b    []byte
}

// Start values of CRCs, sums and digests are those of package unit. Replicas and home words have
// these numbers there.
const (
	seedReplica = 1 << 16
	seedHome    = 2 << 16
)

// outcome is what a search finds.
type outcome uint8

const (
	torn    outcome = iota // what was READ does not say: READ it again
	absent                 // the key was not there when its home word was read
	present                // the entry was there when it was read
)

// replica returns the version and the sibling in replica g. ok is false if it does not verify.
func (l *leaf) replica(g int) (version uint32, sibling pool.Addr, ok bool) {
	r := l.b[l.replicaAt(g):][:replicaBytes]
	version = unit.Version(r)
	ok = binary.LittleEndian.Uint32(r[unit.AtCheck:]) == l.replicaSum(g, version, r)
	return version, pool.Addr(binary.LittleEndian.Uint64(r[atSibling:])), ok
}

func (l *leaf) replicaSum(g int, version uint32, r []byte) uint32 {
	return crc.Sum(unit.SlotSeed(unit.Seed(l.addr, version), seedReplica+g), r[atSibling:replicaBytes])
}

func (l *leaf) putReplica(g int, version uint32, sibling pool.Addr) {
	r := l.b[l.replicaAt(g):][:replicaBytes]
	binary.LittleEndian.PutUint32(r[unit.AtVersion:], version)
	binary.LittleEndian.PutUint64(r[atSibling:], uint64(sibling))
	binary.LittleEndian.PutUint32(r[unit.AtCheck:], l.replicaSum(g, version, r))
}

// slotOf is the bytes of slot i.
func (l *leaf) slotOf(i int) []byte { return l.b[l.slotAt(i):][:l.slot] }

// entry returns what slot i has; nil if it is empty. ok is false if it does not verify.
func (l *leaf) entry(i int) (e []byte, version uint32, ok bool) {
	s := l.slotOf(i)
	version = unit.Version(s)
	n := int(binary.LittleEndian.Uint16(s[atLength:]))
	end := slotHead
	if n != emptySlot {
		if end += n; end > l.slot {
			return nil, version, false
		}
		e = s[slotHead:end]
	}
	return e, version, binary.LittleEndian.Uint32(s[unit.AtCheck:]) == l.entrySum(i, version, s[atLength:end])
}

// entrySum is the sum of slot i at a version, whose length and entry are b.
func (l *leaf) entrySum(i int, version uint32, b []byte) uint32 {
	return l.lay.Sums.Of(unit.SlotSeed(unit.Seed(l.addr, version), i), b)
}

// keyAt is the key in slot i, which verified at version. ok is false if it does not, or is empty.
func (l *leaf) keyAt(i int, version uint32) (key []byte, ok bool) {
	e, v, ok := l.entry(i)
	if !ok || v != version || e == nil {
		return nil, false
	}
	key, _, ok = l.codec.Pair(e)
	return key, ok
}

// put makes e the entry of slot i, at a version; nil = none. The home word stays.
func (l *leaf) put(i int, version uint32, e []byte) {
	s := l.slotOf(i)
	n, end := emptySlot, slotHead
	if e != nil {
		n, end = len(e), slotHead+len(e)
		copy(s[slotHead:], e)
	}
	binary.LittleEndian.PutUint32(s[unit.AtVersion:], version)
	binary.LittleEndian.PutUint16(s[atLength:], uint16(n))
	binary.LittleEndian.PutUint32(s[unit.AtCheck:], l.entrySum(i, version, s[atLength:end]))
}

// homeWord returns what slot i says of the keys whose home it is.
func (l *leaf) homeWord(i int) (digest uint32, bitmap uint16) {
	s := l.slotOf(i)
	return binary.LittleEndian.Uint32(s[atDigest:]), binary.LittleEndian.Uint16(s[atBitmap:])
}

// digest is what the home word of slot home says at a version if the keys in its neighbourhood are
// those in l. ok is false if a slot of it does not verify at that version.
func (l *leaf) digest(home int, version uint32) (digest uint32, bitmap uint16, ok bool) {
	digest = l.emptyDigest(home, version)
	for j := range l.hood {
		i := l.next(home, j)
		e, v, ok := l.entry(i)
		if !ok || v != version {
			return 0, 0, false
		}
		if e == nil {
			continue
		}
		key, _, ok := l.codec.Pair(e)
		if !ok {
			return 0, 0, false
		}
		if hash := l.hash(key); l.homeOf(hash) == home {
			bitmap |= 1 << j
			digest += l.digestTerm(home, j, version, hash)
		}
	}
	return digest, bitmap, true
}

// emptyDigest is the digest of slot home without keys.
func (l *leaf) emptyDigest(home int, version uint32) uint32 {
	return unit.SlotSeed(unit.Seed(l.addr, version), seedHome+home)
}

// digestTerm is what a key with a hash adds to the digest of its home if it is in slot home+j. The
// digest is a sum, so terms of one key must not differ by what is the same for others: they are
// mixed. Who does not know hashes does not know terms either.
func (l *leaf) digestTerm(home, j int, version uint32, hash uint64) uint32 {
	x := hash ^ uint64(l.emptyDigest(home, version)+uint32(j+1)*0x9E3779B1)*0x9E3779B97F4A7C15
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	x = (x ^ x>>32) * 0xD6E8FEB86659FD93
	return uint32(x >> 32)
}

// setHome makes the home word of slot home.
func (l *leaf) setHome(home int, digest uint32, bitmap uint16) {
	s := l.slotOf(home)
	binary.LittleEndian.PutUint32(s[atDigest:], digest)
	binary.LittleEndian.PutUint16(s[atBitmap:], bitmap)
}

// addToHome changes the home word of slot home for a key that came to slot i, and removeFromHome
// for one that went. Nothing of the neighbourhood but the home word has to be known.
func (l *leaf) addToHome(home, i int, version uint32, key []byte) {
	j := l.ahead(home, i)
	d, m := l.homeWord(home)
	l.setHome(home, d+l.digestTerm(home, j, version, l.hash(key)), m|1<<j)
}

func (l *leaf) removeFromHome(home, i int, version uint32, key []byte) {
	j := l.ahead(home, i)
	d, m := l.homeWord(home)
	l.setHome(home, d-l.digestTerm(home, j, version, l.hash(key)), m&^(1<<j))
}

// entryAt looks for key in slot i alone. A slot that verifies and has the key is the truth: see the
// package's design page. A speculative READ needs no more.
func (l *leaf) entryAt(i int, key []byte) []byte {
	e, _, ok := l.entry(i)
	if !ok || e == nil {
		return nil
	}
	if k, _, ok := l.codec.Pair(e); ok && bytes.Equal(k, key) {
		return e
	}
	return nil
}

// find looks for key, whose home is known, in its neighbourhood, at the version of the leaf's
// replica or head.
//
// present: the entry's slot verified. absent: all slots verified at that version, and the keys that
// the home word names are those that it was made of (section 4.1.2). So these keys are all that had
// this home at the moment when that word was read, whenever the slots were read, and whatever
// hopped meanwhile.
func (l *leaf) find(key []byte, home int, version uint32) (slot int, e []byte, o outcome) {
	for j := range l.hood {
		i := l.next(home, j)
		if e := l.entryAt(i, key); e != nil {
			return i, e, present
		}
	}
	if !l.isHomeComplete(home, version) {
		return -1, nil, torn
	}
	return -1, nil, absent
}

// isHomeComplete reports whether all slots of the neighbourhood of home verify at a version, and
// the keys in those that its home word names are the ones that it names. Keys of the home in other
// slots are of changes that are under way or were cut short: the word, when it was read, did not
// name them.
func (l *leaf) isHomeComplete(home int, version uint32) bool {
	have, bitmap := l.homeWord(home)
	digest := l.emptyDigest(home, version)
	for j := range l.hood {
		e, v, ok := l.entry(l.next(home, j))
		if !ok || v != version {
			return false
		}
		if bitmap>>j&1 == 0 {
			continue
		}
		key, _, ok := l.codec.Pair(e)
		if e == nil || !ok {
			return false
		}
		digest += l.digestTerm(home, j, version, l.hash(key))
	}
	return have == digest
}

// open decodes the head of a whole leaf.
func (l *leaf) open() (h fence.Header, ok bool) {
	ok = len(l.b) >= l.end() && h.Decode(l.b, l.lay) && h.Level == 0 && h.Count == 0 && h.End <= l.head && l.lay.Verify(l.b, h.End, l.addr, h.Version)
	return h, ok
}

func siblingOf(h *fence.Header) pool.Addr {
	if h.Rightmost {
		return pool.Nil
	}
	return h.Sibling
}

// build makes l the leaf with header h and the entries that t places, and returns its size.
func (l *leaf) build(h *fence.Header, t *table, entry func(it int) []byte) int {
	clear(l.b[:l.lay.NodeBytes])
	h.Level, h.Count = 0, 0
	h.Encode(l.b)
	l.lay.Seal(l.b, h.End, l.addr, h.Version)
	for g := range l.groups() {
		l.putReplica(g, h.Version, siblingOf(h))
	}
	for i := range l.n {
		l.put(i, h.Version, nil)
		l.setHome(i, l.emptyDigest(i, h.Version), 0)
	}
	for i := range l.n {
		if t != nil && t.home[i] >= 0 {
			e := entry(int(t.item[i]))
			l.put(i, h.Version, e)
			l.addToHome(int(t.home[i]), i, h.Version, l.codec.KeyOf(e))
		}
	}
	return l.end()
}

// kill makes l the image of a dead leaf: nothing in it verifies, so no reader of a neighbourhood
// takes a key from it, or misses one there.
func (l *leaf) kill(version uint32) int {
	clear(l.b[:l.lay.NodeBytes])
	unit.PutDead(l.b, l.addr, 0, version)
	return l.end()
}
