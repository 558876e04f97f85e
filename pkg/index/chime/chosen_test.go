package chime

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/sum/crctest"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// Users choose keys. These tests have keys that a user chose who knows the program, but not the
// secret of the index. A hash that is linear, as a CRC is, is the
// easiest to find collisions of.

// oneCRC are n keys that differ only in what a CRC-32C does not see, whatever it starts from.
func oneCRC(n int) (keys [][]byte) {
	unseen := crctest.Differences()
	for i := range n {
		k := uint64(0x0123456789ABCDEF)
		for bit, d := range unseen {
			if i>>bit&1 != 0 {
				k ^= d
			}
		}
		keys = append(keys, key64(k))
	}
	return keys
}

// TestMissedHopOfChosenKeys: keys of one CRC have terms of their own, so a READ that meets a hop as
// in TestMissedHop is told from a miss, whatever keys there are.
func TestMissedHopOfChosenKeys(t *testing.T) {
	l := newTestLeaf(t, Span, Neighbourhood)
	byHome := map[int][][]byte{}
	tried := 0
	for _, key := range oneCRC(1 << 12) {
		home := l.home(key)
		if byHome[home] = append(byHome[home], key); len(byHome[home]) != 3 {
			continue
		}
		tried++
		k, x, m := byHome[home][0], byHome[home][1], byHome[home][2]
		one, three := l.next(home, 1), l.next(home, 3)
		l.set(one, k, key64(1))
		l.set(three, x, key64(1))
		early := bytes.Clone(l.b)
		l.set(three, nil, nil)
		l.set(three, k, key64(1)) // it hops
		l.set(one, nil, nil)
		l.set(one, m, key64(1))
		seen := *l
		seen.b = bytes.Clone(l.b)
		copy(seen.slotOf(three), early[l.slotAt(three):])
		if _, _, o := seen.find(k, home, testVersion); o != torn {
			t.Errorf("home %d: a key that was there all the time: outcome %d, want %d", home, o, torn)
		}
		l.set(one, nil, nil)
		l.set(three, nil, nil)
	}
	if tried < Span/2 {
		t.Errorf("%d of %d homes have three of the keys", tried, Span)
	}
}

// TestHomesFollowTheSecret: homes, terms and fingerprints of the same keys are others under another
// secret, so nobody who knows those of one index knows those of another.
func TestHomesFollowTheSecret(t *testing.T) {
	a, b := newTestLeaf(t, Span, Neighbourhood), newTestLeaf(t, Span, Neighbourhood)
	b.lay.SetSecret(siphash.Key{K0: 3, K1: 4})
	var homes, terms, fingerprints int
	const n = 1000
	for i := range uint64(n) {
		key := key64(i)
		if a.home(key) == b.home(key) {
			homes++
		}
		if a.digestTerm(3, 1, testVersion, a.hash(key)) == b.digestTerm(3, 1, testVersion, b.hash(key)) {
			terms++
		}
		var f, g [8]byte
		a.fingerprint(&f, key)
		b.fingerprint(&g, key)
		if f == g {
			fingerprints++
		}
	}
	if homes > 3*n/Span || terms > 1 || fingerprints > 0 {
		t.Errorf("of %d keys %d have one home under two secrets, %d one term, %d one fingerprint", n, homes, terms, fingerprints)
	}
}

// TestChosenKeysTakeNoMoreMemory: each leaf takes a neighbourhood of keys of one home, and nobody
// can choose such keys.
func TestChosenKeysTakeNoMoreMemory(t *testing.T) {
	const n = 6000
	nodes := func(key func(i int) []byte) int {
		c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 16})
		x, err := Open(c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
		if err != nil {
			t.Fatal(err)
		}
		s, err := x.Session()
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := s.Insert(key(i), key64(1)); err != nil {
				t.Fatalf("insert %d: %v", i, err)
			}
		}
		found, err := x.(index.Checker).Check()
		if err != nil {
			t.Fatal(err)
		}
		return found.Nodes
	}
	keys := oneCRC(n)
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	chosen := nodes(func(i int) []byte { return keys[i] })
	others := nodes(func(i int) []byte {
		return binary.BigEndian.AppendUint64(nil, uint64(i)*0x9E3779B97F4A7C15)
	})
	if t.Logf("%d pairs: %d nodes with chosen keys, %d with others", n, chosen, others); 2*chosen > 3*others {
		t.Errorf("%d pairs with chosen keys take %d nodes, others %d", n, chosen, others)
	}
}

// TestSecretIsOfTheIndex: all clients of an index have one secret. Another index has another one.
func TestSecretIsOfTheIndex(t *testing.T) {
	o := index.Options{Uint64: true, MaxValueBytes: 8}
	secret := func(c *pooltest.Cluster) siphash.Key {
		x, err := Open(c.Open(t), o)
		if err != nil {
			t.Fatal(err)
		}
		return x.(*tree).lay.Secret
	}
	c := pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 16})
	a, b := secret(c), secret(c)
	if a != b || a.K0 == 0 || a.K1 == 0 {
		t.Errorf("two clients of one index have the secrets %x and %x", a, b)
	}
	if other := secret(pooltest.New(t, pooltest.Options{Provider: "shm", Chunks: 16})); other == a {
		t.Errorf("two indexes have one secret")
	}
}
