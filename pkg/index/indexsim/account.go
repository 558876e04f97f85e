package indexsim

import (
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// account looks at every node of every chunk when nobody works any more: a node that is part of the
// index is in nobody's hands, and, unless clients died, one that verifies and is not part of the
// index is in its owner's: it was given back before anybody could find it.
func (h *history) account(c *poolsim.Cluster, x index.Checker, found *index.Structure, deaths bool) error {
	owners := map[uint16]*pool.Pool{}
	for _, p := range h.pools {
		owners[p.Client()] = p
	}
	for _, k := range c.Chunks() {
		owner := owners[k.Client]
		for a, node := range k.Nodes() {
			_, part := slices.BinarySearch(found.Where, a)
			idle := owner != nil && owner.Idle(a, len(node))
			switch {
			case part && idle:
				return fmt.Errorf("node %v is part of the index, and its owner, client %d, would hand it out", a, k.Client)
			case !part && !idle && !deaths && x.Verifies(a, node):
				return fmt.Errorf("node %v of client %d is lost: no part of the index, and in nobody's hands", a, k.Client)
			}
		}
	}
	return nil
}
