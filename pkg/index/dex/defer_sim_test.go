package dex_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestDeferredPositions: one session changes a key, and defers. Whatever another session then does
// that shows it the change, it has to wait for that, too, or has waited.
func TestDeferredPositions(t *testing.T) {
	const keys = 40
	put := func(value []byte, action index.Action) index.Change {
		return func([]byte, bool) ([]byte, index.Action) { return value, action }
	}
	for _, op := range []struct {
		name   string
		absent bool // the key was deleted; else it got a value
		do     func(s index.Session, key []byte) error
	}{
		{"lookup", false, func(s index.Session, key []byte) error { _, err := s.Lookup(key, nil); return err }},
		{"lookup of what was deleted", true, func(s index.Session, key []byte) error { _, err := s.Lookup(key, nil); return err }},
		{"batch", false, func(s index.Session, key []byte) error {
			return s.LookupBatch([][]byte{key}, func(int, []byte, error) {})
		}},
		{"insert", false, func(s index.Session, key []byte) error { return s.Insert(key, nil) }},
		{"insert of a long value", false, func(s index.Session, key []byte) error { return s.Insert(key, make([]byte, 24)) }},
		{"update", true, func(s index.Session, key []byte) error { return s.Update(key, nil) }},
		{"update of a long value", true, func(s index.Session, key []byte) error { return s.Update(key, make([]byte, 24)) }},
		{"delete", true, func(s index.Session, key []byte) error { return s.Delete(key) }},
		{"modify that keeps", false, func(s index.Session, key []byte) error { return s.Modify(key, put(nil, index.Keep)) }},
		{"modify that finds nothing to remove", true, func(s index.Session, key []byte) error { return s.Modify(key, put(nil, index.Remove)) }},
		{"modify", false, func(s index.Session, key []byte) error { return s.Modify(key, put(nil, index.Put)) }},
		{"modify of a long value", false, func(s index.Session, key []byte) error { return s.Modify(key, put(make([]byte, 24), index.Put)) }},
		{"scan", false, func(s index.Session, key []byte) error {
			return s.Scan(key, 1, false, func(_, _ []byte) bool { return true })
		}},
	} {
		for _, defers := range []bool{false, true} {
			for _, long := range []bool{false, true} {
				inSimulation(t, poolsim.Options{Chunks: 40, ChunkBytes: 64 << 10}, func(c *poolsim.Cluster, p *simenv.Process) error {
					changer, s, err := deferring(c, p, keys)
					if err != nil {
						return err
					}
					key, value := simKey(3), make([]byte, 4)
					if long {
						value = make([]byte, 20)
					}
					for range 2 { // the second time from the cache alone, where that may be
						changer.Defer(true)
						s.Defer(defers)
						if err := changeDeferred(changer, key, value, op.absent); err != nil {
							return err
						}
						if err := op.do(s, key); err != nil && err != index.ErrNotFound && err != index.ErrExists {
							return fmt.Errorf("%s: %w", op.name, err)
						}
						waits, open := s.Position(), changer.Position()
						if open > 0 && waits < open {
							return fmt.Errorf("%s (defers: %v, long: %v) waits up to %d, and shows what is durable at %d", op.name, defers, long, waits, open)
						}
						if err := s.Durable(max(waits, open)); err != nil || s.Position()+changer.Position() > 0 {
							return fmt.Errorf("%s: wait for the log: %w", op.name, err)
						}
					}
					return nil
				})
			}
		}
	}
}

// changeDeferred gives key a value, or deletes it, and that is not durable yet. A change for which
// the leaf is compacted is durable at once: then it is made once more.
func changeDeferred(s index.Session, key, value []byte, absent bool) error {
	for range 5 {
		err := s.Upsert(key, value)
		if err == nil && absent {
			err = s.Delete(key)
		}
		if err != nil || s.Position() > 0 {
			return err
		}
	}
	return errors.New("what was deferred is durable")
}

// deferring makes an index with some keys, and two sessions of it that have looked all up.
func deferring(c *poolsim.Cluster, p *simenv.Process, keys uint64) (a, b index.Session, err error) {
	x, a, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 24, InlineBytes: 8, NodeBytes: 256, CacheBytes: 1 << 20})
	if err != nil {
		return nil, nil, err
	}
	if b, err = x.Session(); err != nil {
		return nil, nil, err
	}
	for _, s := range []index.Session{a, b} {
		for n := range keys {
			if err := s.Upsert(simKey(n), make([]byte, n%24)); err != nil {
				return nil, nil, err
			}
			if _, err := s.Lookup(simKey(n), nil); err != nil {
				return nil, nil, err
			}
		}
	}
	return a, b, nil
}

// TestDeferredChangesFindMemory: a session defers, and replaces long values, of more bytes in all
// than are free. What it replaces comes back when the log is durable, so it waits for that.
func TestDeferredChangesFindMemory(t *testing.T) {
	const keys, changes = 20, 400
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 8, ChunkBytes: 32 << 10, RenewEvery: 100 * time.Microsecond}, func(c *poolsim.Cluster, p *simenv.Process) error {
		_, s, err := openAll(c, p, nil, index.Options{Uint64: true, MaxValueBytes: 1000, InlineBytes: 8, NodeBytes: 1024, CacheBytes: 1 << 20})
		if err != nil {
			return err
		}
		s.Defer(true)
		for n := range uint64(changes) {
			value, key := make([]byte, 1000), simKey(n%keys)
			if n%2 == 0 {
				err = s.Upsert(key, value)
			} else {
				err = s.Modify(key, func([]byte, bool) ([]byte, index.Action) { return value, index.Put })
			}
			if err != nil {
				return fmt.Errorf("change %d: %w", n, err)
			}
		}
		return s.Durable(s.Position())
	})
}
