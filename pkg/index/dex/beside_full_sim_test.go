package dex_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestFullPoolBesideRead inserts keys into leaves that have neither a frame nor room, in a pool
// without memory for another leaf. The records are in the log by then. A client that replays it
// finds none of these keys, and all others.
func TestFullPoolBesideRead(t *testing.T) {
	o := poolsim.Options{Servers: 1, Chunks: 12, ChunkBytes: 64 << 10, Locks: 64, Lease: time.Second}
	inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error {
		open := func() (index.Partitioned, error) {
			cl, err := c.Open(p)
			if err != nil {
				return nil, err
			}
			i, err := dex.Open(cl, index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 256, CacheBytes: 16 << 10,
				Switches: map[string]bool{"offloading": false, "entries": false}})
			if err != nil {
				return nil, err
			}
			return i.(index.Partitioned), nil
		}
		x, err := open()
		if err != nil {
			return err
		}
		next, err := open() // while there is memory for its log
		if err != nil {
			return err
		}
		if err := x.Take(pool.Holding{Epoch: 1}); err != nil {
			return err
		}
		s, err := x.Session()
		if err != nil {
			return err
		}
		keys := uint64(0)
		for ; err == nil; keys++ {
			err = s.Insert(simKey(keys), []byte("as long as values can be"))
		}
		keys--
		if !errors.Is(err, index.ErrPoolFull) {
			return err
		}
		there, failed := map[string]bool{}, 0
		for i := range 20 * keys {
			key := append(simKey(i * 101 % keys)[:6:6], 1, byte(i/keys))
			_, _, before := dex.Beside(x)
			err := s.Insert(key, []byte("as long as values can be"))
			if err != nil && !errors.Is(err, index.ErrPoolFull) {
				return err
			}
			there[string(key)] = err == nil
			if _, _, after := dex.Beside(x); err != nil && after > before {
				if failed++; failed == 100 {
					break
				}
			}
		}
		if failed < 100 {
			return fmt.Errorf("%d insertions found no memory after their record was appended, %d keys: this tests nothing", failed, keys)
		}
		look := func(s index.Session) error {
			for key, is := range there { //env:real each key alone
				if v, err := s.Lookup([]byte(key), nil); is != (err == nil) || !is && !errors.Is(err, index.ErrNotFound) {
					return fmt.Errorf("key %x is %q, %v; it was inserted: %v", key, v, err, is)
				}
			}
			return nil
		}
		if err := look(s); err != nil {
			return err
		}
		if err := next.Take(pool.Holding{Epoch: 2, Inherits: []pool.Inherited{{Client: 1, Epoch: 1, Log: x.Log()}}}); err != nil {
			return err
		}
		if s, err = next.Session(); err != nil {
			return err
		}
		return look(s)
	})
}

// TestGivenUpWhileMakingRoom: a client is given up when it is about to divide a leaf for a change:
// the server does not answer to the lock of the leaf. The answer says that the change is not made,
// and a replay makes those before it alone.
func TestGivenUpWhileMakingRoom(t *testing.T) {
	inSimulation(t, poolsim.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, Locks: 64, Lease: time.Second}, func(c *poolsim.Cluster, p *simenv.Process) error {
		armed := false
		d := &hookedDevice{Device: c.Fabric.Device(p), begin: func(list []verbs.Request) error {
			for i := range list {
				if armed && list[i].Op != verbs.Read && list[i].Op != verbs.Write {
					armed = false
					return verbs.ErrTimeout
				}
			}
			return nil
		}}
		o := index.Options{Uint64: true, MaxValueBytes: 24, NodeBytes: 256, CacheBytes: 64 << 10, Switches: map[string]bool{"offloading": false}}
		x, s, err := openAll(c, p, d, o)
		if err != nil {
			return err
		}
		n := uint64(0)
		for armed = true; armed; n++ {
			if err = s.Insert(simKey(n), []byte("as long as values can be")); err != nil && armed {
				return err
			}
		}
		failed := simKey(n - 1)
		if dex.Alive(x) == nil {
			return fmt.Errorf("the client lives: this tests nothing")
		}
		if err == nil || errors.Is(err, index.ErrUnknown) {
			return fmt.Errorf("insertion %d, which has no record, ends with %w", n, err)
		}
		for c.Control(p).Fence(1, []uint32{1}, time.Second) != nil {
			p.Yield()
		}
		pl, err := c.Open(p)
		if err != nil {
			return err
		}
		i, err := dex.Open(pl, o)
		if err != nil {
			return err
		}
		next := i.(index.Partitioned)
		if err := next.Take(pool.Holding{Epoch: 2, Inherits: []pool.Inherited{{Client: 1, Epoch: 1, Log: x.Log()}}}); err != nil {
			return err
		}
		if s, err = next.Session(); err != nil {
			return err
		}
		if _, err := s.Lookup(failed, nil); !errors.Is(err, index.ErrNotFound) {
			return fmt.Errorf("the insertion that was not made: %v", err)
		}
		for k := range n - 1 {
			if _, err := s.Lookup(simKey(k), nil); err != nil {
				return fmt.Errorf("key %d, whose insertion was answered: %w", k, err)
			}
		}
		return nil
	})
}
