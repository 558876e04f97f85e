package region

import (
	"errors"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// zeroPiece is how much is zeroed at once: lists that change memory wait as long.
const zeroPiece = 64 << 10

// zero makes n bytes of the data region zero, which nobody else changes. After an error part of
// them may be.
func (r *Region) zero(at, n uint64) error {
	if r.Journal == nil {
		clear(r.data.bytes[at : at+n])
		return nil
	}
	for end := at + n; at < end; {
		piece := min(end-at, zeroPiece)
		if err := r.Journal.Begin(nil, verbs.ItemHead); err != nil {
			return err
		}
		r.Journal.Zero(at, int(piece))
		clear(r.data.bytes[at : at+piece])
		r.Journal.Done()
		at += piece
	}
	return nil
}

func (r *Region) ZeroChunk(number uint32) error {
	return r.zero(r.ChunkOffset(number), r.ChunkBytes)
}

// ZeroPlace zeroes what an index has besides chunks. The lock table is not in the journal.
func (r *Region) ZeroPlace(slot int, firstLock, locks uint64) error {
	clear(r.LockTable()[2*firstLock : 2*(firstLock+locks)])
	return errors.Join(
		r.zero(SuperblockOffset(slot), SuperblockBytes),
		r.zero(RepairOffset(firstLock), locks*RepairBytes),
		r.zero(IntentOffset(r.LockBytes, slot), IntentSlots(r.LockBytes)*pool.IntentBytes),
	)
}

// TurnLocks turns all locks of all indexes to REPAIR, and returns how many.
func TurnLocks(locks []byte, l *ledger.Ledger) (turned uint64) {
	for _, i := range l.Indexes() {
		slice := locks[2*i.FirstLock : 2*(i.FirstLock+i.Locks)]
		for n := range slice {
			slice[n] = ledger.NoClient & 0xff
		}
		turned += i.Locks
	}
	return turned
}
