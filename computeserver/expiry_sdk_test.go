package computeserver

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/hash"
)

// TestSDKExpires: the SDK sets and tells when pairs expire. Loaded pairs expire when they say so,
// and a scan tells it, at the owner of the keys and through another server.
func TestSDKExpires(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.split([]uint32{1, 2}, "m")
	cl, ctx := c.sdk(1), context.Background()
	far := time.UnixMilli(33_000_000_000_123)
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	left := func(key string, from, to time.Duration, want bool) {
		t.Helper()
		d, expires, err := cl.TimeLeft(ctx, []byte(key))
		if err != nil || expires != want || d < from || d > to {
			t.Errorf("%s lasts %v, expires %v: %v", key, d, expires, err)
		}
	}
	for _, key := range []string{"a", "x"} { // of either server
		k := []byte(key)
		_, _, err := cl.TimeLeft(ctx, k)
		check(err, client.ErrNotFound)
		check(cl.Expire(ctx, k, time.Hour), client.ErrNotFound)
		check(cl.Persist(ctx, k), client.ErrNotFound)
		check(cl.PutFor(ctx, k, k, time.Hour), nil)
		left(key, 59*time.Minute, time.Hour, true)
		check(cl.Persist(ctx, k), nil)
		left(key, 0, 0, false)
		check(cl.Expire(ctx, k, 2*time.Hour), nil)
		left(key, 119*time.Minute, 2*time.Hour, true)
		check(cl.Put(ctx, k, k), nil)
		left(key, 0, 0, false)
		check(cl.Expire(ctx, k, -time.Second), nil)
		_, err = cl.Get(ctx, k)
		check(err, client.ErrNotFound)
	}
	pairs := []client.Pair{{Key: []byte("b"), Value: []byte("1"), Expires: far}, {Key: []byte("c"), Value: []byte("2")}, {Key: []byte("y"), Value: []byte("3"), Expires: far.Add(time.Millisecond)}, {Key: []byte("z"), Value: []byte("4"), Expires: time.UnixMilli(1)}}
	aHash := hash.AppendList(nil, [][]byte{[]byte("f"), []byte("1"), nil, nil})
	pairs = slices.Insert(pairs, 3, client.Pair{Key: []byte("y1"), Value: aHash, Hash: true}, client.Pair{Key: []byte("y2"), Value: aHash, Hash: true, Expires: far})
	if n, err := cl.Load(ctx, slices.Values(pairs), client.LoadOptions{}); err != nil || n != 6 {
		t.Errorf("%d pairs were loaded: %v", n, err)
	}
	pairs = pairs[:5] // the last one has expired
	check(cl.PutMany(ctx, pairs), nil)
	_, err := cl.Get(ctx, []byte("y1"))
	check(err, client.ErrWrongType)
	_, err = cl.Increment(ctx, []byte("y2"), 1)
	check(err, client.ErrWrongType)
	check(cl.PutMany(ctx, []client.Pair{{Key: []byte("y1"), Value: append(aHash, aHash...), Hash: true}}), client.ErrInvalid)
	again := []client.Pair{{Key: []byte("b"), Value: []byte("5"), Expires: far.Add(time.Hour)}, {Key: []byte("y1"), Value: []byte("5")}, {Key: []byte("c"), Value: aHash, Hash: true}}
	if n, err := cl.Load(ctx, slices.Values(again), client.LoadOptions{KeepExisting: true}); err != nil || n != 3 {
		t.Errorf("%d pairs were loaded: %v", n, err)
	}
	var got []client.Pair
	for pair, err := range cl.Scan(ctx, nil, nil, client.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, pair)
	}
	same := func(a, b client.Pair) bool {
		return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) && a.Expires.Equal(b.Expires) && a.Hash == b.Hash
	}
	if !slices.EqualFunc(got, pairs, same) {
		t.Errorf("a scan has %v, want %v", got, pairs)
	}
	for _, reverse := range []bool{false, true} {
		var deadlines []int64
		visit := func(_, _ []byte, is expiry.Mark) bool { deadlines = append(deadlines, is.Deadline); return true }
		check(c.servers[2].core.Scan(ctx, engine.ScanRange{Reverse: reverse, KeysOnly: true}, false, visit, func() error { return nil }), nil)
		if reverse {
			slices.Reverse(deadlines)
		}
		if want := []int64{far.UnixMilli(), 0, far.UnixMilli() + 1, 0, far.UnixMilli()}; !slices.Equal(deadlines, want) {
			t.Errorf("reverse %v: deadlines %v, want %v", reverse, deadlines, want)
		}
	}
	// a program of a version before would store a hash as a string
	conn, err := grpc.NewClient(c.servers[1].addresses.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, keysOnly := range []bool{false, true} {
		stream, err := rpcv1.NewComputeClient(conn).Scan(ctx, &rpcv1.ScanRequest{KeysOnly: keysOnly})
		if err != nil {
			t.Fatal(err)
		}
		keys, refused := 0, rpcv1.Outcome_OK
		for reply, err := stream.Recv(); err == nil; reply, err = stream.Recv() {
			keys += len(reply.Pairs)
			refused = max(refused, reply.Error.GetCode())
		}
		if keysOnly && (keys != 5 || refused != rpcv1.Outcome_OK) || !keysOnly && (keys != 3 || refused != rpcv1.Outcome_UNSUPPORTED) {
			t.Errorf("keys only %v: %d keys, %v", keysOnly, keys, refused)
		}
	}
}
