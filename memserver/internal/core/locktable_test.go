package core

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// slowAtomics is a verbs.LocalAtomics over memory that the mapping does not show, as a NIC's own.
type slowAtomics struct {
	words []uint64
	calls int
	err   error
}

func (s *slowAtomics) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (uint64, error) {
	s.calls++
	if s.err != nil || region != verbs.RegionLocks {
		return 0, fmt.Errorf("region %d: %w", region, s.err)
	}
	old := s.words[remote/8]
	if old == compare {
		s.words[remote/8] = swap
	}
	return old, nil
}

// reader is slowAtomics that can be read in blocks.
type reader struct{ *slowAtomics }

func (r reader) ReadLocal(region verbs.RegionID, remote uint64, dst []uint64) error {
	r.calls++
	copy(dst, r.words[remote/8:][:len(dst)])
	return r.err
}

// tables are lock tables of n words, by the processor and by a provider, with how to look at a
// word.
func tables(n int) map[string]struct {
	*LockTable
	word func(i int) *uint64
} {
	type table = struct {
		*LockTable
		word func(i int) *uint64
	}
	cpu := &LockTable{bytes: make([]byte, 8*n)}
	nic := &slowAtomics{words: make([]uint64, n)}
	blocks := &slowAtomics{words: make([]uint64, n)}
	return map[string]table{
		"provider that reads": {&LockTable{bytes: make([]byte, 8*n), atomics: reader{blocks}}, func(i int) *uint64 { return &blocks.words[i] }},
		"processor":           {cpu, func(i int) *uint64 { return cpu.word(uint64(8 * i)) }},
		"provider":            {&LockTable{bytes: make([]byte, 8*n), atomics: nic}, func(i int) *uint64 { return &nic.words[i] }},
	}
}

func TestToRepair(t *testing.T) {
	const r = pool.Repair
	for name, table := range tables(4) {
		for i := range 4 {
			*table.word(i) = locks(7, 8, 0, 65534)
		}
		*table.word(2) = locks(r, 7, 7, 7)
		n, err := table.toRepair(4, 8, []uint16{7, 65534, 9})
		if n != 5 || err != nil {
			t.Errorf("%s: %d locks, %v", name, n, err)
		}
		for i, want := range []uint64{locks(7, 8, 0, 65534), locks(r, 8, 0, r), locks(r, r, r, r), locks(7, 8, 0, 65534)} {
			if got := *table.word(i); got != want {
				t.Errorf("%s: word %d is %#x, want %#x", name, i, got, want)
			}
		}
		if n, err := table.toRepair(4, 8, []uint16{7, 65534, 9}); n != 0 || err != nil {
			t.Errorf("%s: again %d locks, %v", name, n, err)
		}
	}
	broken := errors.New("broken")
	if _, err := (&LockTable{atomics: &slowAtomics{err: broken}}).toRepair(0, 4, []uint16{1}); !errors.Is(err, broken) {
		t.Errorf("atomics that fail: %v", err)
	}
}

// TestToRepairAmongOthers: while locks of some clients are turned, others take and release locks of
// the same words.
func TestToRepairAmongOthers(t *testing.T) {
	const rounds = 300
	table := LockTable{bytes: make([]byte, 64)}
	var stop atomic.Bool
	var group sync.WaitGroup
	for i := range 8 {
		word := table.word(uint64(8 * i))
		atomic.StoreUint64(word, locks(0, 1000, 0, 0))
		group.Go(func() {
			for !stop.Load() { // lock 1 of the word becomes 1001 and 1000 again
				atomic.AddUint64(word, 1<<16)
				atomic.AddUint64(word, ^uint64(1<<16-1))
			}
		})
	}
	for round := range rounds {
		for i := range 8 {
			for { // client 5 takes lock 0
				word := table.word(uint64(8 * i))
				old := atomic.LoadUint64(word)
				if atomic.CompareAndSwapUint64(word, old, old&^0xFFFF|5) {
					break
				}
			}
		}
		if n, err := table.toRepair(0, 32, []uint16{5}); n != 8 || err != nil {
			t.Fatalf("round %d: %d locks were turned, %v", round, n, err)
		}
		for i := range 8 {
			if got := uint16(atomic.LoadUint64(table.word(uint64(8 * i)))); got != pool.Repair {
				t.Fatalf("round %d: lock %d is %d", round, 4*i, got)
			}
		}
	}
	stop.Store(true)
	group.Wait()
	for i := range 8 {
		if got := *table.word(uint64(8 * i)); got != locks(pool.Repair, 1000, 0, 0) {
			t.Errorf("word %d is %#x: a change of somebody else was lost", i, got)
		}
	}
}

// TestToRepairReadsInBlocks: a table of many words that nobody holds a lock in costs few requests.
func TestToRepairReadsInBlocks(t *testing.T) {
	const n = 2000
	nic := &slowAtomics{words: make([]uint64, n)}
	table := LockTable{bytes: make([]byte, 8*n), atomics: reader{nic}}
	for _, i := range []int{0, 511, 512, n - 1} {
		nic.words[i] = locks(0, 9, 0, 0)
	}
	if turned, err := table.toRepair(0, 4*n, []uint16{9}); turned != 4 || err != nil {
		t.Errorf("%d locks were turned, %v", turned, err)
	}
	if nic.calls != 4+4 {
		t.Errorf("%d requests for 4 blocks and 4 swaps", nic.calls)
	}
	for i, w := range nic.words {
		if w != 0 && w != locks(0, pool.Repair, 0, 0) {
			t.Errorf("word %d is %#x", i, w)
		}
	}
}

// TestZeroLocks: the locks of a slice are freed where they lie, and no others.
func TestZeroLocks(t *testing.T) {
	for name, table := range tables(2048) {
		for i := range 2048 {
			*table.word(i) = uint64(i%5) + 1 // low numbers, too: client 1 has the lowest lock
		}
		if err := table.Zero(4*3, 4*1500); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range 2048 {
			if got, want := *table.word(i), uint64(i%5)+1; i >= 3 && i < 1503 && got != 0 || (i < 3 || i >= 1503) && got != want {
				t.Fatalf("%s: word %d is %d", name, i, got)
			}
		}
	}
	broken := &LockTable{bytes: make([]byte, 64), atomics: &slowAtomics{words: make([]uint64, 8), err: errors.New("no")}}
	if err := broken.Zero(0, 4); err == nil {
		t.Error("locks that cannot be reached were freed")
	}
}
