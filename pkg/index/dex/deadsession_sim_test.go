package dex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestDeadSession: somebody goes on with a session that died because of a READ. Its changes and its
// preparations fail where they need a memory server. The client lives, and what others changed is
// there.
func TestDeadSession(t *testing.T) {
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		dead, err := x.newSession()
		if err != nil {
			return err
		}
		dead.b.Begin()
		dead.b.PS.Read(pool.NewAddr(99, 0), dead.b.Staging())
		if dead.b.PS.Post() == nil {
			return errors.New("the session lives: this tests nothing")
		}
		dead.b.End()
		key := func(n, m uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20+m) }
		failed := 0
		for n := range uint64(100) {
			for m := range uint64(2) {
				if err := s.Upsert(key(n, m), fmt.Appendf(nil, "%d", n)); err != nil {
					return err
				}
			}
			for m := range uint64(30) {
				if err := dead.Insert(key(n, 100+m), []byte("by the dead one")); err != nil {
					failed++
				}
			}
			keys, values := [][]byte{key(n, 0), key(n, 200), key(n/2, 1)}, make([][]byte, 3)
			for i := range values {
				values[i] = []byte("sixteen bytes it")
			}
			if dead.Prepare(keys, values) != nil {
				failed++
			}
			if err := x.pool.Alive(); err != nil {
				return fmt.Errorf("round %d: a dead session has given its client up: %w", n, err)
			}
		}
		if failed == 0 {
			return errors.New("the dead session needed no memory server: this tests nothing")
		}
		for n := range uint64(100) {
			if got, err := s.Lookup(key(n, 1), nil); err != nil || string(got) != fmt.Sprint(n) {
				return fmt.Errorf("key %d has %q: %w", n, got, err)
			}
		}
		return dead.Close()
	})
}
