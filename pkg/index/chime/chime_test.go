package chime_test

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestMain(m *testing.M) { indextest.Main(m) }

// costs are the ceilings with all techniques. A neighbourhood with its replica has 272 bytes, or
// 288 in two pieces, where it goes past the last slot, as one in nine does; where the parent's copy
// ends, the head comes with it. The lookups of the test are of each key once, so none is a hotspot;
// a few have the fingerprint of one, and READ in vain.
//
// An update on shm, where a WRITE is whole up to a word, is a Rewrite of the slot: image, name and
// change, slot, and zero over the change. On a slow machine the intent slots are given back while
// lookups are counted, and the first updates claim some again, for two round trips each, and a
// WRITE that clears the slot's presence word (TestIdleSlotsAreClaimedAgain): hence the hundredths.
//
// A delete WRITEs the slot, 16 bytes, and behind it the home word, unless that is in the slot.
var costs = indextest.Costs{
	Lookup: indextest.Cost{RoundTrips: 1.01, Requests: counts(1.2, 0, 0), Bytes: 290},
	Miss:   indextest.Cost{RoundTrips: 1.01, Requests: counts(1.2, 0, 0), Bytes: 290},
	Update: indextest.Cost{RoundTrips: 2.01, Requests: counts(1.2, 4.01, 2.01), Bytes: 290 + 24 + 16 + 32 + 32 + 32 + 8},
	Delete: indextest.Cost{RoundTrips: 2.1, Requests: counts(1.3, 2, 2.1), Bytes: 290 + 16 + 24 + 80},
	Shrink: indextest.Cost{RoundTrips: 2.3, Requests: counts(1.5, 2.1, 2.3), Bytes: 290 + 16 + 24 + 700},
	// One in some ten has to hop, or finds a new leaf, of which nothing is known. Splits write two
	// leaves and an image.
	Insert:  indextest.Cost{RoundTrips: 2.3, Requests: counts(1.6, 1.3, 2.2), Bytes: 290 + 16 + between + 500},
	Scan100: indextest.Cost{RoundTrips: 2, Requests: counts(4, 0, 0), Bytes: 4 * leafBytes},

	// Slots have 64 bytes where values lie in blocks.
	LongLookup: indextest.Cost{RoundTrips: 2.1, Requests: counts(2.3, 0, 0), Bytes: 580 + indextest.LongValue},
	LongUpdate: indextest.Cost{RoundTrips: 2.1, Requests: counts(1.3, 6, 2.1), Bytes: 580 + 24 + 16 + 3*64 + 8 + indextest.LongValue + 24 + 24 + 100},
	LongScan20: indextest.Cost{RoundTrips: 4, Requests: counts(24, 0, 0), Bytes: 4*4600 + 20*indextest.LongValue},
}

// between is what an insertion WRITEs on average, from the home word to the slot. One
// WRITE in ten is two, where the neighbourhood goes past the last slot.
const between = 120

// leafBytes is what a leaf of 8/8 pairs has: head, 8 replicas, 64 slots, up to whole units of 64
// bytes.
const leafBytes = (40 + 8*16 + 64*32 + 63) &^ 63

// costsWith are those without some techniques.
func costsWith(switches map[string]bool) indextest.Costs {
	c := costs
	points := []*indextest.Cost{&c.Lookup, &c.Miss, &c.Update, &c.Insert, &c.Delete, &c.Shrink}
	whole := func(op *indextest.Cost) { op.Bytes += leafBytes }
	switch {
	case !switches["hopscotchLeaf"]: // as Sherman: the leaf
		for _, op := range points {
			whole(op)
		}
	case !switches["metadataReplication"]: // the head, one round trip later
		for _, op := range points {
			op.RoundTrips++
			op.Requests[verbs.Read] += 1
			op.Bytes += 40
		}
	case !switches["siblingValidation"]: // the head, in the same list
		for _, op := range points {
			op.Requests[verbs.Read] += 1
			op.Bytes += 40
		}
	}
	if !switches["vacancyBitmap"] { // the leaf, where the neighbourhood is full
		whole(&c.Insert)
	}
	return c
}

func counts(reads, writes, atomics float64) (n [verbs.NumOps]float64) {
	n[verbs.Read], n[verbs.Write], n[verbs.CompareSwap] = reads, writes, atomics
	return n
}

// TestNeighbourhoodOf16 is what of TestConformance depends on the format, with larger
// neighbourhoods.
func TestNeighbourhoodOf16(t *testing.T) {
	d, err := index.Lookup(chime.Name)
	if err != nil {
		t.Fatal(err)
	}
	of16 := d
	of16.Open = func(p *pool.Pool, o index.Options) (index.Index, error) {
		if o.Neighbourhood == 0 {
			o.Neighbourhood = 16
		}
		return d.Open(p, o)
	}
	c := costs
	for _, op := range []*indextest.Cost{&c.Lookup, &c.Miss, &c.Update, &c.Insert, &c.Delete, &c.Shrink} {
		op.Requests[verbs.Read] += 0.15 // one in four goes past the last slot
		op.Bytes += 8 * 32
	}
	c.Insert.Requests[verbs.Write] += 0.55 // to far slots two WRITEs are faster
	for _, op := range []*indextest.Cost{&c.LongLookup, &c.LongUpdate} {
		op.Requests[verbs.Read] += 0.15
		op.Bytes += 8 * 64
	}
	indextest.Run(t, indextest.Suite{Design: of16, Costs: c, Format: true})
}

// TestStoredNeighbourhood: an index has the neighbourhood that it was created with. Who names
// another one is refused, and who names none takes it.
func TestStoredNeighbourhood(t *testing.T) {
	for _, created := range []int{0, 8, 16, 2} {
		c := pooltest.New(t, pooltest.Options{Servers: 1})
		o := index.Options{Uint64: true, MaxValueBytes: 8, Neighbourhood: created}
		x, err := chime.Open(c.Open(t), o)
		fatal(t, err)
		s, err := x.Session()
		fatal(t, err)
		const keys = 500
		for n := range keys {
			fatal(t, s.Insert(hopKey(n), hopKey(n)))
		}
		for _, named := range []int{0, 2, 8, 16} {
			o.Neighbourhood = named
			x, err := chime.Open(c.Open(t), o)
			if same := named == created || named == 0 || named == 8 && created == 0; !same {
				if !errors.Is(err, index.ErrFormat) {
					t.Errorf("created with %d, opened with %d: %v", created, named, err)
				}
				continue
			}
			fatal(t, err)
			s, err := x.Session()
			fatal(t, err)
			for n := range keys {
				if v, err := s.Lookup(hopKey(n), nil); err != nil || string(v) != string(hopKey(n)) {
					t.Fatalf("created with %d, opened with %d: key %d is %x, %v", created, named, n, v, err)
				}
			}
			if found, err := x.(index.Checker).Check(); err != nil || found.Pairs != keys {
				t.Errorf("created with %d, opened with %d: %d pairs, %v", created, named, found.Pairs, err)
			}
			fatal(t, errors.Join(s.Close(), x.Close()))
		}
		fatal(t, errors.Join(s.Close(), x.Close()))
	}
}

func TestConformance(t *testing.T) {
	d, err := index.Lookup(chime.Name)
	if err != nil {
		t.Fatal(err)
	}
	indextest.Run(t, indextest.Suite{Design: d, Costs: costs, CostsWith: costsWith})
}
