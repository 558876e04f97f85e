package client

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// tired is a compute server that sends one pair with an error, and another pair when it is asked
// again.
type tired struct {
	*fake
	first, then *rpcv1.Pair
	asked       int
}

// Scan implements rpcv1.ComputeServer.
func (s *tired) Scan(_ *rpcv1.ScanRequest, stream grpc.ServerStreamingServer[rpcv1.ScanReply]) error {
	if s.asked++; s.asked == 1 {
		return stream.Send(&rpcv1.ScanReply{MapGeneration: 1, Pairs: []*rpcv1.Pair{s.first},
			Error: &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "a range of keys is moving"}})
	}
	return stream.Send(&rpcv1.ScanReply{MapGeneration: 1, Pairs: []*rpcv1.Pair{s.then}})
}

// connectTired makes a client of a server that is tired.
func connectTired(t *testing.T, first, then *rpcv1.Pair) *Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tired{fake: &fake{address: listener.Addr().String()}, first: first, then: then}
	g := grpc.NewServer()
	rpcv1.RegisterComputeServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	return s.connect(t, time.Minute)
}

// TestScanOfSlowProgram: the time that a program takes for the pairs is not the servers'. A scan
// goes on behind an error however long its program took before.
func TestScanOfSlowProgram(t *testing.T) {
	c := connectTired(t, &rpcv1.Pair{Key: []byte("a")}, &rpcv1.Pair{Key: []byte("b")})
	c.o.Limit = 500 * time.Millisecond
	var keys []string
	for pair, err := range c.Scan(context.Background(), nil, nil, ScanOptions{}) {
		if err != nil {
			t.Errorf("after %q: %v", keys, err)
			break
		}
		keys = append(keys, string(pair.Key))
		<-time.After(c.o.Limit + 100*time.Millisecond)
	}
	if want := []string{"a", "b"}; !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
}

// TestScanOfOneDeadline: members of a set have one deadline, as of the first one, though the set's
// was changed before a scan went on. What is dumped could not be restored otherwise.
func TestScanOfOneDeadline(t *testing.T) {
	member := func(key, value string, deadline int64) *rpcv1.Pair {
		return &rpcv1.Pair{Key: []byte(key), Value: []byte(value), Deadline: deadline, Type: rpcv1.Pair_MEMBER}
	}
	for then, want := range map[string]int64{"a": 1000, "b": 2000} {
		var got []int64
		for pair, err := range connectTired(t, member("a", "m", 1000), member(then, "n", 2000)).Scan(context.Background(), nil, nil, ScanOptions{}) {
			if err != nil {
				t.Error(err)
			}
			got = append(got, pair.Expires.UnixMilli())
		}
		if !slices.Equal(got, []int64{1000, want}) {
			t.Errorf("behind a member of a, one of %s: they expire at %d, want 1000 and %d", then, got, want)
		}
	}
}
