package smart_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestWeakerVariants: without path compression there is a node for each byte that keys share, and
// without node types each node has 256 slots. Clients with all techniques go on with what others
// made. What a variant posts is in costsWith.
func TestWeakerVariants(t *testing.T) {
	const pairs, direct = 40, 2088
	key := func(i int) []byte { return []byte(fmt.Sprintf("%s %d of these", strings.Repeat("shared ", 4), i)) }
	build := func(off ...string) index.Structure {
		t.Helper()
		without := map[string]bool{}
		for _, name := range off {
			without[name] = false
		}
		all, x := clients(t, 2, index.Options{MaxKeyBytes: 60, MaxValueBytes: 8, Switches: without})
		for i := range pairs {
			if err := all[i%2].Insert(key(i), []byte("value")); err != nil {
				t.Fatal(err)
			}
		}
		made := check(t, x)
		for i := range pairs / 2 {
			if err := all[i%2].Delete(key(i)); err != nil {
				t.Fatal(err)
			}
		}
		if found := check(t, x); found.Pairs != pairs/2 {
			t.Fatalf("without %v: %d pairs, want %d", off, found.Pairs, pairs/2)
		}
		return made
	}
	all, chains, large, both := build(), build("pathCompression"), build("nodeTypes"), build("pathCompression", "nodeTypes")
	for _, s := range []index.Structure{all, chains, large, both} {
		t.Logf("%d levels, %d nodes and leaves of %d bytes", s.Levels, s.Nodes, s.NodeBytes)
	}
	if shared := len(key(0)) - len("0 of these"); chains.Levels < shared || all.Levels > shared/4 {
		t.Errorf("keys that share %d bytes have %d levels without path compression, %d with it", shared, chains.Levels, all.Levels)
	}
	if large.Levels != all.Levels || int(large.NodeBytes) < (large.Nodes-pairs)*direct {
		t.Errorf("without node types %d nodes and leaves take %d bytes, on %d levels; with them there are %d", large.Nodes, large.NodeBytes, large.Levels, all.Levels)
	}
	if int(both.NodeBytes) < (both.Nodes-pairs)*direct || both.Levels != chains.Levels {
		t.Errorf("without both there are %d levels, and %d bytes in %d nodes and leaves", both.Levels, both.NodeBytes, both.Nodes)
	}
}
