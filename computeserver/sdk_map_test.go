package computeserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/client/codec"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestSDKMap: a map whose keys lie on two servers is scanned in the order of its keys.
func TestSDKMap(t *testing.T) {
	type key = codec.Two[string, float64]
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	keys := codec.Pair(codec.String, codec.Float64)
	c.split([]uint32{1, 2}, "m/"+string(keys.Encode(key{A: "b"})))
	m, ctx := codec.Map[key, int]{Index: c.sdk(1), Prefix: "m/", Key: keys, Value: codec.JSON[int]()}, context.Background()
	n := 0
	for _, a := range []string{"a", "a\x00", "b"} {
		for _, b := range []float64{-2.5, -1, 0, 1, 20} {
			if err := m.Put(ctx, key{A: a, B: b}, n); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	for _, reverse := range []bool{false, true} {
		next, step := 0, 1
		if reverse {
			next, step = n-1, -1
		}
		for e, err := range m.Scan(ctx, codec.Bounds[key]{}, client.ScanOptions{Reverse: reverse}) {
			if err != nil || e.Value != next {
				t.Errorf("got %+v, %v, want the value %d", e, err, next)
			}
			next += step
		}
		if next != n && next != -1 {
			t.Errorf("reverse %v: ended before %d", reverse, next)
		}
	}
	got := ""
	for e, err := range m.Scan(ctx, codec.Bounds[key]{Within: codec.String.Encode("b"), From: &key{A: "b", B: -1}, To: &key{A: "b", B: 20}}, client.ScanOptions{}) {
		got += fmt.Sprint(e.Key.B, " ", err, " ")
	}
	if want := "-1 <nil> 0 <nil> 1 <nil> "; got != want {
		t.Errorf("between bounds: %s, want %s", got, want)
	}
}

// TestSDKMapOfOtherTypes: keys that have a hash or a sorted set have no value of a map, whatever
// its codec would make of the bytes.
func TestSDKMapOfOtherTypes(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1)
	c.split([]uint32{1})
	k, ctx := newTalk(c, 1), context.Background()
	key := func(n uint64) string { return "m/" + string(codec.Uint64.Encode(n)) }
	m := codec.Map[uint64, string]{Index: c.sdk(1), Prefix: "m/", Key: codec.Uint64, Value: codec.Text}
	if err := m.Put(ctx, 1, "a text"); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"HSET", key(2), "f", "v"}, {"ZADD", key(3), "1", "a", "2", "b", "3", "c"}} {
		k.Send(computeservertest.Command(command...))
		if got := wholeReply(t, k.from); !strings.HasPrefix(got, ":") {
			t.Fatalf("%q gave %q", command, got)
		}
		n := uint64(0)
		for e, err := range m.Scan(ctx, codec.Bounds[uint64]{}, client.ScanOptions{Reverse: true}) {
			if n++; n > 1 || e != (codec.Entry[uint64, string]{}) || !errors.Is(err, client.ErrWrongType) {
				t.Errorf("%s: a scan has the entry %+v, %v", command[0], e, err)
			}
		}
	}
	if _, err := m.Get(ctx, 2); !errors.Is(err, client.ErrWrongType) {
		t.Errorf("a hash is got: %v", err)
	}
	n := uint64(0)
	for e, err := range m.Scan(ctx, codec.Bounds[uint64]{}, client.ScanOptions{KeysOnly: true}) {
		if n++; err != nil || e.Key != n || n > 3 {
			t.Errorf("a scan of keys has the entry %+v, %v", e, err)
		}
	}
}
