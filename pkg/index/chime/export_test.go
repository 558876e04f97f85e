package chime

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Speculations is how many speculative READs the client of x made, and how many had the key.
func Speculations(x index.Index) (tried, right uint64) {
	h := x.(*tree).hot
	return h.tried.Load(), h.right.Load()
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
