package indextest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// Step is what one step of a fuzz test does.
type Step uint8

// The steps.
const (
	Insert Step = iota
	Update
	Upsert
	Delete
	Modify
	Batch
	Scan
)

// Fuzz says what FuzzModel does with a design.
type Fuzz struct {
	Pool pooltest.Options
	Open func(p *pool.Pool, o index.Options) (index.Index, error)

	// Options are those of the index that the next bytes say, and what undoes what they set beside.
	Options func(next func() int) (o index.Options, undo func())

	// Steps are those that are equally likely. More of one kind fill leaves, or empty them.
	Steps []Step

	// Seeds are how many inputs there are to begin with, and Bytes how long each is. The first byte
	// is its number.
	Seeds, Bytes int

	// MostLeft is how many nodes an index without pairs has at most; 0 = any number.
	MostLeft int
}

// FuzzModel compares two clients, one of which has next to no cache, with a model, on keys that are
// empty, as long as may be, and prefixes of each other, and on values of all lengths.
func FuzzModel(f *testing.F, z Fuzz) {
	r := rand.New(rand.NewPCG(17, 17))
	for i := range z.Seeds {
		in := make([]byte, z.Bytes)
		for i := range in {
			in[i] = byte(r.Uint32())
		}
		in[0] = byte(i)
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := pooltest.New(t, z.Pool)
		n := nasty{t: t, in: in, model: map[string]string{}}
		var undo func()
		n.o, undo = z.Options(n.next)
		defer undo()
		for _, cache := range []int{0, 3000} {
			n.o.CacheBytes = cache
			x, err := z.Open(c.Open(t), n.o)
			must(t, err)
			n.all, n.index = append(n.all, session(t, x)), x
		}
		if pairs := n.next(); pairs%2 == 0 {
			n.load(pairs)
		}
		for len(n.in) > 0 {
			n.step(z.Steps)
		}
		for i := range 3 { // the last time after the first client deleted all
			n.scan(n.all[i%2], nil, 1<<30, i == 1)
			found, err := n.index.(index.Checker).Check()
			if err != nil || found.Pairs != uint64(len(n.model)) {
				t.Fatalf("%+v: %d pairs of %d: %v", n.o, found.Pairs, len(n.model), err)
			}
			_, err = c.Audit(found.Parts())
			must(t, err)
			if i == 1 {
				for k := range n.model {
					n.must("delete", []byte(k), n.all[0].Delete([]byte(k)), nil)
				}
				clear(n.model)
			}
			if i == 2 && z.MostLeft > 0 && found.Nodes > z.MostLeft {
				t.Errorf("%+v: %d nodes and leaves are left of nothing", n.o, found.Nodes)
			}
		}
	})
}

// nasty is an index and what is done to it, as the bytes of a fuzz test say.
type nasty struct {
	t     *testing.T
	o     index.Options
	in    []byte
	all   []index.Session // one at each client
	index index.Index
	model map[string]string
	keys  []string // that were used before
}

// next is the next byte; 0 at the end.
func (n *nasty) next() int {
	if len(n.in) == 0 {
		return 0
	}
	b := n.in[0]
	n.in = n.in[1:]
	return int(b)
}

// key is one that was used before, one near that, a part of it, one with some bytes more, or
// another one: empty, or as long as may be.
func (n *nasty) key() []byte {
	how, at := n.next(), n.next()
	if n.o.Uint64 {
		k := number([]uint64{0, 1<<64 - 256, uint64(how%16) << 56, uint64(how) << 4}[how%4] + uint64(at))
		n.keys = append(n.keys, string(k))
		return k
	}
	var k []byte
	if len(n.keys) > 0 && how%8 != 0 {
		k = []byte(n.keys[at%len(n.keys)])
	}
	switch how % 8 {
	case 0:
		k = bytes.Repeat([]byte{byte(n.next())}, n.next()*n.o.MaxKeyBytes/255)
	case 1: // that one again
	case 2:
		k = k[:n.next()%(len(k)+1)]
	case 3:
		k = append(k, byte(n.next()))
	case 4:
		k = append(k, bytes.Repeat([]byte{byte(n.next())}, 1+n.next()%40)...)
	case 5:
		if len(k) > 0 {
			b := n.next()
			k[b%len(k)] ^= 1 << (b % 8)
		}
	case 6: // many with one beginning
		k = append(k[:min(len(k), 3)], byte(n.next()))
	case 7:
		k = append(k, make([]byte, n.o.MaxKeyBytes)...)
	}
	k = k[:min(len(k), n.o.MaxKeyBytes)]
	n.keys = append(n.keys, string(k))
	return k
}

// value has any length from nothing to the longest that may be.
func (n *nasty) value() []byte {
	size := n.next()
	switch {
	case size%16 == 0:
		size = n.o.MaxValueBytes - size/16
	case size%4 == 0:
		size = size * n.o.MaxValueBytes / 255
	}
	return bytes.Repeat([]byte{byte(n.next())}, max(0, min(size, n.o.MaxValueBytes)))
}

func (n *nasty) must(what string, key []byte, err, want error) {
	n.t.Helper()
	if err != want {
		n.t.Fatalf("%+v: %s of %x: %v, want %v", n.o, what, key, err, want)
	}
}

// load bulk loads pairs.
func (n *nasty) load(pairs int) {
	for range pairs {
		n.model[string(n.key())] = string(n.value())
	}
	err := n.index.BulkLoad(func(yield func(k, v []byte) bool) error {
		for _, k := range slices.Sorted(maps.Keys(n.model)) {
			if !yield([]byte(k), []byte(n.model[k])) {
				break
			}
		}
		return nil
	}, 2)
	n.must("load", nil, err, nil)
}

// step does one operation and compares what it says with the model.
func (n *nasty) step(steps []Step) {
	what := n.next()
	s, key := n.all[what/16%len(n.all)], n.key()
	_, there := n.model[string(key)]
	unlessThere, ifThere := index.ErrNotFound, error(nil)
	if there {
		unlessThere, ifThere = nil, index.ErrExists
	}
	switch steps[what%len(steps)] {
	case Insert:
		v := n.value()
		if n.must("insert", key, s.Insert(key, v), ifThere); !there {
			n.model[string(key)] = string(v)
		}
	case Update:
		v := n.value()
		if n.must("update", key, s.Update(key, v), unlessThere); there {
			n.model[string(key)] = string(v)
		}
	case Upsert:
		v := n.value()
		n.must("upsert", key, s.Upsert(key, v), nil)
		n.model[string(key)] = string(v)
	case Delete:
		n.must("delete", key, s.Delete(key), unlessThere)
		delete(n.model, string(key))
	case Modify:
		n.modify(s, key)
	case Batch:
		keys := [][]byte{key}
		for range n.next() % 70 {
			keys = append(keys, []byte(n.keys[n.next()%len(n.keys)]))
		}
		n.must("batch", key, s.LookupBatch(keys, func(i int, v []byte, err error) {
			if want, there := n.model[string(keys[i])]; there != (err == nil) || there && string(v) != want {
				n.t.Fatalf("%+v: lookup of %x together with others: %q, %v, want %q, %v", n.o, keys[i], v, err, want, there)
			}
		}), nil)
	case Scan:
		n.scan(s, key, 1+n.next(), n.next()%2 == 0)
	}
	for range 2 { // the second one may be speculative
		got, err := n.all[what/64%len(n.all)].Lookup(key, nil)
		if want, there := n.model[string(key)]; there != (err == nil) || there && string(got) != want {
			n.t.Fatalf("%+v: lookup of %x: %q, %v, want %q, %v", n.o, key, got, err, want, there)
		}
	}
}

func (n *nasty) modify(s index.Session, key []byte) {
	n.t.Helper()
	old, there := n.model[string(key)]
	v, action := n.value(), index.Action(n.next()%3)
	n.must("modify", key, s.Modify(key, func(got []byte, found bool) ([]byte, index.Action) {
		if found != there || string(got) != old {
			n.t.Fatalf("%+v: modify of %x, which is %q, there: %v, is told %q, %v", n.o, key, old, there, got, found)
		}
		return v, action
	}), nil)
	switch action {
	case index.Put:
		n.model[string(key)] = string(v)
	case index.Remove:
		delete(n.model, string(key))
	}
}

// scan compares a scan with the model.
func (n *nasty) scan(s index.Session, start []byte, limit int, reverse bool) {
	n.t.Helper()
	var want, got []string
	for _, k := range slices.Sorted(maps.Keys(n.model)) {
		if c := bytes.Compare([]byte(k), start); !reverse && c >= 0 || reverse && (c < 0 || len(start) == 0) {
			want = append(want, k)
		}
	}
	if reverse {
		slices.Reverse(want)
	}
	want = want[:min(limit, len(want))]
	n.must("scan", start, s.Scan(start, limit, reverse, func(k, v []byte) bool {
		if n.model[string(k)] != string(v) {
			n.t.Fatalf("%+v: a scan has %x with %q, want %q", n.o, k, v, n.model[string(k)])
		}
		got = append(got, string(k))
		return true
	}), nil)
	if !slices.Equal(got, want) {
		n.t.Fatalf("%+v: a scan from %x, at most %d, reverse: %v, has %d keys, want %d: %x, want %x", n.o, start, limit, reverse, len(got), len(want), got, want)
	}
}
