package dolphin

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestMemory: inserts, in whatever order and of whatever keys, leave leaves that are full to the
// most part, and little else. After deletes the memory comes back.
func TestMemory(t *testing.T) {
	const keys = 8000
	number := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }
	text := func(format string, a ...any) []byte { return fmt.Appendf(nil, format, a...) }
	random := rand.New(rand.NewPCG(1, 2))
	numbers, strings := index.Options{Uint64: true, MaxValueBytes: 8}, index.Options{MaxKeyBytes: 24, MaxValueBytes: 8}
	for _, d := range []struct {
		what string
		o    index.Options
		most float64 // bytes an item
		key  func(i uint64) []byte
	}{
		{"random", numbers, 45, func(uint64) []byte { return number(random.Uint64()) }},
		{"ascending", numbers, 31, number},
		{"descending", numbers, 45, func(i uint64) []byte { return number(keys - i) }},
		{"dense, in any order", numbers, 45, func(i uint64) []byte { return number(i * 7919 % keys) }},
		{"sparse", numbers, 45, func(uint64) []byte { return number(random.Uint64() >> random.IntN(64)) }},
		{"strings of 8 bytes", strings, 45, func(uint64) []byte { return text("%08x", random.Uint32()) }},
		{"strings", strings, 70, func(uint64) []byte { return text("user%d", random.Uint64()) }},
		{"groups of strings", strings, 50, func(i uint64) []byte { return text("%d/%d/%d", i%7, i*7919%keys%131, i*7919%keys) }},
	} {
		t.Run(d.what, func(t *testing.T) {
			c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 64})
			x, err := open(c.Open(t), d.o)
			must(t, err)
			s, err := x.newSession()
			must(t, err)
			var all [][]byte
			for i := range uint64(keys) {
				all = append(all, d.key(i))
				must(t, s.Upsert(all[i], number(i)))
			}
			look := func() (pairs uint64, each, full float64) {
				f, err := x.Check()
				must(t, err)
				room := 0
				s.Begin()
				defer s.End()
				sc := s.scanner()
				sc.reverse, sc.alone, sc.bound, sc.left = false, false, append(sc.bound[:0], s.lay.Bottom...), keys
				for more := true; more; {
					more, err = s.eachAhead(func() (step, error) {
						l := &sc.leaf
						room += s.lay.size - l.records
						s.gatherAlive(l)
						for _, p := range s.pairs {
							full += float64(s.recordSize(p))
						}
						if sc.bound = append(sc.bound[:0], l.high...); l.endless {
							return over, nil
						}
						return beside, nil
					})
					must(t, err)
				}
				return f.Pairs, float64(f.NodeBytes) / float64(f.Pairs), full / float64(room)
			}
			pairs, each, full := look()
			before := each * float64(pairs)
			t.Logf("%d pairs, %.1f bytes each, leaves are %.0f%% full", pairs, each, 100*full)
			if each > d.most || full < 0.6 {
				t.Errorf("%.1f bytes a pair, at most %.1f; leaves are %.0f%% full, at least 60%%", each, d.most, 100*full)
			}
			random.Shuffle(keys, func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, k := range all[:keys*15/16] {
				if err := s.Delete(k); err != index.ErrNotFound { // some came twice
					must(t, err)
				}
			}
			pairs, each, full = look()
			t.Logf("%d pairs are left, %.1f bytes each, leaves are %.0f%% full", pairs, each, 100*full)
			if share := each * float64(pairs) / before; share > 0.3 {
				t.Errorf("of 16 pairs one is left, and %.0f%% of the memory", 100*share)
			}
		})
	}
}
