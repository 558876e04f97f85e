package computeserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// TestScansHoldSets: a scan of the SDK has each member of a sorted set, in order and in reverse,
// cut off at any place and begun again there, and what it has makes the same sets when it is
// loaded: of all members, in the order of their scores, with the set's deadline.
func TestScansHoldSets(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	for _, s := range c.servers {
		s.core.ScanPiece = 700 // a set takes several messages
	}
	c.split([]uint32{1, 2}, "m", "\xff\xffset\x80")
	cl, ctx := c.sdk(1), context.Background()
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		t.Helper()
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	for n, key := range []string{"a", "b", "x", "\xff\xffz"} {
		add := []string{"ZADD", key}
		for i := range []int{1, 90, 30, 300}[n] {
			add = append(add, fmt.Sprint(i*7%11), fmt.Sprintf("%d\x00m", i))
		}
		ask(add...)
	}
	ask("PEXPIREAT", "x", "33000000000123")
	ask("MSET", "aa", "1", "y", "2")
	ask("HSET", "bb", "f", "v")
	scan := func(o client.ScanOptions) (all []client.Pair) {
		t.Helper()
		for p, err := range cl.Scan(ctx, nil, nil, o) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		return all
	}
	same := func(a, b client.Pair) bool {
		return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) && a.Expires.Equal(b.Expires) && a.Hash == b.Hash && a.Member == b.Member && a.Score == b.Score
	}
	all := scan(client.ScanOptions{})
	if len(all) != 1+90+30+300+3 || !slices.IsSortedFunc(all, func(a, b client.Pair) int {
		return slices.Compare([]string{string(a.Key), string(a.Value)}, []string{string(b.Key), string(b.Value)})
	}) {
		t.Errorf("a scan has %d pairs", len(all))
	}
	for _, p := range all {
		if p.Member != slices.Contains([]string{"a", "b", "x", "\xff\xffz"}, string(p.Key)) || p.Expires.IsZero() == (string(p.Key) == "x") {
			t.Errorf("a scan has %+v", p)
		}
	}
	back := scan(client.ScanOptions{Reverse: true})
	if slices.Reverse(back); !slices.EqualFunc(all, back, same) {
		t.Errorf("a scan in reverse has %d pairs, forwards %d", len(back), len(all))
	}
	for _, limit := range []uint64{1, 2, 91, 92, 100, 123} {
		if got := scan(client.ScanOptions{Limit: limit}); !slices.EqualFunc(got, all[:limit], same) {
			t.Errorf("a scan of %d pairs has %d", limit, len(got))
		}
		back := scan(client.ScanOptions{Limit: limit, Reverse: true})
		if slices.Reverse(back); !slices.EqualFunc(back, all[len(all)-int(limit):], same) {
			t.Errorf("a scan of %d pairs in reverse has %d", limit, len(back))
		}
	}
	if keys := scan(client.ScanOptions{KeysOnly: true}); len(keys) != 7 {
		t.Errorf("there are %d keys", len(keys))
	}
	conn, err := grpc.NewClient(c.servers[1].addresses.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	after := func(req *rpcv1.ScanRequest) (values []string, code rpcv1.Outcome_Code) {
		stream, err := rpcv1.NewComputeClient(conn).Scan(ctx, req)
		for err == nil {
			var reply *rpcv1.ScanReply
			if reply, err = stream.Recv(); err == nil {
				code = reply.Error.GetCode()
				for _, p := range reply.Pairs {
					values = append(values, string(p.Value))
				}
			}
		}
		return values, code
	}
	first := slices.IndexFunc(all, func(p client.Pair) bool { return string(p.Key) == "b" })
	for _, n := range []int{0, 40, 89} {
		req := &rpcv1.ScanRequest{Start: []byte("b"), End: []byte("bb"), Types: true, Sets: true, After: &rpcv1.Pair{Key: []byte("b"), Value: all[first+n].Value}}
		got, _ := after(req)
		req.Reverse = true
		if back, _ := after(req); len(got) != 89-n || len(back) != n {
			t.Errorf("behind member %d are %d, and in reverse %d", n, len(got), len(back))
		}
	}
	if _, code := after(&rpcv1.ScanRequest{Types: true}); code != rpcv1.Outcome_UNSUPPORTED {
		t.Errorf("a program of a version before is answered %v", code)
	}

	shown := func() string {
		return ask("ZRANGE", "b", "0", "-1", "WITHSCORES") + ask("ZRANGE", "\xff\xffz", "0", "-1", "WITHSCORES") + ask("PEXPIRETIME", "x") + ask("PEXPIRETIME", "b") + ask("ZCARD", "x") + ask("DBSIZE")
	}
	want := shown()
	for _, keep := range []bool{true, false} {
		ask("FLUSHALL")
		ask("ZADD", "b", "99", "0\x00m")
		if keep {
			ask("DEL", "b")
		} else {
			ask("SET", "x", "a string")
		}
		for range 2 { // it may be done again
			if n, err := cl.Load(ctx, slices.Values(all), client.LoadOptions{KeepExisting: keep}); err != nil || n != uint64(len(all)) {
				t.Errorf("%d pairs were loaded: %v", n, err)
			}
			if got := scan(client.ScanOptions{}); !slices.EqualFunc(all, got, same) || shown() != want {
				t.Errorf("keep %v: %d pairs were restored as %d, which are not the same", keep, len(all), len(got))
			}
		}
	}
	// what is there stays, where it is to
	ask("ZADD", "a", "5", string(all[0].Value))
	ask("SET", "b", "a string")
	if _, err := cl.Load(ctx, slices.Values(all[:20]), client.LoadOptions{KeepExisting: true}); err != nil || ask("ZSCORE", "a", string(all[0].Value)) != "$1\r\n5\r\n" || ask("GET", "b") != "$8\r\na string\r\n" {
		t.Errorf("what was there was replaced: %v", err)
	}
	gone := client.Pair{Key: []byte("gone"), Value: []byte("m"), Member: true, Expires: time.UnixMilli(1)}
	if err := cl.PutMany(ctx, []client.Pair{gone, {Key: []byte("a"), Value: bytes.Repeat([]byte("m"), 600), Member: true}}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a member that is too long ended with %v", err)
	}
	if got := ask("EXISTS", "gone"); got != ":0\r\n" {
		t.Errorf("a set that has expired is there: %q", got)
	}
	err = cl.Transaction(ctx, func(tx *client.Tx) error { _, err := tx.Get([]byte("a")); return err })
	if !errors.Is(err, client.ErrWrongType) {
		t.Errorf("a transaction read a sorted set: %v", err)
	}
}

// TestScanGoesOnBehindASet: where a set gets another value while a scan reads its members, the scan
// has no more of them, and goes on behind its key.
func TestScanGoesOnBehindASet(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingAny, expires(&off), 1)
	c.split([]uint32{1})
	core := c.servers[1].core
	core.ScanPiece = 50 // a set takes several messages
	k := newTalk(c, 1)
	ask := func(args ...string) string {
		k.Send(computeservertest.Command(args...))
		return wholeReply(t, k.from)
	}
	ask("ZADD", "a", "1", "m", "2", "n", "3", "o", "4", "p")
	ask("SET", "b", "1")
	var met atomic.Int32
	c.store.AfterOperation(func(key []byte) {
		// The scan of the keys ends before the members, and then they are read.
		if bytes.HasPrefix(key, []byte(sortedset.Prefix)) && met.Add(1) == 2 {
			core.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: []byte("a"), Value: []byte("x")}}, false, core.Limit, 0)
		}
	})
	var got []string
	for p, err := range c.sdk(1).Scan(context.Background(), nil, nil, client.ScanOptions{}) {
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(p.Key))
	}
	if n := len(got); n < 2 || n > 4 || got[n-1] != "b" || met.Load() < 2 {
		t.Errorf("a scan has pairs of %q, want some of a, and b; members were met %d times", got, met.Load())
	}
}
