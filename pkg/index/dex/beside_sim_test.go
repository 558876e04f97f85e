package dex_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestRecordsBesideReads: a change whose leaf is READ takes the time of one round trip, whatever it
// is, though it waits for its record. In that time the session READs the leaf once, and the log is
// written once. A refused change appends that its record is taken back, and does not wait for that.
func TestRecordsBesideReads(t *testing.T) {
	o := poolsim.Options{Servers: 2, Chunks: 100, ChunkBytes: 64 << 10, Locks: 64, Lease: 100 * time.Millisecond}
	inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error {
		x, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 16 << 10,
			Switches: map[string]bool{"offloading": false, "entries": false}})
		if err != nil {
			return err
		}
		const keys = 600
		for n := range uint64(keys) {
			if err := s.Upsert(simKey(n), []byte("first")); err != nil {
				return err
			}
		}
		// took returns the mean time of an operation that READs one node, and what it posts.
		next := uint64(0)
		took := func(what string, wanted error, do func(key []byte) error) (mean time.Duration, err error) {
			if _, err := x.(index.Checker).Check(); err != nil { // which writes back
				return 0, err
			}
			n, batches := time.Duration(0), 0
			for range keys {
				next = (next + 101) % keys // another leaf
				before, logged, began := s.Counters(), dex.Batches(x), p.Now()
				if err := do(simKey(next)); !errors.Is(err, wanted) {
					return 0, fmt.Errorf("%s: %w", what, err)
				}
				after := s.Counters()
				one := after.Sub(&before)
				if one.Requests[verbs.Read] == 1 && one.RoundTrips == 1 {
					n++
					mean += p.Now() - began
					batches += dex.Batches(x) - logged
				}
			}
			if n < keys/4 {
				return 0, fmt.Errorf("%s: only %d of %d READ a leaf", what, n, keys)
			}
			t.Logf("%s: %v; %d times, %d batches of the log", what, mean/n, n, batches)
			if batches > int(n) {
				return 0, fmt.Errorf("%s: %d batches of the log for %d records", what, batches, n)
			}
			return mean / n, nil
		}
		read, err := took("lookup", nil, func(key []byte) error { _, err := s.Lookup(key, nil); return err })
		if err != nil {
			return err
		}
		for _, change := range []struct {
			what   string
			wanted error
			do     func(key []byte) error
		}{
			{"upsert", nil, func(key []byte) error { return s.Upsert(key, []byte("second")) }},
			{"update", nil, func(key []byte) error { return s.Update(key, []byte("third")) }},
			{"insert of what is there", index.ErrExists, func(key []byte) error { return s.Insert(key, []byte("fourth")) }},
			{"delete of what is not there", index.ErrNotFound, func(key []byte) error { return s.Delete(append(key[:7:7], 1)) }},
			{"update of what is not there", index.ErrNotFound, func(key []byte) error { return s.Update(append(key[:7:7], 1), []byte("fifth")) }},
		} {
			mean, err := took(change.what, change.wanted, change.do)
			if err != nil {
				return err
			}
			if mean > read*5/4 {
				return fmt.Errorf("%s: %v, and a lookup takes %v", change.what, mean, read)
			}
		}
		return s.Close()
	})
}
