package region

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

// NewChunks are the owners of the region's chunks.
func (h *Header) NewChunks() *verbs.Chunks {
	return verbs.NewChunks(ChunksStart(h.ChunkBytes, h.LockBytes), h.ChunkBytes, int(h.Chunks()))
}

// SpansOf are what an index has besides chunks.
func (h *Header) SpansOf(i *ledger.Index) []verbs.Span {
	span := func(region verbs.RegionID, first, bytes uint64) verbs.Span {
		return verbs.Span{Region: region, First: first, End: first + bytes}
	}
	spans := []verbs.Span{
		span(verbs.RegionLocks, 2*i.FirstLock, 2*i.Locks),
		span(verbs.RegionData, SuperblockOffset(i.Slot), SuperblockBytes),
		span(verbs.RegionData, RepairOffset(i.FirstLock), i.Locks*RepairBytes),
		span(verbs.RegionData, IntentOffset(h.LockBytes, i.Slot), IntentSlots(h.LockBytes)*pool.IntentBytes),
	}
	if at := PresenceOffset(h.ChunkBytes, h.LockBytes, i.Slot); at != 0 {
		spans = append(spans, span(verbs.RegionData, at, IntentSlots(h.LockBytes)*pool.PresenceBytes))
	}
	return spans
}
