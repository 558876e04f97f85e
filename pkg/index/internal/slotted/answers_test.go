package slotted

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index/internal/fence"
)

// TestAnswers: what a leaf says of a key depends on the key's own slot if that verifies, and on all
// of them if none has it.
func TestAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, lay := range layouts(t) {
		for range 100 {
			p := randomPairs(lay, r, 2+r.IntN(18))
			for d := LoadOf(p.List); d.Used() > lay.Room(lay.Bottom, lay.NoHigh()); d = LoadOf(p.List) {
				p.List = p.List[:len(p.List)-1]
			}
			if len(p.List) < 2 {
				continue
			}
			b := make([]byte, lay.NodeBytes)
			h := fence.Header{Version: r.Uint32(), Rightmost: true, Low: lay.Bottom, High: lay.NoHigh()}
			Build(b, lay, testAddr, &h, p, 0, len(p.List))
			var l Leaf
			if !l.Open(lay, testAddr, b) {
				t.Fatal("no leaf")
			}
			var torn, whole []byte // keys
			for i := range l.Count {
				w := l.SlotWord(i)
				if SlotLength(w) == 0 {
					continue
				}
				key, _, _ := lay.Pair(l.EntryAt(w))
				if torn == nil {
					torn = bytes.Clone(key)
					b[l.SlotAt(i)+7] ^= 1 // its checksum
				} else {
					whole = bytes.Clone(key)
				}
			}
			missing := bytes.Repeat([]byte{0xa5}, lay.MaxKey)
			var a Leaf
			if !a.Answers(lay, testAddr, b, whole) {
				t.Fatalf("a leaf with another torn slot does not answer for key %x", whole)
			}
			if e, ok := a.EntryOf(whole); !ok || !bytes.Equal(lay.KeyOf(e), whole) {
				t.Fatalf("key %x is not there", whole)
			}
			if a.Is(lay, testAddr, b, whole) {
				t.Fatal("it verifies as a whole")
			}
			if a.Answers(lay, testAddr, b, torn) {
				t.Fatalf("a leaf whose slot of key %x is torn answers for it", torn)
			}
			if _, there := a.EntryOf(missing); !there && a.Answers(lay, testAddr, b, missing) {
				t.Fatalf("a leaf with a torn slot says that key %x is missing", missing)
			}
			if a.Answers(lay, testAddr+64, b, whole) {
				t.Fatal("a leaf of another address answers")
			}
		}
	}
}
