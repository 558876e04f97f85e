package chime

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Speculations is how many speculative READs the client of x made, and how many had the key.
func Speculations(x index.Index) (tried, right uint64) {
	h := x.(*tree).hot
	return h.speculated.Load(), h.speculatedRight.Load()
}

// FewFingerprints leaves fingerprints so many values, until it is undone.
func FewFingerprints(values uint64) (undo func()) {
	was := fingerprintMask
	fingerprintMask = values - 1
	return func() { fingerprintMask = was }
}

// HomeWords are where the home words of the leaf at a are, from a on, and its lock word.
func HomeWords(x index.Index, a pool.Addr) (homes []int, word pool.Addr, err error) {
	t := x.(*tree)
	for i := range t.n {
		homes = append(homes, t.slotAt(i)+atDigest)
	}
	s, err := t.newSession()
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	word, err = s.Words.WordOf(a)
	return homes, word, err
}

// Unnamed reports whether key is in the leaf at a, of which node is the content, and its home word,
// which names what is in other slots, does not name it.
func Unnamed(x index.Index, a pool.Addr, node, key []byte) (is bool) {
	l := leaf{&x.(*tree).shape, a, node}
	home := l.home(key)
	_, bitmap := l.homeWord(home)
	version, _, _ := l.replica(l.replicaOf(home))
	for j := range l.hood {
		if l.entryAt(l.next(home, j), key) == nil {
			continue
		}
		if bitmap>>j&1 != 0 {
			return false
		}
		is = l.isHomeComplete(home, version)
	}
	return is
}
