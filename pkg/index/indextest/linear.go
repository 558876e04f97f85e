package indextest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index"
)

// Operations of a history.
type kind uint8

const (
	lookup kind = iota
	insert
	update
	upsert
	remove
)

var kindNames = [...]string{"lookup", "insert", "update", "upsert", "delete"}

type input struct {
	kind  kind
	key   string
	value string
}

type output struct {
	found bool // the key was there
	value string
}

// register is the sequential model of one key.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string]int{}
		for _, o := range history {
			k := o.Input.(input).key
			i, ok := byKey[k]
			if !ok {
				i = len(parts)
				byKey[k] = i
				parts = append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init: func() any { return output{} },
	Step: func(state, in, out any) (bool, any) {
		now, i, o := state.(output), in.(input), out.(output)
		if o.found != now.found && i.kind != upsert {
			return false, state
		}
		switch i.kind {
		case lookup:
			return o.value == now.value, state
		case insert:
			if now.found {
				return true, state
			}
		case update:
			if !now.found {
				return true, state
			}
		case remove:
			return true, output{}
		}
		return true, output{true, i.value}
	},
	DescribeOperation: func(in, out any) string {
		i, o := in.(input), out.(output)
		return fmt.Sprintf("%s(%x, %q) -> %v %q", kindNames[i.kind], i.key, i.value, o.found, o.value)
	},
}

// linearizable runs clients of several pools on few keys and checks the history of each.
func (r *runner) linearizable(t *testing.T) {
	for _, o := range []index.Options{
		{Uint64: true, MaxValueBytes: 40},
		{MaxKeyBytes: 200, MaxValueBytes: 100},
	} {
		for _, spread := range []int{8, 400} { // hot keys; more keys, so that leaves split
			t.Run(fmt.Sprintf("uint64=%v/keys=%d", o.Uint64, spread), func(t *testing.T) {
				r.linearizableOn(t, o, spread)
			})
		}
	}
}

func (r *runner) linearizableOn(t *testing.T, o index.Options, spread int) {
	random := seeded(t)
	c := r.cluster(t, 32)
	const pools, sessions = 3, 2
	var indexes []index.Index
	for range pools {
		indexes = append(indexes, r.open(t, c.Open(t), o))
	}
	h := history{clock: time.Now()}
	var wg sync.WaitGroup
	for i := range pools * sessions {
		s := session(t, indexes[i%pools])
		seed := random.Uint64()
		wg.Go(func() { h.run(t, s, i, rand.New(rand.NewPCG(seed, 2)), o, spread, scale(1500)) })
	}
	wg.Wait()
	h.check(t)
	check(t, indexes[0])
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
	for range n {
		k := r.IntN(spread)
		in := input{kind: kind(r.IntN(5)), key: string(number(uint64(k)))}
		if !o.Uint64 {
			in.key = fmt.Sprintf("%0*d", 8+k%100, k)
		}
		if in.kind != lookup && in.kind != remove {
			in.value = fmt.Sprint(h.next.Add(1))
			in.value += fmt.Sprintf("%*s", r.IntN(o.MaxValueBytes-len(in.value)), "") // lengths differ
		}
		call := time.Since(h.clock).Nanoseconds()
		out, err := perform(s, in)
		ops = append(ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: time.Since(h.clock).Nanoseconds()})
		if err != nil {
			t.Errorf("%s %x: %v", kindNames[in.kind], in.key, err)
			return
		}
	}
}

func perform(s index.Session, in input) (out output, err error) {
	key, value := []byte(in.key), []byte(in.value)
	switch in.kind {
	case lookup:
		var v []byte
		v, err = s.Lookup(key, nil)
		out = output{err == nil, string(v)}
	case insert:
		err = s.Insert(key, value)
		out.found = errors.Is(err, index.ErrExists)
	case update:
		err = s.Update(key, value)
		out.found = err == nil
	case upsert:
		err = s.Upsert(key, value)
	case remove:
		err = s.Delete(key)
		out.found = err == nil
	}
	if errors.Is(err, index.ErrNotFound) || errors.Is(err, index.ErrExists) {
		err = nil
	}
	return out, err
}

func (h *history) check(t *testing.T) {
	t.Helper()
	if t.Failed() {
		return
	}
	result, info := porcupine.CheckOperationsVerbose(register, h.ops, time.Minute)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("history of %d operations: %v", len(h.ops), result)
	if f, err := os.CreateTemp("", "history-*.html"); err == nil {
		if porcupine.Visualize(register, info, f) == nil {
			t.Logf("drawn in %s", f.Name())
		}
		f.Close()
	}
}
