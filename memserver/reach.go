package memserver

import (
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Owners of the parts of the regions (the layout stands in layout.go):
//
//	header page, unused parts          nobody's
//	a superblock slot                  of the index that has it
//	the intent slots of that slot      of the same index
//	repair records and locks           of the index in whose slice of the lock table they are
//	chunks                             of the index that the ledger names; nobody's while they are
//	                                   free, or wait for zeroing
//
// Leases, epochs, maps and holdings are not in the regions: they are asked for on the control port.
//
// The owner of a chunk is that index's superblock slot + 1. It becomes so when the grant is stored
// and before the client hears of it; it becomes nobody when it is stored that the chunk was given
// back, and the chunk is zeroed after verbs.Checked.Settle. What an index has besides chunks, and
// its slot, is taken away after its connections were cut (core.Evict), so a connection's slot never
// changes.

// newChunks are the owners of a region's chunks.
func newChunks(h *header) *verbs.Chunks {
	return verbs.NewChunks(chunksStart(h.chunkBytes, h.lockBytes), h.chunkBytes, int(h.chunks()))
}

// reachOf is what a peer may reach: nothing, if its index is not admitted.
func (c *service) reachOf(chunks *verbs.Chunks, peer verbs.Peer) *verbs.Reach {
	var index ledger.Index
	var err error
	c.Accounts.Read(func(l *ledger.Ledger) { index, err = l.Index(peer.Index) })
	if err != nil {
		return verbs.NewReach(chunks, 0)
	}
	return verbs.NewReach(chunks, uint32(index.Slot)+1, spansOf(&c.region.header, &index)...)
}

// spansOf are what an index has besides chunks.
func spansOf(h *header, i *ledger.Index) []verbs.Span {
	span := func(region verbs.RegionID, first, bytes uint64) verbs.Span {
		return verbs.Span{Region: region, First: first, End: first + bytes}
	}
	spans := []verbs.Span{
		span(verbs.RegionLocks, 2*i.FirstLock, 2*i.Locks),
		span(verbs.RegionData, superblockOffset(i.Slot), superblockBytes),
		span(verbs.RegionData, repairOffset(i.FirstLock), i.Locks*repairBytes),
		span(verbs.RegionData, intentOffset(h.lockBytes, i.Slot), intentSlots(h.lockBytes)*pool.IntentBytes),
	}
	if at := presenceOffset(h.chunkBytes, h.lockBytes, i.Slot); at != 0 {
		spans = append(spans, span(verbs.RegionData, at, intentSlots(h.lockBytes)*pool.PresenceBytes))
	}
	return spans
}
