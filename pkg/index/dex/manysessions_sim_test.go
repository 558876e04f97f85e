package dex

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/wal"
)

// TestManySessions: there are more sessions than the ring has room for cancellations. All of them
// have leaves divided.
func TestManySessions(t *testing.T) {
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		key := func(n, m uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20+m) }
		room, each := 0, wal.CancelBytes(x.lay.MaxKey)
		for ; x.log.Reserve(each); room++ {
		}
		for range 3 { // the others' is taken
			x.log.Unreserve(each)
		}
		for n := range uint64(8) {
			one, err := x.newSession()
			if err != nil {
				return err
			}
			defer one.Close()
			for m := range uint64(30) {
				if err := one.Upsert(key(n, m), []byte("sixteen bytes it")); err != nil {
					return fmt.Errorf("session %d: %w", n, err)
				}
			}
		}
		for range room - 3 {
			x.log.Unreserve(each)
		}
		return nil
	})
}
