package offload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// testDesign is the number of a design, which an executor does not look at.
const testDesign = 4

// TestExecutorFindsWhatAClientFinds asks memory servers for keys that are there and keys that are
// not, from every level that they may begin at.
func TestExecutorFindsWhatAClientFinds(t *testing.T) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 8, NodeBytes: 256},
		{MaxKeyBytes: 24, MaxValueBytes: 12, NodeBytes: 512},
	} {
		c := pooltest.New(t, pooltest.Options{Provider: "tcp", Servers: 2, Chunks: 40, Executor: new(Executor)})
		x, err := slottedtree.Open(c.Open(t), slottedtree.Config{Options: o, Design: index.Design{Name: "test"}, Cache: keepsNothing{}, ArenaBytes: CallBytes})
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		ask, err := NewClient(&s.Session, testDesign)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(3, 4))
		key := func() []byte {
			if o.Uint64 {
				return bigEndian(r.Uint64N(1<<20) << 40)
			}
			k := bytes.Repeat([]byte("prefix"), r.IntN(3))
			for range 1 + r.IntN(3) {
				k = append(k, byte(r.Uint32()))
			}
			return k
		}
		var keys [][]byte
		for range 6000 {
			keys = append(keys, key())
			if err := s.Upsert(keys[len(keys)-1], keys[len(keys)-1][:1]); err != nil {
				t.Fatal(err)
			}
		}
		asked, found, far := 0, 0, 0
		for i := range 2000 {
			k := keys[r.IntN(len(keys))]
			if i%3 == 0 {
				k = key()
			}
			want, wantErr := s.Lookup(k, nil)
			s.Begin()
			for level := uint8(1); level < btree.SubtreeLevels; level++ {
				p, err := s.Seek(k, fence.Holding, level)
				if err != nil {
					t.Fatal(err)
				}
				asked++
				w := btree.Way{Addr: p.Addr(), Level: level}
				f, ok, err := ask.Search(&w, k)
				switch {
				case err != nil:
					t.Fatal(err)
				case !ok && w.Level == level && w.Addr == p.Addr():
					t.Fatalf("key %x, from %v: nothing found, and no way", k, w)
				case !ok:
					far++
					continue
				case f.Entry == nil && !errors.Is(wantErr, index.ErrNotFound), f.Entry != nil && (wantErr != nil || !bytes.Equal(s.Lay.ValueOf(f.Entry), want)):
					t.Fatalf("key %x, from level %d: entry %x; a client finds %x, %v", k, level, f.Entry, want, wantErr)
				}
				found++
			}
			s.End()
		}
		t.Logf("%d asked, %d found, %d on another server", asked, found, far)
		if found < asked/3 || far == 0 {
			t.Errorf("%d of %d keys were found, %d are on another server", found, asked, far)
		}
		if err := errors.Join(s.Close(), x.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// keepsNothing is a LeafCache that keeps nothing.
type keepsNothing struct{}

func (keepsNothing) Claim(*btree.Session, pool.Addr, []byte, []byte, bool) (bool, error) {
	return true, nil
}
func (keepsNothing) Release(pool.Addr)                                 {}
func (keepsNothing) BeforeLoad(*btree.Session) error                   { return nil }
func (keepsNothing) Bound(*btree.Session, []byte, bool) ([]byte, bool) { return nil, true }
func (keepsNothing) Clock() uint64                                     { return 0 }
func (keepsNothing) Offload(*btree.Session, btree.Way) bool            { return false }
func (keepsNothing) Admit(*btree.Session, pool.Addr, []byte, []byte, bool, []byte, uint64) error {
	return nil
}
func (keepsNothing) Copy(*btree.Session, pool.Addr, []byte) (bool, error) { return false, nil }

var testAddr = pool.NewAddr(7, 0x12345640)

func bigEndian(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func testLayout(t testing.TB, o index.Options) *fence.Layout {
	t.Helper()
	l, err := slotted.NewLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	return &l
}

// bytesNear is a memory of one node after the other, the first at testAddr.
type bytesNear struct {
	b     []byte
	reads int
	torn  bool // each READ meets a WRITE
}

func (m *bytesNear) Read(id verbs.RegionID, remote uint64, dst []byte) error {
	m.reads++
	at := int64(remote) - int64(testAddr.Offset())
	if id != verbs.RegionData || at < 0 || at+int64(len(dst)) > int64(len(m.b)) {
		return verbs.ErrOutOfRange
	}
	copy(dst, m.b[at:])
	if m.torn {
		dst[len(dst)/8] ^= 0xff
		dst[fence.AtSibling] ^= 1
	}
	return nil
}

// twoLevels is an inner node with two leaves behind it: keys 0 to 99, and from 100 on; of all keys
// below 200 with a last digit of 0 there are pairs.
func twoLevels(t testing.TB, l *fence.Layout) *bytesNear {
	t.Helper()
	n := pool.Addr(l.NodeBytes)
	left, right := testAddr+n, testAddr+2*n
	b := make([]byte, 3*n)
	d := &btree.Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: 1, Children: []pool.Addr{left, right}, Separators: [][]byte{bigEndian(100)}}
	d.Build(b, l, testAddr, 5)
	for i, a := range []pool.Addr{left, right} {
		p := &slotted.Pairs{Lay: l}
		for k := range uint64(10) {
			e := l.PutEntry(make([]byte, 64), bigEndian(100*uint64(i)+10*k), bigEndian(k))
			off := fence.RoundUp(len(p.Image) + fence.Grain)
			p.Image = append(append(p.Image, make([]byte, off-len(p.Image))...), e...)
			p.List = append(p.List, slotted.EntryAt{Off: uint32(off), N: uint16(len(e))})
		}
		h := fence.Header{Version: 7, Low: l.Bottom, High: bigEndian(100), Sibling: right}
		if i == 1 {
			h = fence.Header{Version: 8, Low: bigEndian(100), High: l.NoHigh(), Rightmost: true}
		}
		slotted.Build(b[a-testAddr:], l, a, &h, p, 0, len(p.List))
	}
	return &bytesNear{b: b}
}

func requestOf(l *fence.Layout, what byte, w btree.Way, key []byte) []byte {
	b := make([]byte, requestFixed)
	b[atVersion], b[atAsked], b[atLayout], b[atBegin] = requestVersion, what, layoutUint64, w.Level
	binary.LittleEndian.PutUint32(b[atNodeBytes:], uint32(l.NodeBytes))
	binary.LittleEndian.PutUint64(b[atNode:], uint64(w.Addr))
	binary.LittleEndian.PutUint16(b[atMaxKey:], uint16(l.MaxKey))
	binary.LittleEndian.PutUint16(b[atKeyLength:], uint16(len(key)))
	binary.LittleEndian.PutUint64(b[atSecret:], l.Secret.K0)
	binary.LittleEndian.PutUint64(b[atSecret+8:], l.Secret.K1)
	return append(b, key...)
}

func TestExecutor(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 512})
	m, root := twoLevels(t, l), btree.Way{Addr: testAddr, Level: 1}
	left, right := testAddr+512, testAddr+1024
	answer := make([]byte, answerFixed+512)
	f := func(what string, m *bytesNear, request []byte, outcome byte, at pool.Addr, reads int) []byte {
		t.Helper()
		m.reads = 0
		n, err := new(Executor).Call(verbs.Peer{}, m, request, answer)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return nil
		}
		if got := pool.Addr(binary.LittleEndian.Uint64(answer[atWay:])); answer[atOutcome] != outcome || got != at || m.reads != reads {
			t.Errorf("%s: outcome %d at %v with %d READs; want %d, %v, %d", what, answer[atOutcome], got, m.reads, outcome, at, reads)
		}
		return answer[answerFixed:n]
	}
	e := f("a key", m, requestOf(l, askEntry, root, bigEndian(30)), foundEntry, left, 2)
	if !bytes.Equal(e, append(bigEndian(30), bigEndian(3)...)) {
		t.Errorf("entry %x", e)
	}
	f("a key on the right", m, requestOf(l, askEntry, root, bigEndian(100)), foundEntry, right, 2)
	f("a key that is not there", m, requestOf(l, askEntry, root, bigEndian(31)), foundNone, left, 2)
	f("a key behind the leaf to begin at", m, requestOf(l, askEntry, btree.Way{Addr: left, Level: 0}, bigEndian(120)), foundEntry, right, 2)
	f("nodes that are being changed", &bytesNear{b: m.b, torn: true}, requestOf(l, askEntry, root, bigEndian(30)), noWay, testAddr, mostNodes)

	dead := &bytesNear{b: bytes.Clone(m.b)}
	unit.PutDead(dead.b[512:], left, 0, 8)
	f("a dead leaf", dead, requestOf(l, askEntry, root, bigEndian(30)), noWay, left, 2)
	unit.PutDead(dead.b, testAddr, 1, 8)
	f("a dead inner node", dead, requestOf(l, askEntry, root, bigEndian(30)), noWay, testAddr, 1)

	far := &bytesNear{b: bytes.Clone(m.b)}
	there := pool.NewAddr(9, 4096)
	(&btree.Draft{Low: l.Bottom, High: l.NoHigh(), Rightmost: true, Level: 1, Children: []pool.Addr{there, right}, Separators: [][]byte{bigEndian(100)}}).Build(far.b, l, testAddr, 6)
	f("a leaf on another server", far, requestOf(l, askEntry, root, bigEndian(30)), elsewhere, there, 1)
	torn := &bytesNear{b: bytes.Clone(m.b)}
	torn.b[600] ^= 1 // in a slot
	f("a key that is not there, in a leaf with a torn slot", torn, requestOf(l, askEntry, root, bigEndian(31)), noWay, left, mostNodes)
	wrong := &bytesNear{b: bytes.Clone(m.b)}
	copy(wrong.b, wrong.b[512:1024])
	f("a leaf where an inner node is expected", wrong, requestOf(l, askEntry, root, bigEndian(30)), noWay, testAddr, mostNodes)

	request := requestOf(l, askEntry, root, bigEndian(30))
	x := new(Executor)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := x.Call(verbs.Peer{}, m, request, answer); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// TestExecutorRefuses what is no request.
func TestExecutorRefuses(t *testing.T) {
	l := testLayout(t, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 512})
	m := twoLevels(t, l)
	good := requestOf(l, askEntry, btree.Way{Addr: testAddr, Level: 1}, bigEndian(30))
	answer := make([]byte, answerFixed+512)
	if _, err := new(Executor).Call(verbs.Peer{}, m, good, answer); err != nil {
		t.Fatal(err)
	}
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for what, b := range map[string][]byte{
		"nothing": nil, "a part": good[:10], "less than a key": good[:requestFixed+7], "more than a key": append(bytes.Clone(good), 0),
		"another version": change(atVersion, requestVersion-1), "half of a secret": change(atSecret, 0), "a leaf, for which clients of versions before asked": change(atAsked, 2), "another question": change(atAsked, 3), "a level above the subtree": change(atBegin, btree.SubtreeLevels),
		"nodes that are too small": change(atNodeBytes+1, 0), "nodes that are too large": change(atNodeBytes+2, 1), "nodes of odd size": change(atNodeBytes, 4),
		"a key that is too long": change(atMaxKey, 7), "a short key": change(atKeyLength, 7), "no server": append(append(bytes.Clone(good[:atNode]), make([]byte, 8)...), good[atMaxKey:]...),
		"a swizzled address": change(atNode+7, 0x80), "a place outside": change(atNode+5, 0x7f),
	} {
		if _, err := new(Executor).Call(verbs.Peer{}, m, b, answer); err == nil {
			t.Errorf("%s is taken for a request", what)
		}
	}
	if _, err := new(Executor).Call(verbs.Peer{}, m, good, answer[:len(answer)-1]); err == nil {
		t.Error("an answer without room for a node")
	}
}

// TestExecutorFencesBeyondTheNode: a request may name any longest key and a node any lengths of its
// fences. The executor refuses such a request, whatever room the answer has behind the node.
func TestExecutorFencesBeyondTheNode(t *testing.T) {
	for _, c := range []struct{ maxKey, low, high uint16 }{
		{1<<16 - 1, 1<<16 - 1, 1<<16 - 1}, {1<<16 - 1, 1<<16 - 1, 0}, {1000, 0, 1000}, {480, 480, 480}, {488, 0, 0},
	} {
		node := make([]byte, 1024)
		node[unit.AtFlags] = unit.Node
		binary.LittleEndian.PutUint16(node[fence.AtLowLen:], c.low)
		binary.LittleEndian.PutUint16(node[fence.AtHighLen:], c.high)
		request := byteRequest(512, int(c.maxKey), btree.Way{Addr: testAddr, Level: 0}, []byte("k"))
		answer := make([]byte, 64<<10)
		n, err := new(Executor).Call(verbs.Peer{}, &bytesNear{b: node}, request, answer[:answerFixed+512])
		if fits := fence.HeaderBytes+2*fence.RoundUp(int(c.maxKey)) <= 512; (err == nil) != fits || fits && n < answerFixed {
			t.Errorf("longest key %d: %d bytes, %v", c.maxKey, n, err)
		}
	}
}

// byteRequest is a request for an entry of an index of byte keys.
func byteRequest(node, maxKey int, w btree.Way, key []byte) []byte {
	l := fence.Layout{NodeBytes: node, Codec: item.Codec{MaxKey: maxKey}}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	b := requestOf(&l, askEntry, w, key)
	b[atLayout] = 0
	return b
}

// byteLeaf is a memory with one leaf of byte keys at testAddr.
func byteLeaf(t testing.TB, l *fence.Layout, keys ...string) *bytesNear {
	t.Helper()
	return &bytesNear{b: byteLeafAt(testAddr, l, keys...)}
}

// byteLeafAt is a leaf of byte keys, whose values are all the same.
func byteLeafAt(a pool.Addr, l *fence.Layout, keys ...string) []byte {
	p := &slotted.Pairs{Lay: l}
	for _, k := range keys {
		e := l.PutEntry(make([]byte, 64), []byte(k), []byte("v"))
		off := fence.RoundUp(len(p.Image) + fence.Grain)
		p.Image = append(append(p.Image, make([]byte, off-len(p.Image))...), e...)
		p.List = append(p.List, slotted.EntryAt{Off: uint32(off), N: uint16(len(e))})
	}
	b := make([]byte, l.NodeBytes)
	slotted.Build(b, l, a, &fence.Header{Version: 3, Low: []byte("a"), High: []byte("x"), Sibling: a}, p, 0, len(p.List))
	return b
}

// addCalls adds requests, and the memory that they are about.
func addCalls(f *testing.F) {
	f.Helper()
	l := testLayout(f, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 512})
	m := twoLevels(f, l)
	f.Add(requestOf(l, askEntry, btree.Way{Addr: testAddr, Level: 1}, bigEndian(30)), m.b, true)
	f.Add(requestOf(l, askEntry, btree.Way{Addr: testAddr, Level: 1}, bigEndian(130)), m.b, false)
	bl := testLayout(f, index.Options{MaxKeyBytes: 24, MaxValueBytes: 12, NodeBytes: 512})
	f.Add(byteRequest(512, 24, btree.Way{Addr: testAddr, Level: 0}, []byte("key")), byteLeaf(f, bl, "key", "kez").b, false)
	f.Add(byteRequest(512, 24, btree.Way{Addr: testAddr, Level: 0}, []byte("none")), byteLeaf(f, bl, "key").b, true)
	inner := make([]byte, 512)
	(&btree.Draft{Low: nil, High: nil, Rightmost: true, Level: 1, Children: []pool.Addr{testAddr, testAddr + 512}, Separators: [][]byte{[]byte("m")}}).
		Build(inner, bl, testAddr, 5)
	f.Add(byteRequest(512, 24, btree.Way{Addr: testAddr, Level: 1}, []byte("n")), inner, true)
	far := bytes.Clone(inner)
	binary.LittleEndian.PutUint16(far[fence.AtLowLen:], 1<<16-1)
	f.Add(byteRequest(512, 1<<16-1, btree.Way{Addr: testAddr, Level: 1}, []byte("n")), far, false)
	farther := bytes.Clone(far) // than any buffer of a provider
	binary.LittleEndian.PutUint16(farther[fence.AtHighLen:], 1<<16-1)
	f.Add(byteRequest(512, 1<<16-1, btree.Way{Addr: testAddr, Level: 1}, []byte("n")), farther, false)
}

// FuzzExecutor: whatever the request is, and whatever lies in the memory, a call ends, and its
// answer has room. Any client may have written the memory, so units are sealed now and then and
// verify.
func FuzzExecutor(f *testing.F) {
	addCalls(f)
	f.Fuzz(func(t *testing.T, request, memory []byte, seal bool) {
		b := make([]byte, 4096)
		copy(b, memory)
		if seal {
			for end := fence.HeaderBytes; end <= 512; end += 8 { // some of these may verify
				sealFor(request, b, end)
				run(t, request, b)
			}
		}
		run(t, request, b)
	})
}

// sealFor seals what lies at testAddr for the index that a request names.
func sealFor(request, b []byte, end int) {
	var l fence.Layout
	if len(request) >= requestFixed {
		l.Secret = siphash.Key{K0: binary.LittleEndian.Uint64(request[atSecret:]), K1: binary.LittleEndian.Uint64(request[atSecret+8:])}
	}
	l.SetSecret(l.Secret)
	l.Seal(b, end, testAddr, binary.LittleEndian.Uint32(b))
}

func run(t *testing.T, request, memory []byte) {
	t.Helper()
	m, answer := &bytesNear{b: memory}, make([]byte, answerFixed+1024)
	n, err := new(Executor).Call(verbs.Peer{}, m, request, answer)
	if n < 0 || n > len(answer) || m.reads > mostNodes || err == nil && n < answerFixed {
		t.Fatalf("%d bytes after %d READs, %v", n, m.reads, err)
	}
}
