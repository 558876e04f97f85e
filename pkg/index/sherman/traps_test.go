package sherman_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// One test for each fault that published programs of this design are known for.

func open(t *testing.T, c *pooltest.Cluster, o index.Options) index.Session {
	t.Helper()
	x, err := sherman.Open(c.Open(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func key(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

var small = index.Options{Uint64: true, MaxValueBytes: 16}

// find is where the servers' memory holds b.
func find(t *testing.T, c *pooltest.Cluster, b []byte) []byte {
	t.Helper()
	for i := range c.Options.Servers {
		m := c.Memory(c.Options.FirstID+uint16(i), verbs.RegionData)
		if at := bytes.Index(m, b); at >= 0 {
			return m[at : at+len(b)]
		}
	}
	t.Fatalf("%q is in no server's memory", b)
	return nil
}

// TestTornEntryIsNotNotFound: a lookup that meets a torn entry reads again; it never answers that
// the key is not there. Neither does a lookup of another key, which might be the torn one, nor a
// scan leave it out.
func TestTornEntryIsNotNotFound(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	s := open(t, c, small)
	must(t, s.Insert(key(1), []byte("torn value")))
	must(t, s.Insert(key(2), []byte("whole")))
	entry := find(t, c, []byte("torn value"))
	entry[3] ^= 1
	s.SetLimit(20 * time.Millisecond)
	if v, err := s.Lookup(key(1), nil); !errors.Is(err, index.ErrTimeout) {
		t.Errorf("lookup of a torn entry: %q, %v", v, err)
	}
	if v, err := s.Lookup(key(3), nil); !errors.Is(err, index.ErrTimeout) {
		t.Errorf("lookup of a missing key beside a torn entry: %q, %v", v, err)
	}
	if v, err := s.Lookup(key(2), nil); err != nil || string(v) != "whole" {
		t.Errorf("lookup of a whole entry beside a torn one: %q, %v", v, err)
	}
	for _, reverse := range []bool{false, true} {
		if err := s.Scan(nil, 9, reverse, func(_, _ []byte) bool { return true }); !errors.Is(err, index.ErrTimeout) {
			t.Errorf("scan over a torn entry, reverse %v: %v", reverse, err)
		}
	}
	entry[3] ^= 1
	if v, err := s.Lookup(key(1), nil); err != nil || string(v) != "torn value" {
		t.Errorf("lookup after the entry came to rest: %q, %v", v, err)
	}
}

// TestScanAfterSplits: a scan whose cached parents are old finds every pair of leaves that split
// since, once, in both directions.
func TestScanAfterSplits(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	reader, writer := open(t, c, small), open(t, c, small)
	const n = 4000
	for i := range n / 100 {
		must(t, writer.Insert(key(i*100), nil))
	}
	for step := 50; step > 0; step /= 2 {
		for _, reverse := range []bool{false, true} {
			next, seen := 0, 0
			must(t, reader.Scan(nil, n, reverse, func(k, _ []byte) bool {
				if i := int(binary.BigEndian.Uint64(k)); seen > 0 && (i > next) == reverse {
					t.Errorf("scan visits %d after %d, reverse %v", i, next, reverse)
				} else {
					next = i
				}
				seen++
				return true
			}))
			want := 0
			must(t, writer.Scan(nil, n, false, func(_, _ []byte) bool { want++; return true }))
			if seen != want || seen < n/100 {
				t.Errorf("scan visits %d pairs of %d, reverse %v", seen, want, reverse)
			}
		}
		for i := 0; i < n; i += step {
			must(t, writer.Upsert(key(i), nil))
		}
	}
}

// TestDeleteIsNotZero: a deleted key is not there, whereas a key with a value of zeros, or none,
// is.
func TestDeleteIsNotZero(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{})
	s := open(t, c, small)
	zero := make([]byte, 8)
	must(t, s.Insert(key(0), zero))
	must(t, s.Insert(key(1), nil))
	must(t, s.Insert(key(2), []byte("x")))
	must(t, s.Delete(key(2)))
	if v, err := s.Lookup(key(0), nil); err != nil || !bytes.Equal(v, zero) {
		t.Errorf("value of zeros: %x, %v", v, err)
	}
	if v, err := s.Lookup(key(1), nil); err != nil || len(v) != 0 {
		t.Errorf("empty value: %x, %v", v, err)
	}
	if v, err := s.Lookup(key(2), nil); err != index.ErrNotFound {
		t.Errorf("deleted key: %x, %v", v, err)
	}
	if err := s.Update(key(2), nil); err != index.ErrNotFound {
		t.Errorf("update of a deleted key: %v", err)
	}
	must(t, s.Insert(key(2), nil))
}

// TestLockOfDeadOwner: who waits for the lock of a client that died ends in time, and the error
// names the client.
func TestLockOfDeadOwner(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1})
	s := open(t, c, small)
	locks := c.Memory(c.Options.FirstID, verbs.RegionLocks)
	for i := 0; i < len(locks); i += 2 {
		binary.LittleEndian.PutUint16(locks[i:], 77)
	}
	s.SetLimit(20 * time.Millisecond)
	err := s.Upsert(key(1), nil)
	if !errors.Is(err, index.ErrTimeout) || !strings.Contains(err.Error(), "client 77") {
		t.Errorf("upsert: %v", err)
	}
	clear(locks)
	must(t, s.Upsert(key(1), nil))
}

// TestDyingWriterKeepsOldValue: as long as the slot word of an update is not written the old value
// stands, whichever words of the new entry are; with all of them it is the new value. The one order
// that G1 forbids, the slot word before words of its entry, is answered by neither.
func TestDyingWriterKeepsOldValue(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1})
	s := open(t, c, small)
	must(t, s.Insert(key(1), []byte("old value")))
	memory := c.Memory(c.Options.FirstID, verbs.RegionData)
	before := bytes.Clone(memory)
	must(t, s.Update(key(1), []byte("new value")))
	var words []int // that the update changed; the slots of a leaf come before its entries
	for i := 0; i < len(memory); i += 8 {
		if !bytes.Equal(memory[i:i+8], before[i:i+8]) {
			words = append(words, i)
		}
	}
	// the slot word, and an entry of 17 bytes of which some may have been there before
	if len(words) < 3 || len(words) > 4 {
		t.Fatalf("an update changed %d words", len(words))
	}
	after := bytes.Clone(memory)
	for written := range 1 << len(words) { // a bit for each word; bit 0 is the slot word
		for i, at := range words {
			from := before
			if written>>i&1 != 0 {
				from = after
			}
			copy(memory[at:at+8], from[at:])
		}
		switch {
		case written&1 == 0 || written == 1<<len(words)-1:
			want := "old value"
			if written&1 != 0 {
				want = "new value"
			}
			if v, err := s.Lookup(key(1), nil); err != nil || string(v) != want {
				t.Errorf("words %b written: %q, %v, want %q", written, v, err, want)
			}
		default:
			other := open(t, c, small) // whose limit may end it
			other.SetLimit(5 * time.Millisecond)
			if v, err := other.Lookup(key(1), nil); err == nil || errors.Is(err, index.ErrNotFound) {
				t.Errorf("words %b written, which no writer leaves: %q, %v", written, v, err)
			}
		}
	}
	if at := bytes.Index(memory, []byte("old value")); at < 0 {
		t.Error("the update was written over the old value")
	}
}

// TestUnlinkedLeafIsLinkedLater: a split whose parent could not grow, for want of memory, is
// complete; the leaf that only its sibling knows is served, and another client that has memory
// links it.
func TestUnlinkedLeafIsLinkedLater(t *testing.T) {
	// a table and three nodes
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 3, ChunkBytes: 3072 + 128})
	p := c.Open(t)
	var kept []pool.Addr
	for range 4 { // two of the three chunks are this client's
		a, err := p.Allocate(1024, pool.Nil)
		must(t, err)
		kept = append(kept, a)
	}
	for _, a := range kept {
		p.Free(a, 1024)
	}
	s := open(t, c, small)
	x, err := sherman.Open(p, small)
	must(t, err)
	n := 0
	// the first leaf, its sibling and room for one image are all that s gets
	for ; err == nil; n++ {
		err = s.Insert(key(n), key(n))
	}
	if !errors.Is(err, index.ErrPoolFull) {
		t.Fatal(err)
	}
	n--
	found, err := x.(index.Checker).Check()
	if err != nil || found.Unlinked != 1 || found.Pairs != uint64(n) {
		t.Fatalf("%+v, %v", found, err)
	}
	rich, err := x.Session()
	must(t, err)
	defer rich.Close()
	for range 50 {
		for i := range n {
			v, err := s.Lookup(key(i), nil)
			if err != nil || !bytes.Equal(v, key(i)) {
				t.Fatalf("lookup %d: %x, %v", i, v, err)
			}
			must(t, rich.Upsert(key(i), key(i)))
		}
	}
	if found, err = x.(index.Checker).Check(); err != nil || found.Unlinked != 0 || found.Levels != 2 {
		t.Errorf("%+v, %v", found, err)
	}
}
