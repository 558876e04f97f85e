package memserver

import (
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// onChip is how many locks lie in the NIC's own memory: the first ones of the lock table.
func (c *core) onChip() (locks uint64) {
	for _, p := range c.providers {
		if s, ok := p.server.(verbs.OnChip); ok {
			locks = max(locks, uint64(s.OnChip())/2)
		}
	}
	return locks
}

// lockParts are the parts of the lock table in which a new index gets its slice, in this order. No
// slice has locks in both, so that all locks of an index on a server are alike.
func (c *core) lockParts(host bool) []ledger.Part {
	chip, all := c.onChip(), uint64(len(c.locks.bytes))/2
	switch {
	case chip == 0 || chip >= all && !host:
		return []ledger.Part{{First: 0, End: all}}
	case host:
		return []ledger.Part{{First: chip, End: all}}
	}
	return []ledger.Part{{First: 0, End: chip}, {First: chip, End: all}}
}

// onChipOf is how many locks of an index lie in the NIC's own memory.
func (c *core) onChipOf(i *ledger.Index) uint64 {
	chip := c.onChip()
	return min(i.FirstLock+i.Locks, chip) - min(i.FirstLock, chip)
}
