package btree

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// keepsNothing is a LeafCache that keeps nothing.
type keepsNothing struct{}

func (keepsNothing) Claim(*Session, pool.Addr, []byte, []byte, bool) (bool, error) { return true, nil }
func (keepsNothing) Release(pool.Addr)                                             {}
func (keepsNothing) BeforeLoad(*Session) error                                     { return nil }
func (keepsNothing) Bound(*Session, []byte, bool) ([]byte, bool)                   { return nil, true }
func (keepsNothing) Clock() uint64                                                 { return 0 }
func (keepsNothing) Offload(*Session, Way) bool                                    { return false }
func (keepsNothing) Admit(*Session, pool.Addr, []byte, []byte, bool, []byte, uint64) error {
	return nil
}
func (keepsNothing) Copy(*Session, pool.Addr, []byte) (bool, error) { return false, nil }

// placed opens a tree on three servers; with leaves nil all clients share all leaves.
func placed(t *testing.T, leaves LeafCache) (*toyTree, *toySession) {
	t.Helper()
	return placedOn(t, leaves, 3)
}

// placedOn is placed on some number of servers.
func placedOn(t *testing.T, leaves LeafCache, servers int) (*toyTree, *toySession) {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Servers: servers, Chunks: 40, ChunkBytes: 1 << 20})
	x, err := openToy(c.Open(t), leaves)
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.session()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		x.Close()
	})
	return x, s
}

// where counts leaves by server, and those that lie where their parent and its parent lie.
func where(t *testing.T, s *toySession) (leaves, together int, on map[uint16]int) {
	t.Helper()
	on = map[uint16]int{}
	s.Begin()
	defer s.End()
	root, err := s.relearnRoot()
	if err != nil {
		t.Fatal(err)
	}
	var walk func(a pool.Addr, level uint8, above [2]uint16)
	walk = func(a pool.Addr, level uint8, above [2]uint16) {
		if level == 0 {
			leaves++
			on[a.Server()]++
			if above == [2]uint16{a.Server(), a.Server()} {
				together++
			}
			return
		}
		n, err := s.readInner(a, level)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.children {
			walk(c, level-1, [2]uint16{above[1], a.Server()})
		}
	}
	walk(root.addr, root.level, [2]uint16{})
	return leaves, together, on
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// TestSubtreesLieTogether: however a tree came to be, most leaves lie with the two nodes above
// them, and every server has its share.
func TestSubtreesLieTogether(t *testing.T) {
	const pairs = 60_000
	keys := rand.New(rand.NewPCG(1, 2))
	put := func(key func(i int) uint64) func(*toyTree, *toySession) error {
		return func(_ *toyTree, s *toySession) error {
			for i := range pairs {
				if err := s.change(number(key(i)), number(1)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, c := range []struct {
		name     string
		fill     func(*toyTree, *toySession) error
		together float64 // at least this part of all leaves
	}{
		{"a bulk load", func(x *toyTree, _ *toySession) error {
			return x.load(func(yield func(key, value []byte) bool) error {
				for i := range uint64(pairs) {
					if !yield(number(i), number(1)) {
						break
					}
				}
				return nil
			})
		}, 0.85},
		{"ascending keys", put(func(i int) uint64 { return uint64(i) }), 0.7},
		{"keys in no order", put(func(int) uint64 { return keys.Uint64() }), 0.7},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, s := placed(t, keepsNothing{})
			if err := c.fill(x, s); err != nil {
				t.Fatal(err)
			}
			leaves, together, on := where(t, s)
			t.Logf("%d leaves, %d where the two above them lie, on servers %v", leaves, together, on)
			if float64(together) < c.together*float64(leaves) {
				t.Errorf("%d of %d leaves lie with the two nodes above them, want %v of all", together, leaves, c.together)
			}
			for id := range uint16(3) {
				if on[id+1] < leaves/8 {
					t.Errorf("server %d has %d of %d leaves", id+1, on[id+1], leaves)
				}
			}
		})
	}
}

// TestSmallLoadsAreSpread: an index with two nodes of level 2 has leaves everywhere, each with its
// parent.
func TestSmallLoadsAreSpread(t *testing.T) {
	x, s := placed(t, keepsNothing{})
	if err := x.load(func(yield func(key, value []byte) bool) error {
		for i := range uint64(1500) {
			if !yield(number(i), number(1)) {
				break
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	leaves, _, on := where(t, s)
	for id := range uint16(3) {
		if on[id+1] < leaves/4 {
			t.Errorf("server %d has %d of %d leaves", id+1, on[id+1], leaves)
		}
	}
}

// TestSharedNodesTakeTurns: without a leaf cache leaves are dealt out.
func TestSharedNodesTakeTurns(t *testing.T) {
	_, s := placed(t, nil)
	for i := range uint64(3000) {
		if err := s.change(number(i), number(1)); err != nil {
			t.Fatal(err)
		}
	}
	leaves, _, on := where(t, s)
	for id := range uint16(3) {
		if on[id+1] < leaves/3-leaves/20 {
			t.Errorf("server %d has %d of %d leaves", id+1, on[id+1], leaves)
		}
	}
}

// TestLoadedInnerNodesAreSpread: whatever the number of children is, and of servers, the inner
// nodes of a bulk load lie on all of them alike, and so do its leaves.
func TestLoadedInnerNodesAreSpread(t *testing.T) {
	for servers := 2; servers <= 6; servers++ {
		x, s := placedOn(t, nil, servers)
		if err := x.load(func(yield func(key, value []byte) bool) error {
			for i := range uint64(20_000) {
				if !yield(number(i), number(1)) {
					break
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var leaves, inner = map[uint16]int{}, map[uint16]int{}
		s.Begin()
		root, err := s.relearnRoot()
		if err != nil {
			t.Fatal(err)
		}
		var walk func(a pool.Addr, level uint8)
		walk = func(a pool.Addr, level uint8) {
			if level == 0 {
				leaves[a.Server()]++
				return
			}
			if level == 1 {
				inner[a.Server()]++
			}
			n, err := s.readInner(a, level)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range n.children {
				walk(c, level-1)
			}
		}
		walk(root.addr, root.level)
		s.End()
		for _, on := range []map[uint16]int{leaves, inner} {
			least, most := on[1], on[1]
			for id := range uint16(servers) {
				least, most = min(least, on[id+1]), max(most, on[id+1])
			}
			if most > least+1 {
				t.Errorf("%d servers: leaves lie on %v, nodes of level 1 on %v", servers, leaves, inner)
			}
		}
	}
}
