package memserver

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestStress lets many indexes come and go at once. Nobody is ever given a chunk that is not zero
// or that somebody else has, and in the end the accounts are right.
func TestStress(t *testing.T) {
	const indexes, rounds = 8, 6
	c := dirConfig(t.TempDir())
	s, _ := start(t, c)
	m := admin(t, s.Addresses().Control, nil)
	zero := make([]byte, 1<<20)
	var owners [32]sync.Mutex // by chunk: locked while an index has it
	var group sync.WaitGroup
	for i := range indexes {
		group.Go(func() {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			index := fmt.Sprint("index-", i)
			cl := client(t, s.Addresses().Control, index, "tcp", nil)
			for round := range rounds {
				if _, err := cl.Admit(1, 0, limit); err != nil {
					t.Errorf("seed %d: admit %s in round %d: %v", seed, index, round, err)
					return
				}
				id, err := cl.Register(limit)
				if err != nil || id != 1 {
					t.Errorf("register: %d, %v", id, err)
				}
				mine := uint64(0)
				for range random.IntN(8) {
					offset, err := cl.AllocateChunk(7, id, 1024, false, limit)
					if err != nil {
						t.Errorf("seed %d: allocate: %v", seed, err)
						return
					}
					content := s.region.Bytes()[offset : offset+1<<20]
					if !owners[offset>>20].TryLock() || !bytes.Equal(content, zero) {
						t.Errorf("seed %d: chunk %#x is somebody's", seed, offset)
						return
					}
					content[random.IntN(len(content))] = 1
					mine = offset
					if _, err := cl.AllocateChunk(7, id, 1024, false, limit); !errors.Is(err, pool.ErrPoolFull) {
						t.Errorf("seed %d: beyond the quota: %v", seed, err)
					}
					if random.IntN(4) == 0 {
						break // the eviction takes it
					}
					owners[offset>>20].Unlock()
					mine = 0
					if err := cl.FreeChunk(7, id, offset, limit); err != nil {
						t.Errorf("seed %d: free: %v", seed, err)
					}
				}
				if mine != 0 {
					owners[mine>>20].Unlock()
				}
				if _, err := m.Evict(t.Context(), &rpcv1.EvictRequest{Index: index}); err != nil {
					t.Errorf("evict: %v", err)
				}
				if _, err := cl.Connect(7, id, limit); !errors.Is(err, verbs.ErrRefused) {
					t.Errorf("connect to an index that is gone: %v", err)
				}
			}
		})
	}
	group.Wait()
	s.control.Accounts.Read(func(l *ledger.Ledger) {
		if err := l.Check(); err != nil {
			t.Error(err)
		}
		if l.Totals().Granted != 0 || l.Totals().Used != 0 {
			t.Errorf("something is left: %+v", l.Totals())
		}
	})
}
