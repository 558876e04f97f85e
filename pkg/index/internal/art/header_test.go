package art

import (
	"bytes"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
)

var testSums = sum.NewKey(siphash.Key{K0: 1, K1: 2})

// TestHeadRoundTrip builds heads of inner nodes, and compares prefixes.
func TestHeadRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for range 2000 {
		key := bytesOf(r, r.IntN(40))
		depth := r.IntN(len(key) + 1)
		n := min(MostPrefix, r.IntN(len(key)-depth+1))
		h := Header{Outline: Outline{Kind: FirstType + NodeType(r.IntN(int(Direct)))}}
		h.setPrefix(depth, key[depth:depth+n])
		a := pool.NewAddr(2, 64*(1+r.Uint64N(1<<30)))
		b := h.Build(testSums, make([]byte, Direct.Bytes()), a, r.Uint32())
		var g Header
		if !g.Decode(testSums, b, a) || g != h || g.Decode(testSums, b, a+64) || Marks(a, b[:pool.HeadBytes]) != pool.Used {
			t.Fatalf("%+v became %+v", h, g)
		}
		if at := h.mismatch(h.Prefix[:h.Length], key); at != -1 {
			t.Fatalf("%x does not have its own bytes at %d", key, at)
		}
		if n > 0 {
			at := depth + r.IntN(n)
			other := bytes.Clone(key)
			other[at]++
			if got := h.mismatch(h.Prefix[:h.Length], other); got != at {
				t.Fatalf("%x and %x differ at %d, not %d", key, other, at, got)
			}
			if got := h.mismatch(h.Prefix[:h.Length], key[:at]); got != at {
				t.Fatalf("%x ends at %d, not %d", key[:at], at, got)
			}
		}
	}
}

func bytesOf(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestTornChosenPrefix: users choose keys below a node, so that a CRC-32C does not tell the last
// word of its prefix from zeros. A READ beside the node's dead mark gets some words of the head and
// some of the mark. If it is the head of a node, it has the node's prefix.
func TestTornChosenPrefix(t *testing.T) {
	a := pool.NewAddr(1, 1<<20)
	prefix := make([]byte, MostPrefix)
	crctest.Change(prefix, MostPrefix-8)
	h := Header{Outline: Outline{Kind: FirstType}}
	h.setPrefix(3, prefix)
	before := h.Build(testSums, make([]byte, FirstType.Bytes()), a, 7)
	after := bytes.Clone(before)
	unit.PutDead(after, a, uint8(FirstType), 9)
	for seen := range 1 << (HeadBytes / 8) { // which words are from after
		read := bytes.Clone(before)
		for i := range HeadBytes / 8 {
			if seen>>i&1 != 0 {
				copy(read[8*i:8*i+8], after[8*i:])
			}
		}
		var got Header
		if got.Decode(testSums, read, a) && got != h {
			t.Errorf("words %03b are those of the mark: a node with prefix %x, not %x", seen, got.Prefix, prefix)
		}
	}
}
