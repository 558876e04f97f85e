package client

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// become changes the identity that the server names.
func (f *fake) become(index string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index = index
}

// Scan implements rpcv1.ComputeServer: one pair, then the index is made anew, and the stream
// breaks.
func (f *fake) Scan(req *rpcv1.ScanRequest, stream grpc.ServerStreamingServer[rpcv1.ScanReply]) error {
	f.mu.Lock()
	is := f.index
	f.mu.Unlock()
	if req.Index != is {
		return status.Errorf(codes.FailedPrecondition, "this server has the index %s", is)
	}
	if err := stream.Send(&rpcv1.ScanReply{Pairs: []*rpcv1.Pair{{Key: []byte(is)}}}); err != nil {
		return err
	}
	f.become("index/3")
	return status.Error(codes.Unavailable, "as the script says")
}

// TestIndexMadeAnew: a running client goes on with an index that was made anew after a loss. Calls
// under way end, each with an error that says what became of it. Another index is never used.
func TestIndexMadeAnew(t *testing.T) {
	f := newFake(t)
	c := f.connect(t, time.Minute)
	var told atomic.Int64
	c.o.OnMadeAnew = func() {
		if told.Add(1) == 1 && c.Map().Index != "index" {
			t.Error("the new index is used before the program was told")
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	// over is called under mu
	put := func() error { return c.Put(ctx, theKey, []byte("v")) }
	refused := func() { f.begin(nil, func() {}) } // from now on

	// Another index, or a former incarnation, at the address of a server.
	for _, index := range []string{"other", "other/7", "index/x", "indexes/2"} {
		f.become(index)
		theKey = []byte("beside " + index) // it may arrive when the server has its index again
		refused()
		short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		if err := c.Put(short, theKey, nil); !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable) || c.Map().Index != "index" {
			t.Errorf("beside %s: %v, index %s", index, err, c.Map().Index)
		}
		stop()
	}

	// Blocked, then made anew, with a call under way.
	theKey = []byte("made anew")
	f.become("index")
	f.begin(nil, func() {}, dataLost)
	if err := put(); !errors.Is(err, ErrDataLost) {
		t.Errorf("while the index is blocked: %v", err)
	}
	f.begin(nil, func() { f.index = "index/2" }, unavailable)
	err := put()
	if !errors.Is(err, ErrDataLost) || !strings.Contains(err.Error(), "it was made anew, as index/2, since the call began") {
		t.Errorf("a call under way: %v", err)
	}
	if told.Load() != 1 {
		t.Errorf("the program was told %d times", told.Load())
	}
	f.begin(nil, func() {}, answers, answers)
	if err := put(); err != nil {
		t.Errorf("the new index: %v", err)
	}
	if got, err := c.Get(ctx, theKey); err != nil || string(got) != "v" {
		t.Errorf("the new index has %q, %v", got, err)
	}
	f.become("index/1")
	c.heardOf(0)

	// A scan never has pairs of both. A load ends, too, and what may have been done is in doubt.
	f.become("index/2")
	var keys []string
	for pair, err := range c.Scan(ctx, nil, nil, ScanOptions{}) {
		if err != nil {
			if !errors.Is(err, ErrDataLost) {
				t.Errorf("a scan: %v", err)
			}
			break
		}
		keys = append(keys, string(pair.Key))
	}
	if len(keys) != 1 || keys[0] != "index/2" || c.Map().Index != "index/3" {
		t.Errorf("the scan had %q; the index is %s", keys, c.Map().Index)
	}
	f.begin(nil, func() { f.index = "index/4" }, unknownDone)
	if err := c.Insert(ctx, theKey, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("an insert that may have been made: %v", err)
	}
	f.begin(nil, func() { f.index = "index/4" }, brokenAfter)
	if err := put(); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), ErrDataLost.Error()) {
		t.Errorf("a put that may have been made: %v", err)
	}
	f.begin(nil, func() {})
	n := 0
	_, err = c.Load(ctx, func(yield func(Pair) bool) {
		for yield(Pair{Key: theKey}) {
			if n++; n == 1 {
				f.become("index/5")
			}
		}
	}, LoadOptions{Batch: 1, Parallel: 1})
	if !errors.Is(err, ErrDataLost) {
		t.Errorf("a load: %v", err)
	}
	if told.Load() != 4 {
		t.Errorf("the program was told %d times", told.Load())
	}
}

// TestLaterIncarnationAtTheAddress: a server of a later incarnation may have the address of one of
// the former, before the client knows. No call that began before uses the new index, so none can
// succeed of which a part is lost, and none uses it before the program was told.
func TestLaterIncarnationAtTheAddress(t *testing.T) {
	f := newFake(t)
	c := f.connect(t, time.Minute)
	var told atomic.Int64
	c.o.OnMadeAnew = func() { told.Add(1) }
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	put := func() error { return c.Put(ctx, theKey, []byte("v")) }
	// with ErrUnknown where it was sent to the former server
	ended := func(what string, err error, times int64) {
		t.Helper()
		effects, _ := f.end()
		if !errors.Is(err, ErrDataLost) && !errors.Is(err, ErrUnknown) || effects != 0 || told.Load() != times {
			t.Errorf("%s: %v; %d changes in the new index; the program was told %d times, want %d", what, err, effects, told.Load(), times)
		}
	}
	f.begin(nil, func() {}, answers)
	if err := put(); err != nil {
		t.Fatal(err)
	}
	f.replace(t, "index/2")
	f.begin(nil, func() {}, answers)
	ended("a call", put(), 1)
	if err := put(); err != nil {
		t.Errorf("the next call: %v", err)
	}

	f.begin(nil, func() {}, answers)
	_, err := c.Load(ctx, func(yield func(Pair) bool) {
		if !yield(Pair{Key: theKey}) {
			return
		}
		for stored := 0; stored == 0; stored, _ = f.end() {
			runtime.Gosched()
		}
		f.replace(t, "index/3")
		f.begin(nil, func() {}, answers)
		yield(Pair{Key: theKey})
	}, LoadOptions{Batch: 1, Parallel: 1})
	ended("a load whose first pair is lost", err, 2)
}

func TestIncarnations(t *testing.T) {
	f := func(former, next string, want bool) {
		t.Helper()
		if got := madeAnew(former, next); got != want {
			t.Errorf("%s, then %s: %v", former, next, got)
		}
	}
	f("u", "u/1", true)
	f("u/1", "u/2", true)
	f("u/9", "u/10", true)
	f("u", "u", false)
	f("u/2", "u/2", false)
	f("u/2", "u/1", false)
	f("u/2", "u", false)
	f("u", "v/1", false)
	f("u", "u/x", false)
	f("u/1", "u/18446744073709551616", false)
}
