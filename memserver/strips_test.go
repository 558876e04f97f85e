package memserver

import (
	"encoding/binary"
	"testing"

	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestFenceOfStrips: a client takes a lock word of a strip, and no intent slot names it. A fence
// finds it by the table of the chunk, turns it to Repair, and leaves the word of another index
// whose client has the same number. Who wants the word next gets it.
func TestFenceOfStrips(t *testing.T) {
	const size = 1024
	for _, provider := range []string{"tcp", "shm"} {
		t.Run(provider, func(t *testing.T) {
			s, _ := start(t, dirConfig(t.TempDir()))
			data := s.region.Bytes()
			word := func(w pool.Word) uint64 { return binary.NativeEndian.Uint64(data[w.At.Offset():]) }
			open := func(index string) *pool.Pool {
				c := client(t, s.Addresses().Control, index, provider, nil)
				must(c.Admit(2, 1024, limit))
				return must(pool.Open(pool.Config{Env: env.Real(), Control: c, Devices: []verbs.Device{deviceOf(provider)}, Identity: index}))
			}
			hold := func(index string) (p *pool.Pool, ps *pool.Session, w pool.Word) {
				p = open(index)
				ps = must(p.NewSession(1 << 12))
				strips := must(p.DeclareStrip(size))
				for range 100 { // runs of several slabs
					node := must(p.Allocate(size, pool.Nil))
					w = pool.Word{At: must(strips.WordOf(node)), Node: node, InStrip: true}
				}
				ps.Begin()
				must(ps.Acquire(w))
				if err := ps.PostRelease(0xff, 0xab); err != nil {
					t.Fatal(err)
				}
				must(ps.Acquire(w))
				return p, ps, w
			}
			a, as, aw := hold("a")
			b, bs, bw := hold("b")
			if a.Client() != b.Client() || word(bw) != uint64(b.Client())|0xab<<16 {
				t.Fatalf("clients %d and %d, word %#x", a.Client(), b.Client(), word(bw))
			}
			slots := region.IntentOffset(s.region.LockBytes, region.SuperblockSlots) - region.IntentOffset(s.region.LockBytes, 0)
			for i, c := range data[region.IntentOffset(s.region.LockBytes, 0):][:slots] {
				if c != 0 {
					t.Fatalf("byte %d of the intent slots is %d", i, c)
				}
			}
			_, _ = bs.Close(), b.Close() // it dies with the word
			if got := word(bw); got != pool.Repair|0xab<<16 {
				t.Errorf("the fenced client's word is %#x", got)
			}
			if got := word(aw); got != uint64(a.Client())|0xab<<16 {
				t.Errorf("the other index's word is %#x", got)
			}
			next := open("b")
			ns := must(next.NewSession(1 << 12))
			ns.Begin()
			if own, err := ns.Acquire(bw); err != nil || own != 0xab {
				t.Errorf("the next one's word has %#x: %v", own, err)
			}
			for _, x := range []*pool.Session{ns, as} {
				if err := x.PostRelease(0, 0); err != nil {
					t.Error(err)
				}
				_ = x.Close()
			}
			for _, p := range []*pool.Pool{next, a} {
				if err := p.Alive(); err != nil {
					t.Error(err)
				}
				_ = p.Close()
			}
		})
	}
}
