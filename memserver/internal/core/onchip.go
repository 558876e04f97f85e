package core

import (
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// OnChip is how many locks lie in the NIC's own memory: the first ones of the lock table.
func (c *Core) OnChip() (locks uint64) {
	for _, p := range c.Providers {
		if s, ok := p.Server.(verbs.OnChip); ok {
			locks = max(locks, uint64(s.OnChip())/2)
		}
	}
	return locks
}

// LockParts are the parts of the lock table in which a new index gets its slice, in this order. No
// slice has locks in both, so that all locks of an index on a server are alike.
func (c *Core) LockParts(host bool) []ledger.Part {
	chip, all := c.OnChip(), uint64(len(c.Locks.bytes))/2
	switch {
	case chip == 0 || chip >= all && !host:
		return []ledger.Part{{First: 0, End: all}}
	case host:
		return []ledger.Part{{First: chip, End: all}}
	}
	return []ledger.Part{{First: 0, End: chip}, {First: chip, End: all}}
}

// OnChipOf is how many locks of an index lie in the NIC's own memory.
func (c *Core) OnChipOf(i *ledger.Index) uint64 {
	chip := c.OnChip()
	return min(i.FirstLock+i.Locks, chip) - min(i.FirstLock, chip)
}
