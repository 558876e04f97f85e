package indextest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
)

// linearizable runs clients of several pools on few keys and checks the history of each.
func (r *runner) linearizable(t *testing.T) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 40},
		{MaxKeyBytes: 200, MaxValueBytes: 100},
		{MaxKeyBytes: 200, MaxValueBytes: 600, InlineBytes: 300},
	} {
		for _, spread := range []int{8, 400} { // hot keys; more keys, so that leaves split
			for _, o := range caches(o) {
				if o.CacheBytes != 0 && (spread == 8 || r.brief && !o.Uint64) {
					continue // a leaf has room everywhere
				}
				if r.brief && testing.Short() && o.InlineBytes == 0 {
					continue // who is judged by the race detector needs no other sizes
				}
				t.Run(fmt.Sprintf("uint64=%v/value=%d/keys=%d%s", o.Uint64, o.MaxValueBytes, spread, cacheName(o)), func(t *testing.T) {
					r.linearizableOn(t, o, spread)
				})
			}
		}
	}
}

func (r *runner) linearizableOn(t *testing.T, o index.Options, spread int) {
	random := seeded(t)
	c := r.cluster(t, 32)
	const pools, sessions = 3, 2
	ops := scale(1500)
	switch {
	case r.brief || testing.Short(): // who is judged by the race detector needs no long history
		ops = scale(300)
	case o.CacheBytes != 0 && !o.Uint64 && r.provider != "shm":
		// These keys part at nearly each of their first hundred bytes. A radix tree with next to no
		// copies READs a node for each.
		ops = scale(300)
	}
	var indexes []index.Index
	for range pools {
		indexes = append(indexes, r.open(t, c.Open(t), o))
	}
	h := history{clock: time.Now()}
	var wg sync.WaitGroup
	for i := range pools * sessions {
		s := session(t, indexes[i%pools])
		seed := random.Uint64()
		wg.Go(func() { h.run(t, s, i, rand.New(rand.NewPCG(seed, 2)), o, spread, ops) })
	}
	wg.Wait()
	h.check(t)
	check(t, indexes[0])
	var keys [][]byte
	for k := range spread {
		keys = append(keys, historyKey(o, k))
	}
	evicts(t, o, indexes, keys)
}

// historyKey is key k of a history.
func historyKey(o index.Options, k int) []byte {
	if !o.Uint64 {
		return fmt.Appendf(nil, "%0*d", 8+k%100, k)
	}
	return number(uint64(k))
}

// history is what several clients did.
type history struct {
	clock time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
	next  atomic.Uint64
}

func (h *history) run(t *testing.T, s index.Session, client int, r *rand.Rand, o index.Options, spread, n int) {
	ops := make([]porcupine.Operation, 0, n)
	defer func() {
		h.mu.Lock()
		h.ops = append(h.ops, ops...)
		h.mu.Unlock()
	}()
	deferred := false
	for range n {
		var err error
		switch r.IntN(20) {
		case 0: // without a crash that makes no difference to anybody
			deferred = !deferred
			if s.Defer(deferred); !deferred {
				err = s.Durable(s.Position())
			}
		case 1, 2:
			var batch []porcupine.Operation
			batch, err = h.batch(s, client, r, o, spread)
			ops = append(ops, batch...)
		case 3:
			var keys, values [][]byte
			for range 1 + r.IntN(20) {
				keys = append(keys, []byte(linearKey(o, r.IntN(spread))))
				values = append(values, make([]byte, r.IntN(o.MaxValueBytes+1)))
			}
			err = s.Prepare(keys, values)
		}
		if err != nil {
			t.Error(err)
			return
		}
		k := r.IntN(spread)
		in := register.Input{Verb: register.Verb(r.IntN(int(register.NumVerbs))), Key: linearKey(o, k)}
		if in.Verb.Changes() {
			in.Value = fmt.Sprint(h.next.Add(1))
			// lengths differ
			in.Value += fmt.Sprintf("%*s", r.IntN(o.MaxValueBytes-len(in.Value)), "")
		}
		call := time.Since(h.clock).Nanoseconds()
		out, err := register.Perform(s, in)
		ops = append(ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: time.Since(h.clock).Nanoseconds()})
		if err != nil {
			t.Error(err)
			return
		}
	}
}

func linearKey(o index.Options, k int) string {
	if o.Uint64 {
		return string(number(uint64(k)))
	}
	return fmt.Sprintf("%0*d", 8+k%100, k)
}

// batch looks some keys up together: each is a lookup that began and ended with the batch.
func (h *history) batch(s index.Session, client int, r *rand.Rand, o index.Options, spread int) (ops []porcupine.Operation, err error) {
	var keys [][]byte
	for range 1 + r.IntN(20) {
		keys = append(keys, []byte(linearKey(o, r.IntN(spread))))
	}
	call := time.Since(h.clock).Nanoseconds()
	err = s.LookupBatch(keys, func(i int, value []byte, err error) {
		ops = append(ops, porcupine.Operation{
			ClientId: client, Input: register.Input{Key: string(keys[i])}, Call: call,
			Output: register.Output{Found: err == nil, Value: string(value)},
		})
	})
	for i := range ops {
		ops[i].Return = time.Since(h.clock).Nanoseconds()
	}
	return ops, err
}

func (h *history) check(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	result, guilty := register.Check(h.ops)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("history of %d operations: %v", len(h.ops), result)
	_, info := porcupine.CheckOperationsVerbose(register.Model, guilty, time.Minute)
	if f, err := os.CreateTemp("", "history-*.html"); err == nil {
		if porcupine.Visualize(register.Model, info, f) == nil {
			t.Logf("drawn in %s", f.Name())
		}
		f.Close()
	}
}
