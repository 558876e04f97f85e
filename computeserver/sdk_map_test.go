package computeserver

import (
	"context"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/client/codec"
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
