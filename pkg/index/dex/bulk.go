package dex

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// A bulk load changes keys without a record for each. The log may have older records of the same
// epoch, for instance of keys that were deleted before the load, and a replay must not apply them
// over what was loaded. So a load appends a record for each epoch in which this client owns keys.
// The record says nothing about the load itself, but that the effects of all earlier records are in
// the memory servers.
//
//	the loading session                                  other sessions of this client
//	1  claims the only leaf: holds its frame's lock      need that lock for each change, and for
//	2  writes the leaf back                              each record: every key is in this leaf
//	3  sees, under the leaf's lock in the memory server,
//	   that the leaf is the whole tree, and is empty
//	4  appends the records, and waits until they are
//	   durable
//	5  rewrites the leaf as the root of what was loaded
//	6  releases the leaf, which records its eviction     go on with the new root
//
// At 4 every change that has a record is in the memory servers: no other leaf is left, and this one
// was written back at 2. No session appends a record from 1 to 6 but before its change (beside.go).
// That change is not made: its step 5 finds the eviction, or the frame. It is a refused or an
// unanswered one, before the records of the load or after them. So these are true whether the load
// takes effect or not:
//
//   - A client that dies before 4 is over leaves an empty index, and a replay that deletes missing
//     keys, or makes the last changes before.
//   - One that dies later leaves an index that is empty, or loaded; the replay applies nothing from
//     before. Of several epochs some may have their record and others not, as long as 5 has not
//     begun: either is right for each.
//   - A later change has a later record.
//
// The log is truncated from its beginning, so the record of a load is there as long as any older
// one.

// BeforeLoad implements btree.LeafCache: step 4.
func (x *dex) BeforeLoad(s *btree.Session) error {
	log := x.log.Appender()
	last := uint64(0)
	taken := x.ranges.Load()
	for i := range taken.Len() {
		epoch := taken.Span(i).Epoch
		for {
			lsn, err := log.Append(record.Append(nil, record.Load, epoch, nil, nil))
			if err == nil {
				last = lsn
				break
			}
			if !errors.Is(err, redo.ErrFull) {
				return x.condemn(fmt.Errorf("note a bulk load: %w", err))
			}
			x.cleaner.wake.Set() // there is nothing to write back, so it truncates
			if err := s.Retry(); err != nil {
				return err
			}
		}
	}
	return op.Failure(log.Wait(last, index.DefaultLimit), false)
}
