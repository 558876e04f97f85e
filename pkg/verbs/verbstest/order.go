package verbstest

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The litmus tests of G1 and G3. Names are those of the literature: message passing, store
// buffering, load buffering.
var orderTests = []test{
	{"WriteThenWrite", messagePassing},
	{"WriteThenRead", func(f *fixture) { storeBuffering(f, verbs.Write) }},
	{"FetchAddThenRead", func(f *fixture) { storeBuffering(f, verbs.FetchAdd) }},
	{"CompareSwapThenRead", func(f *fixture) { storeBuffering(f, verbs.CompareSwap) }},
	{"WriteThenMaskedCompareSwap", writeThenFailingSwap},
	{"FencedWriteAfterRead", loadBuffering},
	{"WriteThenAtomicThenRead", ownList},
	{"CompletionIsSeen", completionIsSeen},
	{"StartNeedsNoWait", startNeedsNoWait},
}

// messagePassing: one client writes data, then a flag, in one list; who sees the flag sees the
// data.
func messagePassing(f *fixture) {
	const data, flag = 4096, 64
	a, b := f.client(1), f.client(2)
	ordered := f.connect(3).Capabilities().OrderedReads
	block, flagOut := f.buffer(1024), f.buffer(8)
	seen, flagIn := f.buffer(1024), f.buffer(8)
	n := uint64(f.h.Rounds)
	f.together(func() {
		for i := uint64(1); i <= n; i++ {
			fill(block, i)
			fill(flagOut, i)
			if err := verbs.Post(a, []verbs.Request{write(data, block), write(flag, flagOut)}); err != nil {
				f.Error(err)
				return
			}
		}
	}, func() {
		deadline := env.Deadline(f.env, soon)
		for last := uint64(0); last < n && !f.Failed(); f.env.Yield() {
			lists := [][]verbs.Request{{read(flag, flagIn)}, {read(data, seen)}}
			if ordered {
				lists = [][]verbs.Request{append(lists[0], lists[1]...)}
			}
			for _, l := range lists {
				if err := verbs.Post(b, l); err != nil {
					f.Error(err)
					return
				}
			}
			if v := get(flagIn); v != last {
				last, deadline = v, env.Deadline(f.env, soon)
			}
			for j := 0; j < len(seen); j += 8 {
				if v := get(seen[j:]); v < last {
					f.Errorf("the flag says %d and word %d of the data is still %d", last, j/8, v)
					return
				}
			}
			if env.Remaining(f.env, deadline) == 0 {
				f.Errorf("the flag is at %d of %d since %v", last, n, soon)
				return
			}
		}
	})
}

// meet lets two goroutines start each round at the same time: both spin for a moment, so that they
// leave together, and sleep only if the other takes long.
type meet struct {
	f    *fixture
	at   [2]atomic.Int64
	wake [2]env.Event
}

func newMeet(f *fixture) *meet {
	return &meet{f: f, wake: [2]env.Event{f.env.NewEvent(), f.env.NewEvent()}}
}

// round waits for the other side to come to round i, counted from 1; false if it left.
func (m *meet) round(side int, i int64) bool {
	m.at[side].Store(i)
	m.wake[1-side].Set()
	for range 4096 {
		if m.at[1-side].Load() >= i {
			return m.at[1-side].Load() != left
		}
	}
	for m.at[1-side].Load() < i {
		if !m.wake[side].Wait(soon) {
			m.f.Errorf("the other side did not come to round %d within %v", i, soon)
			return false
		}
	}
	return m.at[1-side].Load() != left
}

// left is the round of a side that failed.
const left = 1<<63 - 1

// leave must be deferred. A side that has played all rounds goes without hurting the other.
func (m *meet) leave(side int) {
	if m.f.Failed() {
		m.at[side].Store(left)
	}
	m.wake[1-side].Set()
}

// storeBuffering: two clients each change a word of their own, then read the other's. At least one
// sees the other's change.
func storeBuffering(f *fixture, op verbs.Op) {
	const place = 64 // bytes between words, so that each is new in its round
	words := uint64(locksSize/place) / 2
	region := verbs.RegionLocks
	if op == verbs.Write {
		region = verbs.RegionData // atomics never touch what WRITEs do
	}
	m := newMeet(f)
	saw := [2][]bool{make([]bool, f.h.Rounds), make([]bool, f.h.Rounds)}
	side := func(s int) func() {
		q := f.client(uint16(s + 1))
		out, old, in := f.buffer(8), f.buffer(8), f.buffer(8)
		return func() {
			defer m.leave(s)
			for i := range uint64(f.h.Rounds) {
				turn := i/words + 1 // a word's value after its change in this round
				mine, other := (i%words*2+uint64(s))*place, (i%words*2+uint64(1-s))*place
				change := verbs.Request{Op: op, Region: region, Remote: mine, Local: old, Add: 1, Compare: turn - 1, Swap: turn}
				if op == verbs.Write {
					fill(out, turn)
					change.Local = out
				}
				look := verbs.Request{Op: verbs.Read, Region: region, Remote: other, Local: in}
				if !m.round(s, int64(i)+1) {
					return
				}
				if err := verbs.Post(q, []verbs.Request{change, look}); err != nil {
					f.Error(err)
					return
				}
				saw[s][i] = get(in) >= turn
			}
		}
	}
	f.together(side(0), side(1))
	for i := range saw[0] {
		if !f.Failed() && !saw[0][i] && !saw[1][i] {
			f.Fatalf("round %d: both clients made their change with %v and neither saw the other's", i, op)
		}
	}
}

// writeThenFailingSwap is storeBuffering with a MaskedCompareSwap that does not match in the place
// of the READ: it changes nothing, so a provider may make it a mere load.
func writeThenFailingSwap(f *fixture) {
	const place = 64
	m := newMeet(f)
	if !f.connect(3).Capabilities().MaskedAtomics {
		f.Log("no masked atomics; the plain ones stand for them")
	}
	words := uint64(locksSize/place) / 2
	saw := [2][]bool{make([]bool, f.h.Rounds), make([]bool, f.h.Rounds)}
	side := func(s int) func() {
		c := f.connect(uint16(s + 1))
		q, op := f.qp(c), verbs.CompareSwap
		if c.Capabilities().MaskedAtomics {
			op = verbs.MaskedCompareSwap
		}
		out, old := f.buffer(8), f.buffer(8)
		return func() {
			defer m.leave(s)
			for i := range uint64(f.h.Rounds) {
				turn := i/words + 1
				mine, other := (i%words*2+uint64(s))*place, (i%words*2+uint64(1-s))*place
				fill(out, turn)
				list := []verbs.Request{write(mine, out), {
					Op: op, Remote: other, Local: old, Compare: 1 << 63, Swap: 0, CompareMask: 1 << 63, SwapMask: 0,
				}}
				if !m.round(s, int64(i)+1) {
					return
				}
				if err := verbs.Post(q, list); err != nil {
					f.Error(err)
					return
				}
				saw[s][i] = get(old) >= turn
			}
		}
	}
	f.together(side(0), side(1))
	for i := range saw[0] {
		if !f.Failed() && !saw[0][i] && !saw[1][i] {
			f.Fatalf("round %d: both clients wrote, and neither's atomic saw the other's WRITE", i)
		}
	}
}

// loadBuffering: two clients each read the other's word, then write their own with Fence. Not both
// read what the other wrote.
func loadBuffering(f *fixture) {
	const place = 64
	words := uint64(dataSize/place) / 2
	m := newMeet(f)
	saw := [2][]bool{make([]bool, f.h.Rounds), make([]bool, f.h.Rounds)}
	side := func(s int) func() {
		q := f.client(uint16(s + 1))
		out, in := f.buffer(8), f.buffer(8)
		return func() {
			defer m.leave(s)
			for i := range uint64(f.h.Rounds) {
				turn := i/words + 1
				mine, other := (i%words*2+uint64(s))*place, (i%words*2+uint64(1-s))*place
				fill(out, turn)
				last := write(mine, out)
				last.Fence = true
				if !m.round(s, int64(i)+1) {
					return
				}
				if err := verbs.Post(q, []verbs.Request{read(other, in), last}); err != nil {
					f.Error(err)
					return
				}
				saw[s][i] = get(in) >= turn
			}
		}
	}
	f.together(side(0), side(1))
	for i := range saw[0] {
		if !f.Failed() && saw[0][i] && saw[1][i] {
			f.Fatalf("round %d: both clients read what the other wrote only after its own READ", i)
		}
	}
}

// ownList: within one list each request sees those before it.
func ownList(f *fixture) {
	q := f.client(1)
	out, in, old1, old2, back := f.buffer(256), f.buffer(256), f.buffer(8), f.buffer(8), f.buffer(8)
	for i := uint64(1); i <= 200; i++ {
		fill(out, i)
		f.post(q, write(512, out), fetchAdd(0, old1, 1), fetchAdd(0, old2, 1), read(512, in),
			verbs.Request{Op: verbs.Read, Region: verbs.RegionLocks, Local: back})
		if string(in) != string(out) {
			f.Fatalf("round %d: a READ does not see the WRITE before it", i)
		}
		if get(old1) != 2*i-2 || get(old2) != 2*i-1 || get(back) != 2*i {
			f.Fatalf("round %d: old values %d, %d, then %d", i, get(old1), get(old2), get(back))
		}
	}
}

// completionIsSeen: what one client has completed, another's later READ sees.
func completionIsSeen(f *fixture) {
	a, b := f.client(1), f.client(2)
	out, in := f.buffer(8), f.buffer(8)
	var done atomic.Uint64
	n := uint64(f.h.Rounds)
	f.together(func() {
		defer done.Store(n)
		for i := uint64(1); i <= n; i++ {
			fill(out, i)
			if err := verbs.Post(a, []verbs.Request{write(128, out)}); err != nil {
				f.Error(err)
				return
			}
			done.Store(i)
		}
	}, func() {
		for last := uint64(0); last < n && !f.Failed(); f.env.Yield() {
			last = done.Load()
			if err := verbs.Post(b, []verbs.Request{read(128, in)}); err != nil {
				f.Error(err)
				return
			}
			if v := get(in); v < last {
				f.Errorf("WRITE %d is complete, a later READ found %d", last, v)
				return
			}
		}
	})
}

// startNeedsNoWait: a started list takes effect although its owner does not wait for it yet.
func startNeedsNoWait(f *fixture) {
	c := f.connect(1)
	q, other := f.qp(c), f.client(2)
	old := f.buffer(8)
	list := []verbs.Request{fetchAdd(0, old, 1)}
	for i := uint64(1); i <= 100; i++ {
		if err := q.Start(list); err != nil {
			f.Fatal(err)
		}
		f.eventually(func() bool { return f.word(other, verbs.RegionLocks, 0) == i }, "a started list takes effect")
		if err := q.Wait(); err != nil {
			f.Fatal(err)
		}
	}
}

// eventually polls until ok is true, and ends the test if that takes long.
func (f *fixture) eventually(ok func() bool, what string) {
	f.Helper()
	deadline := env.Deadline(f.env, soon)
	for !ok() {
		if env.Remaining(f.env, deadline) == 0 {
			f.Fatalf("not within %v: %s", soon, what)
		}
		f.env.Yield()
	}
}
