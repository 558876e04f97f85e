package indextest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// full fills the pool: inserts then fail with ErrPoolFull and change nothing, while reads, deletes,
// updates in place and inserts where there is room go on; and inserts go on when there is memory
// again, also that of a server that joins.
func (r *runner) full(t *testing.T) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 8},
		{MaxKeyBytes: 100, MaxValueBytes: 200},
	} {
		t.Run(fmt.Sprintf("uint64=%v", o.Uint64), func(t *testing.T) { r.fullOn(t, o) })
	}
}

func (r *runner) fullOn(t *testing.T, o index.Options) {
	random := seeded(t)
	r.fleet = &fleet{}
	// Where values lie in blocks, changes wait for those that others have given up; and an
	// insertion may need a chunk of the server that joins for its block, and another one for a
	// leaf.
	chunks := 1
	if !o.Uint64 {
		chunks = 2
	}
	c := r.start(t, pooltest.Options{Chunks: chunks, ChunkBytes: 64 << 10, RenewEvery: time.Millisecond})
	x := r.open(t, c.Open(t), o)
	s := session(t, x)
	value := func(k uint64, n int) []byte { return append(number(k), make([]byte, n)...)[:min(n, 8)] }
	there := map[uint64]bool{}
	refused := 0
	for refused < 50 {
		k := random.Uint64()
		err := s.Insert(number(k), value(k, 8))
		switch {
		case err == nil:
			there[k] = true
		case errors.Is(err, index.ErrPoolFull):
			refused++
			if _, err := s.Lookup(number(k), nil); err != index.ErrNotFound {
				t.Fatalf("lookup of a key whose insertion was refused: %v", err)
			}
		default:
			t.Fatal(err)
		}
		if len(there) > 100000 {
			t.Fatal("the pool never gets full")
		}
	}
	found := r.audited(t, c, x)
	if found.Pairs != uint64(len(there)) {
		t.Fatalf("%d pairs, want %d", found.Pairs, len(there))
	}
	// Where no value lies beside its key, an update needs memory before it gives some back.
	apart := found.Pairs == uint64(found.Blocks)
	waits := 0 // changes that wait for memory, some milliseconds each
	for k := range there {
		if v, err := s.Lookup(number(k), nil); err != nil || string(v) != string(value(k, 8)) {
			t.Fatalf("lookup in a full pool: %x, %v", v, err)
		}
		if waits++; waits > r.mostWaits() {
			continue
		}
		if err := s.Update(number(k), value(^k, 8)); err != nil && !(apart && errors.Is(err, index.ErrPoolFull)) {
			t.Fatalf("update in a full pool: %v", err)
		}
	}
	waits = 0
	for k := range there {
		if waits++; waits > r.mostWaits() {
			break
		}
		must(t, s.Delete(number(k)))
		if err := s.Insert(number(k), value(k, 8)); err != nil {
			t.Fatalf("insert after a deletion in a full pool: %v", err)
		}
	}
	r.audited(t, c, x)

	// A design with a leaf for each pair has nodes of many sizes, and what it gives up may be of
	// others than it needs.
	if found.Pairs > uint64(found.Nodes) {
		r.dividedFull(t, s, there, random)
		r.audited(t, c, x)
	}

	// a server joins: there is room again, for the session that was there
	added := c.Join(t)
	before := c.UsedChunks()
	for c.UsedChunks() == before {
		k := random.Uint64()
		if err := s.Insert(number(k), value(k, 8)); err != nil {
			t.Fatalf("insert after server %d joined: %v", added, err)
		}
		there[k] = true
	}
	r.audited(t, c, x)
}

// dividedFull deletes all pairs of one half of a full pool, and inserts in the other half: inserts
// that divide a leaf wait for the memory of leaves that were merged.
func (r *runner) dividedFull(t *testing.T, s index.Session, there map[uint64]bool, random *rand.Rand) {
	const middle = uint64(1) << 63
	gone := 0
	for k := range there {
		if k >= middle {
			must(t, s.Delete(number(k)))
			delete(there, k)
			gone++
		}
	}
	for range gone / 4 {
		k := random.Uint64() % middle
		if err := s.Insert(number(k), number(k)); err != nil {
			t.Fatalf("insert after %d of %d pairs were deleted elsewhere: %v", gone, gone+len(there), err)
		}
		there[k] = true
	}
}

// mostWaits is how many changes of each kind a full pool gets.
func (r *runner) mostWaits() int {
	if r.brief {
		return 50
	}
	return 200
}

// longFull fills the pool with long values of two sizes, and deletes a quarter of them. Then more
// is written than there is room for: writes wait for the memory that others have given up.
func (r *runner) longFull(t *testing.T) {
	random := seeded(t)
	c := r.start(t, pooltest.Options{Servers: 1, Chunks: 8, ChunkBytes: 64 << 10, RenewEvery: time.Millisecond})
	x := r.open(t, c.Open(t), index.Options{Uint64: true, MaxValueBytes: 2000, InlineBytes: 100})
	s := session(t, x)
	value := func(k uint64) []byte { return bytes.Repeat(number(k), []int{40, 240}[k%2]) }
	var there []uint64
	for refused := 0; refused < 20; {
		k := random.Uint64()
		switch err := s.Insert(number(k), value(k)); {
		case err == nil:
			there = append(there, k)
		case errors.Is(err, index.ErrPoolFull):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if found := check(t, x); found.Pairs != uint64(len(there)) || found.Blocks == 0 {
		t.Fatalf("%+v, want %d pairs", found, len(there))
	}
	for i, k := range there {
		if i%4 == 0 {
			must(t, s.Delete(number(k)))
		}
	}
	for range 3 {
		for i, k := range there {
			switch i % 4 {
			case 1: // to what it is told, in a block of its own; once more after each wait
				if err := s.Modify(number(k), func(old []byte, _ bool) ([]byte, index.Action) { return old, index.Put }); err != nil {
					t.Fatalf("modification of pair %d of %d: %v", i, len(there), err)
				}
			case 2, 3:
				if err := s.Update(number(k), value(k)); err != nil {
					t.Fatalf("update of pair %d of %d: %v", i, len(there), err)
				}
			}
		}
	}
	for i, k := range there {
		if i%8 == 0 {
			if err := s.Insert(number(k), value(k)); err != nil {
				t.Fatalf("insert of pair %d of %d: %v", i, len(there), err)
			}
		}
		if v, err := s.Lookup(number(k), nil); (err != nil || !bytes.Equal(v, value(k))) && i%8 != 4 {
			t.Fatalf("lookup of pair %d of %d: %d bytes, %v", i, len(there), len(v), err)
		}
	}
	check(t, x)
}

// format opens an index again, and refuses another format version, other options and another
// design.
func (r *runner) format(t *testing.T) {
	o := index.Options{MaxKeyBytes: 40, MaxValueBytes: 100, NodeBytes: 2048}
	c := r.cluster(t, 8)
	s := session(t, r.open(t, c.Open(t), o))
	for i := range 500 {
		must(t, s.Insert(fmt.Appendf(nil, "key %d", i), number(uint64(i))))
	}
	again := o
	again.NodeBytes = 0 // as it was made
	s = session(t, r.open(t, c.Open(t), again))
	for i := range 500 {
		if v, err := s.Lookup(fmt.Appendf(nil, "key %d", i), nil); err != nil || string(v) != string(number(uint64(i))) {
			t.Fatalf("lookup in an index that was opened again: %x, %v", v, err)
		}
	}
	for what, wrong := range map[string]index.Options{
		"uint64 keys":   {Uint64: true, MaxValueBytes: 100, NodeBytes: 2048},
		"key length":    {MaxKeyBytes: 41, MaxValueBytes: 100, NodeBytes: 2048},
		"value length":  {MaxKeyBytes: 40, MaxValueBytes: 99, NodeBytes: 2048},
		"size of nodes": {MaxKeyBytes: 40, MaxValueBytes: 100, NodeBytes: 4096},
	} {
		if _, err := r.Design.Open(c.Open(t), wrong); !errors.Is(err, index.ErrFormat) {
			t.Errorf("open with another %s: %v, want ErrFormat", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}

	superblock := c.Memory(c.Options.FirstID, 0)[4096:]
	superblock[8]++
	_, err := r.Design.Open(c.Open(t), o)
	wantError(t, "open an index of another format version", err, index.ErrFormat)
	superblock[8]--

	c = r.cluster(t, 8)
	p := c.Open(t)
	ps, err := p.NewSession(64 << 10)
	must(t, err)
	a, err := p.Allocate(1024, pool.Nil)
	must(t, err)
	_, err = ps.CreateSuperblock("another", []byte("{}"), a)
	must(t, err)
	must(t, ps.Close())
	_, err = r.Design.Open(p, o)
	wantError(t, "open an index of another design", err, index.ErrFormat)
}

// refusals are of keys and values that do not fit, and of options that cannot be.
func (r *runner) refusals(t *testing.T) {
	c := r.cluster(t, 8)
	s := session(t, r.open(t, c.Open(t), index.Options{MaxKeyBytes: 10, MaxValueBytes: 20}))
	long, fits := make([]byte, 11), make([]byte, 10)
	visit := func(_, _ []byte) bool { return true }
	_, err := s.Lookup(long, nil)
	wantError(t, "lookup", err, index.ErrKeyTooLong)
	wantError(t, "insert", s.Insert(long, nil), index.ErrKeyTooLong)
	wantError(t, "delete", s.Delete(long), index.ErrKeyTooLong)
	wantError(t, "scan", s.Scan(long, 1, false, visit), index.ErrKeyTooLong)
	wantError(t, "upsert", s.Upsert(fits, make([]byte, 21)), index.ErrValueTooLong)
	wantError(t, "longest pair", s.Upsert(fits, make([]byte, 20)), nil)
	wantError(t, "empty pair", s.Upsert(nil, nil), nil)
	v, err := s.Lookup(nil, []byte("x"))
	if err != nil || string(v) != "x" {
		t.Errorf("lookup of the empty key: %q, %v", v, err)
	}

	c = r.cluster(t, 8)
	p := c.Open(t)
	x := r.open(t, p, index.Options{Uint64: true})
	u := session(t, x)
	wantError(t, "uint64 key of 7 bytes", u.Insert(make([]byte, 7), nil), index.ErrKeyTooLong)
	wantError(t, "uint64 key of 9 bytes", u.Scan(make([]byte, 9), 1, true, visit), index.ErrKeyTooLong)
	wantError(t, "value of an index without values", u.Insert(number(1), []byte{0}), index.ErrValueTooLong)
	for _, o := range []index.Options{
		{Uint64: true, MaxKeyBytes: 9},
		{MaxKeyBytes: 0, MaxValueBytes: 8},
		{MaxKeyBytes: 8, MaxValueBytes: -1},
		{MaxKeyBytes: 8, MaxValueBytes: 1 << 20},
		{MaxKeyBytes: 512, MaxValueBytes: 2048, NodeBytes: 1024},
		{MaxKeyBytes: 8, MaxValueBytes: 8, NodeBytes: 1 << 20},
		{MaxKeyBytes: 8, MaxValueBytes: 8, Neighbourhood: 17},
	} {
		if _, err := r.Design.Open(p, o); err == nil {
			t.Errorf("options %+v are accepted", o)
		} else {
			t.Logf("%v", err)
		}
	}
}
