package verbstest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// The tests of two-sided calls. Where a connection has none, they must be refused and do no harm.
var callTests = []test{
	{"CallsAreAnsweredOrRefused", callsAnswered},
	{"CallSizes", callSizes},
	{"CallsSeeCompletedRequests", callsSee},
	{"CallsAreCounted", callsCounted},
	{"CallsOfManyQueuePairs", manyCalls},
	{"FenceDuringACall", fenceDuringCall},
	{"VanishDuringACall", vanishDuringCall},
}

// nobody stands for no executor.
var nobody verbs.Executor = new(executor)

// Operations of the suite's executor: the first byte of a request.
const (
	callEcho  = 'e' // answers with the rest
	callRead  = 'r' // the word of the data region at the offset that follows
	callBlock = 'b' // waits until it is released
	callFail  = 'f'
	callLong  = 'l' // says that its answer is longer than there is room for
	callFar   = 'o' // reads beyond the region
)

// executor is the suite's.
type executor struct {
	calls   atomic.Int64
	blocked atomic.Int64
	release env.Event
}

// Call implements verbs.Executor.
func (x *executor) Call(peer verbs.Peer, near verbs.Near, request, answer []byte) (int, error) {
	x.calls.Add(1)
	if len(request) == 0 || peer.Index != "test" || peer.Client == 0 {
		return 0, errors.New("no request")
	}
	switch rest := request[1:]; request[0] {
	case callEcho:
		return copy(answer, rest), nil
	case callRead:
		return 8, near.Read(verbs.RegionData, binary.LittleEndian.Uint64(rest), answer[:8])
	case callBlock:
		x.blocked.Add(1)
		x.release.Wait(soon)
		return 0, nil
	case callLong:
		return len(answer) + 1, nil
	case callFar:
		return 0, near.Read(verbs.RegionData, dataSize-4, make([]byte, 8))
	}
	return 0, errors.New("unknown request")
}

// callOf is a call with the given request and room for so many bytes of an answer.
func (f *fixture) callOf(room int, request ...byte) verbs.Request {
	f.Helper()
	b := f.buffer(max(verbs.CallBytes(room), len(request)))
	return verbs.Request{Op: verbs.Call, Local: b, Args: copy(b, request)}
}

// hasCalls reports whether c has calls. If not, it sees to it that they are refused.
func (f *fixture) hasCalls(c verbs.Conn) bool {
	f.Helper()
	if c.Capabilities().Calls {
		return true
	}
	f.refused(f.qp(c), verbs.ErrUnsupported, "a call", f.callOf(8, callEcho))
	if n := f.executor.calls.Load(); n != 0 {
		f.Fatalf("%d calls were executed on connections without", n)
	}
	return false
}

// call makes a call and returns its answer.
func (f *fixture) call(q verbs.QP, r verbs.Request) ([]byte, error) {
	f.Helper()
	list := []verbs.Request{r}
	f.post(q, list...)
	return list[0].Answer()
}

func callsAnswered(f *fixture) {
	c := f.connect(1)
	if !f.hasCalls(c) {
		return
	}
	q := f.qp(c)
	if got, err := f.call(q, f.callOf(8, callEcho, 1, 2, 3)); err != nil || !bytes.Equal(got, []byte{1, 2, 3}) {
		f.Fatalf("echo of 1 2 3 is %v, %v", got, err)
	}
	for _, what := range []byte{callFail, callLong, callFar} {
		if _, err := f.call(q, f.callOf(8, what)); !errors.Is(err, verbs.ErrCall) {
			f.Errorf("call %q: %v, want %v", what, err, verbs.ErrCall)
		}
	}
	f.post(q, read(0, f.scratch)) // the queue pair lives on
	f.serve(verbs.ServerOptions{Executor: nobody})
	if f.connect(1).Capabilities().Calls {
		f.Error("a server without an executor offers calls")
	}
}

func callSizes(f *fixture) {
	c := f.connect(1)
	if !f.hasCalls(c) {
		return
	}
	q := f.qp(c)
	for _, n := range []int{0, 1, 7, 8, 9, 1000, verbs.MaxCall - verbs.CallBytes(0)} {
		want := bytes.Repeat([]byte{byte(n), 3}, n)[:n]
		request := append([]byte{callEcho}, want...)
		got, err := f.call(q, f.callOf(n, request...))
		if err != nil || !bytes.Equal(got, want) {
			f.Errorf("echo of %d bytes: %d bytes, %v", n, len(got), err)
		}
		if n > 0 {
			if got, err = f.call(q, f.callOf(n-1, request...)); err != nil || len(got) > n {
				f.Errorf("echo of %d bytes with less room: %d bytes, %v", n, len(got), err)
			}
		}
	}
	big, ok := f.buffer(verbs.MaxCall+8), f.callOf(8, callEcho)
	for what, r := range map[string]verbs.Request{
		"a call that is too long":               {Op: verbs.Call, Local: big},
		"a call without room for a header":      {Op: verbs.Call, Local: big[:7]},
		"a call that is longer than its buffer": {Op: verbs.Call, Local: big[:16], Args: 17},
		"a call of fewer than no bytes":         {Op: verbs.Call, Local: big[:16], Args: -1},
	} {
		f.refused(q, verbs.ErrMalformed, what, r)
	}
	f.refused(q, verbs.ErrMalformed, "a call behind a READ", read(0, big[:8]), ok)
	f.refused(q, verbs.ErrMalformed, "a call before a READ", ok, read(0, big[:8]))
	f.refused(q, verbs.ErrNotRegistered, "a call on the heap", verbs.Request{Op: verbs.Call, Local: make([]byte, 16)})
}

// callsSee: what a client's requests did that were completed, on whatever queue pair, a call of it
// sees.
func callsSee(f *fixture) {
	c := f.connect(1)
	if !f.hasCalls(c) {
		return
	}
	writers := []verbs.QP{f.qp(c), f.qp(c), f.client(1)}
	callers := []verbs.QP{f.qp(c), f.client(1)}
	word := f.buffer(8)
	request := []byte{callRead, 64, 0, 0, 0, 0, 0, 0, 0}
	calls := []verbs.Request{f.callOf(8, request...)}
	for i := range uint64(f.repeats()) {
		binary.NativeEndian.PutUint64(word, i)
		f.post(writers[i%3], write(64, word))
		copy(calls[0].Local, request)
		f.post(callers[i%2], calls...)
		if got, err := calls[0].Answer(); err != nil || len(got) != 8 || get(got) != i {
			f.Fatalf("a call after the WRITE of %d shows %v, %v", i, got, err)
		}
	}
}

func callsCounted(f *fixture) {
	c := f.connect(1)
	if !f.hasCalls(c) {
		return
	}
	q := f.qp(c)
	want := verbs.Counters{Lists: 1, RoundTrips: 1}
	want.Requests[verbs.Call], want.Bytes[verbs.Call] = 1, 4+3
	if _, err := f.call(q, f.callOf(100, callEcho, 1, 2, 3)); err != nil {
		f.Fatal(err)
	}
	if got := q.Tally().Counters(); got != want {
		f.Fatalf("a call of 4 bytes with an answer of 3 counts as %+v", got)
	}
}

// manyCalls: answers go to who asked, among READs of others.
func manyCalls(f *fixture) {
	c := f.connect(1)
	if !f.hasCalls(c) {
		return
	}
	var all []func()
	for i := range 12 {
		q, b := f.qp(c), f.buffer(verbs.CallBytes(600))
		all = append(all, func() {
			for round := range f.repeats() / 20 {
				if i%4 == 3 {
					if err := verbs.Post(q, []verbs.Request{read(0, b)}); err != nil {
						f.Error(err)
					}
					continue
				}
				b[0], b[1], b[2] = callEcho, byte(i), byte(round)
				list := []verbs.Request{{Op: verbs.Call, Local: b, Args: 3 + 40*i}}
				if err := verbs.Post(q, list); err != nil {
					f.Error(err)
					return
				}
				got, err := list[0].Answer()
				if !errors.Is(err, verbs.ErrBusy) && (err != nil || len(got) != 2+40*i || got[0] != byte(i) || got[1] != byte(round)) {
					f.Errorf("call %d of %d: %d bytes, %v", round, i, len(got), err)
					return
				}
			}
		})
	}
	f.together(all...)
}

// whileBlocked has a call of c under way while it runs end, and returns how the call ended.
func (f *fixture) whileBlocked(c verbs.Conn, end func()) (err error) {
	f.Helper()
	q, list, was := f.qp(c), []verbs.Request{f.callOf(8, callBlock)}, f.executor.blocked.Load()
	f.together(func() {
		err = verbs.Post(q, list)
	}, func() {
		f.eventually(func() bool { return f.executor.blocked.Load() > was }, "the call begins")
		end()
	})
	return err
}

func fenceDuringCall(f *fixture) {
	c, other := f.connect(1), f.connect(2)
	if !f.hasCalls(c) {
		return
	}
	idle, probe := f.qp(c), f.qp(c)
	err := f.whileBlocked(c, func() {
		f.together(func() {
			if err := f.server.Fence(number(1), soon); err != nil {
				f.Errorf("fence: %v", err)
			}
			before := f.executor.calls.Load()
			if err := verbs.Post(idle, []verbs.Request{f.callOf(8, callEcho)}); err == nil {
				f.Error("a client that is fenced makes a call")
			}
			if n := f.executor.calls.Load(); n != before {
				f.Errorf("%d calls were executed after the fence", n-before)
			}
		}, func() {
			for range 50 { // others go on meanwhile
				if err := verbs.Post(f.qp(other), []verbs.Request{read(0, f.buffer(8))}); err != nil {
					f.Error(err)
				}
			}
			f.eventually(func() bool { return probe.Err() != nil }, "the connection is cut")
			f.executor.release.Set()
		})
	})
	if !errors.Is(err, verbs.ErrDisconnected) {
		f.Errorf("the call of a client that was fenced ended with %v, want %v", err, verbs.ErrDisconnected)
	}
	if got, err := f.call(f.qp(other), f.callOf(8, callEcho, 5)); err != nil || len(got) != 1 {
		f.Errorf("a call of another client: %v, %v", got, err)
	}
}

func vanishDuringCall(f *fixture) {
	c := f.connect(1)
	if !f.hasCalls(c) {
		return
	}
	probe := f.qp(c)
	err := f.whileBlocked(c, func() {
		f.together(func() { c.Close() }, func() {
			f.eventually(func() bool { return probe.Err() != nil }, "the connection closes")
			f.executor.release.Set()
		})
	})
	if !errors.Is(err, verbs.ErrClosed) {
		f.Errorf("the call of a connection that was closed ended with %v, want %v", err, verbs.ErrClosed)
	}
	again := f.client(1)
	if got, err := f.call(again, f.callOf(8, callEcho, 5)); err != nil || len(got) != 1 {
		f.Errorf("a call of the next connection: %v, %v", got, err)
	}
}
