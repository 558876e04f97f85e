package dolphin

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// FuzzLeaf: any bytes are looked at without harm, as of a READ beside any WRITEs, or a damaged
// leaf. A word behind the head that changes is damage, or the other records are as they were.
func FuzzLeaf(f *testing.F) {
	f.Add(uint16(0), uint64(1), []byte{1, 2, 3})
	f.Add(uint16(9), uint64(1)<<20|1<<3, []byte{})
	f.Fuzz(func(t *testing.T, at uint16, word uint64, junk []byte) {
		for _, o := range leafOptions {
			keys := []string{"bbb", "ccc and more than", "ccc", "ddd"}
			l, _ := newLeaf(t, o, keys...)
			i := int(at) % (len(l.b) / wordBytes) * wordBytes
			l.setWord(i, l.word(i)^word)
			n := copy(l.b[i:], junk)
			s := Session{lay: l.lay}
			again := leaf{lay: l.lay}
			if !again.open(l.b, testAt) {
				continue
			}
			_, damaged := s.gatherAlive(&again)
			for _, p := range s.pairs {
				again.value(p.cursor, p.w)
				again.key(p.cursor, p.w)
			}
			for _, k := range keys {
				found, broken := again.find([]byte(k), l.lay.tagOf([]byte(k)))
				if found.is {
					again.value(found.cursor, found.w)
				}
				if broken != damaged {
					t.Errorf("a search of %q says damaged: %v, all of the leaf: %v", k, broken, damaged)
				}
				if k == "bbb" && i >= l.records+3*wordBytes && i+n < len(l.b)-wordBytes && i < len(l.b)-wordBytes && !found.is && l.lay.words {
					t.Errorf("the first record is not there, as a word at %d is another one", i)
				}
			}
		}
	})
}

// TestDefaultsFitEveryLength: an index whose options name no size of leaves can be made for keys
// and values of every length, and opened again with the options that its superblock then has.
func TestDefaultsFitEveryLength(t *testing.T) {
	for _, value := range []int{0, 1, 8, 9, 100, 256, 257, mostCell, blocks.MaxValue} {
		for key := 1; key <= mostKey; key++ {
			o := index.Options{MaxKeyBytes: key, MaxValueBytes: value}
			l, err := newLayout(o)
			if err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			o.NodeBytes, o.InlineBytes = l.size, l.Inline
			if again, err := newLayout(o); err != nil || again.Inline != l.Inline || again.Blocks != l.Blocks || again.size != l.size || again.words != l.words {
				t.Fatalf("%+v: %d in leaves of %d bytes, opened with %d and %d: %v", o, l.Inline, l.size, again.Inline, again.size, err)
			}
		}
	}
}

// TestInsertsAreSpread: leaves lie on all memory servers, whether keys differ in their first byte
// or far behind.
func TestInsertsAreSpread(t *testing.T) {
	const pairs = 12_000
	for name, key := range map[string]func(r *rand.Rand) []byte{
		"hashed": func(r *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) },
		"prefix": func(r *rand.Rand) []byte { return fmt.Appendf(nil, "user/all of them/%012x", r.Uint64()>>16) },
		"ascending": func() func(*rand.Rand) []byte {
			n := 0
			return func(*rand.Rand) []byte { n++; return fmt.Appendf(nil, "%08d", n) }
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(4, 4))
			servers := 3
			if name == "hashed" {
				servers = 2
			}
			x, err := open(pooltest.New(t, pooltest.Options{Servers: servers, Chunks: 64, ChunkBytes: 64 << 10}).Open(t), index.Options{MaxKeyBytes: 32, MaxValueBytes: 8})
			if err != nil {
				t.Fatal(err)
			}
			s, err := x.newSession()
			if err != nil {
				t.Fatal(err)
			}
			for range pairs {
				if err := s.Insert(key(r), []byte("12345678")); err != nil {
					t.Fatal(err)
				}
			}
			found, err := x.Check()
			if err != nil || found.Pairs != pairs {
				t.Fatalf("%+v: %v", found, err)
			}
			on := map[uint16]int{}
			for _, p := range found.Memory {
				if p.Kind == index.KindLeaf {
					on[p.Addr.Server()]++
				}
			}
			most, least := 0, pairs
			for _, id := range x.Pool.Servers() {
				most, least = max(most, on[id]), min(least, on[id])
			}
			if 10*least < 6*most {
				t.Errorf("leaves of each server: %v", on)
			}
		})
	}
}

// TestValueThatIsTheFiller: who meets the filler in the place of a value READs once more. What is
// there then is the value, also where a user gave a key just these bytes.
func TestValueThatIsTheFiller(t *testing.T) {
	f := newFamily(t)
	s, other := f.open(), f.open()
	f.insert(s, "a0", "a1")
	s.Begin()
	if there, err := s.find([]byte("a0"), false); err != nil || !there {
		t.Fatal(there, err)
	}
	filler := binary.LittleEndian.AppendUint64(nil, s.leaf.filler)
	s.End()
	f.must(s.Update([]byte("a0"), filler))
	if _, err := other.Lookup([]byte("a1"), nil); err != nil {
		t.Fatal(err)
	}
	before := other.Counters()
	v, err := other.Lookup([]byte("a0"), nil)
	now := other.Counters()
	if now = now.Sub(&before); err != nil || string(v) != string(filler) || now.Requests[verbs.Read] != 2 {
		t.Errorf("lookup: %x, %v, %d READs", v, err, now.Requests[verbs.Read])
	}
	is := func(what string, v []byte) {
		t.Helper()
		if string(v) != string(filler) {
			t.Errorf("%s: %x, want %x", what, v, filler)
		}
	}
	f.must(other.Scan([]byte("a0"), 1, false, func(_, v []byte) bool { is("scan", v); return true }))
	f.must(other.LookupBatch([][]byte{[]byte("a0")}, func(_ int, v []byte, err error) { is("batch", v); f.must(err) }))
	f.must(other.Modify([]byte("a0"), func(v []byte, _ bool) ([]byte, index.Action) { is("modify", v); return nil, index.Keep }))
	for i := 2; f.leafOf(s, "a0") == f.leafOf(s, "a9"); i++ { // with the halves, both copied
		f.insert(s, fmt.Sprint("a", i))
	}
	v, err = other.Lookup([]byte("a0"), nil)
	f.must(err)
	is("lookup after a split", v)
}
