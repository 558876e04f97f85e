package indexsim

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/audit"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// account compares the survey of the index with the nodes of all chunks when nobody works any more:
// all that is part of the index is in nobody's hands, and, unless clients died, no node that
// verifies and is not part of it is lost: it was given back before anybody could find it. Nor of
// the clients that swept, whoever died.
func (h *history) account(c *poolsim.Cluster, x index.Checker, found *index.Structure, deaths bool, swept map[uint32]bool) error {
	r, err := audit.Compare(c.Chunks(), found.Parts(), h.pools)
	if err != nil {
		return err
	}
	for _, n := range r.Lost {
		if n.Living && (!deaths || swept[n.Client]) && !n.Dead {
			return fmt.Errorf("node %v of %d bytes of client %d is lost: no part of the index, and in nobody's hands (it verifies: %v)", n.Addr, len(n.Memory), n.Client, x.Verifies(n.Addr, n.Memory))
		}
	}
	return nil
}
