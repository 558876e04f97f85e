package computeserver

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
)

// Keys and values of many operations share buffers below the API. None of that is seen: what the
// caller passed is the caller's again after the call, and each value that it got is its own.
func TestSDKBuffersBelongToCaller(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		t.Run(routing, func(t *testing.T) {
			c := newCluster(t, routing, nil, 1, 2, 3)
			c.split([]uint32{1, 2, 3}, "key 100", "key 200")
			cl, ctx := c.sdk(2), context.Background()
			const n = 300
			var pairs []client.Pair
			var keys [][]byte
			want := func(i int) string { return fmt.Sprintf("value %d %s", i, bytes.Repeat([]byte("x"), i%50)) }
			for i := range n {
				pairs = append(pairs, client.Pair{Key: fmt.Appendf(nil, "key %03d", i), Value: []byte(want(i))})
				keys = append(keys, fmt.Appendf(nil, "key %03d", i), fmt.Appendf(nil, "none %03d", i))
			}
			pairs = append(pairs, client.Pair{Key: []byte("key empty")}, client.Pair{Value: []byte("of the empty key")})
			keys = append(keys, []byte("key empty"), nil)
			if err := cl.PutMany(ctx, pairs); err != nil {
				t.Fatal(err)
			}
			for _, p := range pairs {
				clear(p.Key)
				clear(p.Value)
			}
			values, err := cl.GetMany(ctx, keys)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				clear(key)
			}
			for _, v := range values { // over all of it, and beyond
				for i := range v {
					v[i] ^= 0xff
				}
				_ = append(v, "beyond its end"...)
			}
			for i := range n {
				for j := range values[2*i] {
					values[2*i][j] ^= 0xff
				}
				if string(values[2*i]) != want(i) {
					t.Fatalf("value %d is %q", i, values[2*i])
				}
				if values[2*i+1] != nil {
					t.Fatalf("key none %d has the value %q", i, values[2*i+1])
				}
			}
			if v := values[2*n]; v == nil || len(v) != 0 {
				t.Errorf("an empty value is %v", v)
			}
			for i := range values[2*n+1] {
				values[2*n+1][i] ^= 0xff
			}
			if string(values[2*n+1]) != "of the empty key" {
				t.Errorf("the value of the empty key is %q", values[2*n+1])
			}
		})
	}
}

// BenchmarkSDKMany is the SDK's batches with servers in the same process, whose allocations count
// too: one an operation for its outcome, and for a read one for its value.
func BenchmarkSDKMany(b *testing.B) {
	c := newCluster(b, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "key 50000")
	cl, ctx := c.sdk(1), context.Background()
	const batch = 1000
	var pairs []client.Pair
	var keys [][]byte
	for i := range batch {
		key := fmt.Appendf(nil, "key %05d", i*97%100000)
		pairs, keys = append(pairs, client.Pair{Key: key, Value: make([]byte, 100)}), append(keys, key)
	}
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; n < b.N; n += batch {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("put", func() error { return cl.PutMany(ctx, pairs) })
	run("get", func() error { _, err := cl.GetMany(ctx, keys); return err })
}

// BenchmarkSDKOne is so many goroutines that get one key each, again and again.
func BenchmarkSDKOne(b *testing.B) {
	c := newCluster(b, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "key 32")
	cl, ctx := c.sdk(1), context.Background()
	if err := cl.Put(ctx, []byte("key 00"), make([]byte, 100)); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			var all sync.WaitGroup
			for g := range n {
				key := fmt.Appendf(nil, "key %02d", g)
				if err := cl.Put(ctx, key, make([]byte, 100)); err != nil {
					b.Fatal(err)
				}
				all.Go(func() {
					for i := g; i < b.N; i += n {
						if _, err := cl.Get(ctx, key); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
