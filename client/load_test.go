package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// TestLoadKeepsExisting: a load that replaces nothing leaves a key with its value, and goes on
// after an attempt of which it is not known whether it stored the pair.
func TestLoadKeepsExisting(t *testing.T) {
	theKey = []byte("loaded")
	f := newFake(t)
	c := f.connect(t, time.Minute)
	load := func(o LoadOptions) {
		t.Helper()
		n, err := c.Load(context.Background(), slices.Values([]Pair{{Key: theKey, Value: []byte("new")}}), o)
		if n != 1 || err != nil {
			t.Errorf("%d pairs were loaded: %v", n, err)
		}
	}
	for _, test := range []struct {
		keep    bool
		there   string
		script  []ending
		effects int
		is      string
	}{
		{false, "old", []ending{answers}, 1, "new"},
		{true, "old", []ending{answers}, 0, "old"},
		{true, "", []ending{answers}, 1, "new"},
		{true, "", []ending{unknownDone, answers}, 1, "new"},
		{true, "", []ending{unknownNotDone, brokenBefore, answers}, 1, "new"},
		{true, "", []ending{brokenAfter, answers}, 1, "new"},
	} {
		var value []byte
		if test.there != "" {
			value = []byte(test.there)
		}
		f.begin(value, func() { t.Errorf("%+v: one more attempt", test) }, test.script...)
		load(LoadOptions{KeepExisting: test.keep})
		if effects, _ := f.end(); effects != test.effects || string(f.value) != test.is {
			t.Errorf("%+v: %d changes, the value is %q", test, effects, f.value)
		}
	}
}

// counter is a compute server that notes the keys of all operations, in order, and gives each the
// same outcome.
type counter struct {
	*fake
	code rpcv1.Outcome_Code
	mu   sync.Mutex
	keys []string
}

// Do implements rpcv1.ComputeServer.
func (c *counter) Do(stream grpc.BidiStreamingServer[rpcv1.DoRequest, rpcv1.DoReply]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		reply := &rpcv1.DoReply{Id: req.Id, MapGeneration: 1}
		c.mu.Lock()
		for _, op := range req.Operations {
			c.keys = append(c.keys, string(op.Key))
			reply.Outcomes = append(reply.Outcomes, &rpcv1.Outcome{Code: c.code})
		}
		c.mu.Unlock()
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// TestLoadStoresInTurn: what one worker took arrives in its order, a part when the part before is
// stored. So an error leaves the rest unsent.
func TestLoadStoresInTurn(t *testing.T) {
	var pairs []Pair
	var all []string
	for i := range 1000 {
		key := fmt.Sprintf("%04d", i)
		pairs, all = append(pairs, Pair{Key: []byte(key)}), append(all, key)
	}
	for _, test := range []struct {
		code   rpcv1.Outcome_Code
		err    error
		stored int
		sent   int
	}{{rpcv1.Outcome_OK, nil, 1000, 1000}, {rpcv1.Outcome_POOL_FULL, ErrPoolFull, 0, loadCall}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &counter{fake: &fake{address: listener.Addr().String()}, code: test.code}
		g := grpc.NewServer()
		rpcv1.RegisterComputeServer(g, s)
		go func() { _ = g.Serve(listener) }()
		t.Cleanup(g.Stop)
		var told []uint64
		n, err := s.connect(t, time.Minute).Load(context.Background(), slices.Values(pairs), LoadOptions{
			Parallel: 1, Progress: func(stored uint64) { told = append(told, stored) },
		})
		if n != uint64(test.stored) || !errors.Is(err, test.err) {
			t.Errorf("%v: %d pairs were stored: %v", test.code, n, err)
		}
		if !slices.Equal(s.keys, all[:test.sent]) {
			t.Errorf("%v: %d pairs arrived, not as they follow each other: %q", test.code, len(s.keys), s.keys)
		}
		if test.err == nil && (len(told) != 4 || told[0] != loadCall || told[3] != 1000) {
			t.Errorf("the progress was %d", told)
		}
	}
}

// TestLoadThatIsGivenUp: a load whose context ends says what became of a pair, as any operation
// does, and that some were left out.
func TestLoadThatIsGivenUp(t *testing.T) {
	theKey = []byte("given up")
	f := newFake(t)
	f.patient = true
	c := f.connect(t, time.Hour)
	for _, test := range []struct {
		script ending
		after  int // pairs that come after the source of pairs ended the context
		want   error
	}{{silentDone, 0, ErrUnknown}, {answers, 1, ErrUnavailable}} {
		ctx, cancel := context.WithCancel(context.Background())
		f.begin(nil, cancel, test.script)
		_, err := c.Load(ctx, func(yield func(Pair) bool) {
			more := yield(Pair{Key: theKey, Value: []byte("new")})
			for i := 1; more && i <= test.after; i++ {
				cancel()
				more = yield(Pair{Key: theKey, Value: []byte("new")})
			}
		}, LoadOptions{Batch: 2})
		effects, doubts := f.end()
		if fault := judge(call{"load", true, nil}, err, effects, doubts); fault != "" || !errors.Is(err, test.want) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %d pairs after the end: %v: %s; want %v", test.script, test.after, err, fault, test.want)
		}
		cancel()
	}
}

// TestLoadOfPairsThatPanic: nothing of a load is left when its source of pairs panicked.
func TestLoadOfPairsThatPanic(t *testing.T) {
	theKey = []byte("panics")
	f := newFake(t)
	c := f.connect(t, time.Hour)
	f.begin(nil, func() {}, silent)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not reach the caller")
			}
		}()
		_, _ = c.Load(context.Background(), func(yield func(Pair) bool) {
			yield(Pair{Key: theKey})
			panic("no more pairs")
		}, LoadOptions{Batch: 1})
	}()
	stacks := make([]byte, 1<<20)
	if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "client.(*Client).Load.func"); n > 0 {
		t.Errorf("%d workers are left", n)
	}
}
