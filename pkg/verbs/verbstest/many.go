package verbstest

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests with many queue pairs at once.
var manyTests = []test{
	{"PostAll", postAll},
	{"PostAllStopsAtAnError", postAllError},
	{"PostAllWithADeadQueuePair", postAllDead},
	{"Goroutines", goroutines},
	{"LongListsTogether", longLists},
}

// postAll posts on queue pairs of several connections at once.
func postAll(f *fixture) {
	const n = 100
	c := [3]verbs.Conn{f.connect(1), f.connect(2), f.connect(3)}
	qps, lists, ins := make([]verbs.QP, n), make([][]verbs.Request, n), make([][]byte, n)
	outs := make([][]byte, n)
	for i := range n {
		qps[i], outs[i], ins[i] = f.qp(c[i%3]), f.buffer(200), f.buffer(200)
	}
	for round := range uint64(50) {
		for i := range n {
			at := uint64(i * 256)
			fill(outs[i], round<<32|uint64(i))
			lists[i] = []verbs.Request{write(at, outs[i]), read(at, ins[i])}
			if f.rand.IntN(8) == 0 {
				lists[i] = nil
			}
		}
		if err := verbs.PostAll(qps, lists); err != nil {
			f.Fatal(err)
		}
		for i := range n {
			if lists[i] != nil && string(ins[i]) != string(outs[i]) {
				f.Fatalf("round %d: queue pair %d reads something else than it wrote", round, i)
			}
		}
	}
}

// postAllError: lists before a malformed one are posted and waited for, lists after it are not
// posted.
func postAllError(f *fixture) {
	c := f.connect(1)
	var qps []verbs.QP
	var lists [][]verbs.Request
	for i := range 5 {
		qps = append(qps, f.qp(c))
		lists = append(lists, []verbs.Request{fetchAdd(uint64(i)*8, f.buffer(8), 1)})
	}
	lists[3][0].Remote = 1
	if err := verbs.PostAll(qps, lists); !errors.Is(err, verbs.ErrMalformed) {
		f.Fatalf("PostAll: %v, want %v", err, verbs.ErrMalformed)
	}
	probe := f.qp(c)
	for i := range qps {
		want := uint64(1)
		if i >= 3 {
			want = 0
		}
		if v := f.word(probe, verbs.RegionLocks, uint64(i)*8); v != want {
			f.Errorf("list %d took effect %d times, want %d", i, v, want)
		}
		f.post(qps[i], read(0, f.scratch)) // all live, and none has a list under way
	}
}

func postAllDead(f *fixture) {
	c := f.connect(1)
	qps := []verbs.QP{f.qp(c), f.qp(c), f.qp(c)}
	qps[1].Close()
	var lists [][]verbs.Request
	for range qps {
		lists = append(lists, []verbs.Request{read(0, f.buffer(8))})
	}
	if err := verbs.PostAll(qps, lists); !errors.Is(err, verbs.ErrClosed) {
		f.Fatalf("PostAll: %v, want %v", err, verbs.ErrClosed)
	}
	f.post(qps[0], read(0, f.scratch))
	f.post(qps[2], read(0, f.scratch))
}

// goroutines is 64 of them on one connection, each with its own part of the region and a list of
// random requests a round.
func goroutines(f *fixture) {
	const n, part = 64, 4096
	c := f.connect(1)
	var run []func()
	for g := range n {
		q, out, in, old := f.qp(c), f.buffer(part), f.buffer(part), f.buffer(8)
		seed := f.rand.Uint64()
		run = append(run, func() {
			base := uint64(g * part)
			for i := range uint64(f.repeats()) / 10 {
				size := 1 + (seed+i*7919)%part
				for j := range out[:size] {
					out[j] = byte(seed>>32 + i + uint64(j))
				}
				list := []verbs.Request{write(base, out[:size]), fetchAdd(uint64(g)*8, old, 1), read(base, in[:size])}
				if err := verbs.Post(q, list); err != nil {
					f.Error(err)
					return
				}
				if string(in[:size]) != string(out[:size]) || get(old) != i {
					f.Errorf("goroutine %d, round %d: %d bytes differ, or count %d", g, i, size, get(old))
					return
				}
			}
		})
	}
	f.together(run...)
}

// longLists posts at once more than any buffer of a provider holds.
func longLists(f *fixture) {
	c := f.connect(1)
	const n = 6
	var qps []verbs.QP
	var lists [][]verbs.Request
	var ins [][]byte
	out := f.buffer(verbs.MaxTransfer)
	for i := range out {
		out[i] = byte(i * i >> 5)
	}
	for range n {
		in := f.buffer(verbs.MaxTransfer)
		list := []verbs.Request{}
		for range 10 {
			list = append(list, write(0, out), read(0, in))
		}
		q := f.qp(c)
		q.SetLimit(10 * soon) // 120 MiB in all; see largest
		qps, lists, ins = append(qps, q), append(lists, list), append(ins, in)
	}
	if err := verbs.PostAll(qps, lists); err != nil {
		f.Fatal(err)
	}
	for i := range ins {
		if string(ins[i]) != string(out) {
			f.Fatalf("queue pair %d reads something else than all wrote", i)
		}
	}
}
