package dex

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// TestUnconnectedLeaves: leaves were divided, and their parents know nothing of the new ones: who
// did it has died, or found no memory. Changes of keys in these connect them.
func TestUnconnectedLeaves(t *testing.T) {
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		key := func(n, m uint64) []byte { return binary.BigEndian.AppendUint64(nil, n<<20+m) }
		const keys = 200
		for n := range uint64(keys) {
			if err := s.Insert(key(n, 0), []byte("value")); err != nil {
				return err
			}
		}
		divided := 0
		for n := uint64(5); n < keys; n += 20 {
			if err := s.Update(key(n, 0), []byte("value")); err != nil {
				return err
			}
			s.together()
			s.beginRound()
			f, a, err := s.foundFrame(key(n, 0))
			if err != nil {
				return err
			}
			var pairs, values [][]byte
			var group []int
			for m := range uint64(30) {
				pairs, values, group = append(pairs, key(n, 1+m)), append(values, []byte("sixteen bytes it")), append(group, int(m))
			}
			parts := 0
			if !f.TryLock() {
				return fmt.Errorf("the frame of key %d is locked", n)
			}
			if !s.lacksRoom(f, pairs, values, group) {
				f.Unlock()
			} else if parts, _, err = s.divideKept(f, a); err != nil {
				return err
			}
			s.endRound()
			if parts == 0 {
				continue
			}
			divided++
			low, _ := s.b.EmptyPart(parts - 1)
			low = bytes.Clone(low)
			for i := range pairs {
				if err := s.Upsert(pairs[i], values[i]); err != nil {
					return err
				}
			}
			for range 200 {
				if err := s.Upsert(low, []byte("again")); err != nil {
					return err
				}
			}
			known := false
			if err := x.Survey(func(k []byte, _ int) error { known = known || bytes.Equal(k, low); return nil }); err != nil {
				return err
			}
			if !known {
				return fmt.Errorf("after many changes in the leaf from key %x on, which was divided from that of key %d, its parent knows nothing of it", low, n)
			}
		}
		if divided == 0 {
			return fmt.Errorf("no leaf was divided: this tests nothing")
		}
		return nil
	})
}
