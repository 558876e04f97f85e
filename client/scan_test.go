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
	asked int
}

// Scan implements rpcv1.ComputeServer.
func (s *tired) Scan(_ *rpcv1.ScanRequest, stream grpc.ServerStreamingServer[rpcv1.ScanReply]) error {
	if s.asked++; s.asked == 1 {
		return stream.Send(&rpcv1.ScanReply{MapGeneration: 1, Pairs: []*rpcv1.Pair{{Key: []byte("a")}},
			Error: &rpcv1.Outcome{Code: rpcv1.Outcome_UNAVAILABLE, Message: "a range of keys is moving"}})
	}
	return stream.Send(&rpcv1.ScanReply{MapGeneration: 1, Pairs: []*rpcv1.Pair{{Key: []byte("b")}}})
}

// TestScanOfSlowProgram: the time that a program takes for the pairs is not the servers'. A scan
// goes on behind an error however long its program took before.
func TestScanOfSlowProgram(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tired{fake: &fake{address: listener.Addr().String()}}
	g := grpc.NewServer()
	rpcv1.RegisterComputeServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	c := s.connect(t, time.Minute)
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
