//env:real each piece waits for a tick

package memserver

import (
	"time"

	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

const (
	scrubEvery = 10 * time.Millisecond // between two pieces: 8 GiB take 22 minutes
	scrubLook  = 16                    // pieces that are looked at for one that is not empty
)

// scrub compares the memory with that of a copy that is in sync, a piece each scrubEvery, as long
// as the server serves: a sum in the stream is of the memory as it is at that position on both
// sides.
func (v *volume) scrub(stop <-chan struct{}) {
	each := time.NewTicker(scrubEvery)
	defer each.Stop()
	next, b := uint64(0), make([]byte, region.PieceBytes)
	for {
		select {
		case <-stop:
			return
		case <-each.C:
		}
		if r := v.member.Report(); r.Role == volumes.Primary && r.View.Backup != (volumes.Proc{}) {
			next = v.scrubFrom(next, b)
		}
	}
}

// scrubFrom records the sum of the first piece at an offset or behind it that is not empty, and
// returns where the next one is looked for. It looks at scrubLook pieces at most, so that a tick
// costs the same in an empty memory. A piece that finds no room in the stream is tried again. b has
// room for a piece.
func (v *volume) scrubFrom(at uint64, b []byte) (next uint64) {
	r, j := v.server.region, v.server.region.Journal
	if at >= r.DataBytes {
		at = 0
	}
	next = r.DataBytes
	looked := 0
	r.SpansFrom(at, func(at, n uint64) bool {
		looked++
		next = at + n
		if r.ReadPiece(at, b[:n]) {
			return looked < scrubLook
		}
		if j.BeginNow(verbs.ItemBytes(0)) != nil {
			next = at
			return false
		}
		r.Read(at, b[:n])
		j.Sum(at, int(n), verbs.Sum(b[:n]))
		j.Done()
		return false
	})
	return next
}
