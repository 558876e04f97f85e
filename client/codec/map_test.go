package codec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/client/codec"
)

// kept is an index in memory, instead of a *client.Client.
type kept map[string][]byte

var _ codec.Index = (*client.Client)(nil)

func (i kept) Get(_ context.Context, key []byte) ([]byte, error) {
	if v, there := i[string(key)]; there {
		return v, nil
	}
	return nil, client.ErrNotFound
}

func (i kept) Put(_ context.Context, key, value []byte) error {
	i[string(key)] = value
	return nil
}

func (i kept) Delete(ctx context.Context, key []byte) error {
	_, err := i.Get(ctx, key)
	delete(i, string(key))
	return err
}

func (i kept) Scan(_ context.Context, start, end []byte, o client.ScanOptions) iter.Seq2[client.Pair, error] {
	keys := slices.Sorted(maps.Keys(i))
	if o.Reverse {
		slices.Reverse(keys)
	}
	return func(yield func(client.Pair, error) bool) {
		for _, k := range keys {
			if k < string(start) || len(end) > 0 && k >= string(end) {
				continue
			}
			if !yield(client.Pair{Key: []byte(k), Value: i[k]}, nil) {
				return
			}
		}
	}
}

type order struct {
	Item string
	N    int
}

// A map of orders by customer and number. In a program the index is a *client.Client.
func ExampleMap() {
	type key = codec.Two[string, uint64]
	ctx := context.Background()
	orders := codec.Map[key, order]{
		Index:  kept{},
		Prefix: "orders/",
		Key:    codec.Pair(codec.String, codec.Uint64),
		Value:  codec.JSON[order](),
	}
	for k, v := range map[key]order{{A: "ann", B: 10}: {"pears", 2}, {A: "ann", B: 9}: {"apples", 3}, {A: "bob", B: 1}: {"plums", 1}} {
		if err := orders.Put(ctx, k, v); err != nil {
			fmt.Println(err)
		}
	}
	of := codec.Bounds[key]{Within: codec.String.Encode("ann")}
	for e, err := range orders.Scan(ctx, of, client.ScanOptions{}) {
		fmt.Println(e.Key.A, e.Key.B, e.Value.Item, err)
	}
	// Output:
	// ann 9 apples <nil>
	// ann 10 pears <nil>
}

// TestMap: keys come in their order, between bounds, and those of other maps do not.
func TestMap(t *testing.T) {
	ctx, index := context.Background(), kept{}
	m := codec.Map[int64, string]{Index: index, Prefix: "m", Key: codec.Int64, Value: codec.Text}
	others := []codec.Map[int64, string]{{Index: index, Prefix: "l", Key: codec.Int64, Value: codec.Text}, {Index: index, Prefix: "n", Key: codec.Int64, Value: codec.Text}}
	for n := int64(-3); n <= 3; n++ {
		for _, of := range append(others, m) {
			if err := of.Put(ctx, n, fmt.Sprint(of.Prefix, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v, err := m.Get(ctx, -2); v != "m-2" || err != nil {
		t.Errorf("-2 has %q, %v", v, err)
	}
	if err := m.Delete(ctx, 0); err != nil {
		t.Error(err)
	}
	if _, err := m.Get(ctx, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a deleted key gave the error %v", err)
	}
	at := func(n int64) *int64 { return &n }
	for _, row := range []struct {
		of   codec.Bounds[int64]
		o    client.ScanOptions
		want string
	}{
		{codec.Bounds[int64]{}, client.ScanOptions{}, "m-3 m-2 m-1 m1 m2 m3"},
		{codec.Bounds[int64]{From: at(-1)}, client.ScanOptions{}, "m-1 m1 m2 m3"},
		{codec.Bounds[int64]{To: at(2)}, client.ScanOptions{Reverse: true}, "m1 m-1 m-2 m-3"},
		{codec.Bounds[int64]{From: at(-2), To: at(2), Within: []byte{0x7f}}, client.ScanOptions{}, "m-2 m-1"},
		{codec.Bounds[int64]{From: at(2), To: at(2)}, client.ScanOptions{}, ""},
		{codec.Bounds[int64]{From: at(2), To: at(-2)}, client.ScanOptions{}, ""},
	} {
		var got []string
		for e, err := range m.Scan(ctx, row.of, row.o) {
			if err != nil || e.Value != fmt.Sprint("m", e.Key) {
				t.Errorf("got %+v, %v", e, err)
			}
			got = append(got, e.Value)
		}
		if s := strings.Join(got, " "); s != row.want {
			t.Errorf("%+v, %+v: got %s, want %s", row.of, row.o, s, row.want)
		}
	}
	for e, err := range m.Scan(ctx, codec.Bounds[int64]{}, client.ScanOptions{KeysOnly: true}) {
		if e.Key != -3 || e.Value != "" || err != nil {
			t.Errorf("a scan by keys only began with %+v, %v", e, err)
		}
		break
	}
}

// TestMapErrors: what another program wrote, and values that cannot be encoded, are errors that
// name the key.
func TestMapErrors(t *testing.T) {
	ctx, index := context.Background(), kept{}
	m := codec.Map[uint64, any]{Index: index, Prefix: "m", Key: codec.Uint64, Value: codec.JSON[any]()}
	if err := m.Put(ctx, 7, func() {}); err == nil || !strings.Contains(err.Error(), "encode the value of 7") {
		t.Errorf("a function was put: %v", err)
	}
	index["m"+string(codec.Uint64.Encode(7))] = []byte("{")
	if _, err := m.Get(ctx, 7); err == nil || !strings.Contains(err.Error(), "decode the value of 7") {
		t.Errorf("half a value gave the error %v", err)
	}
	index["malien"] = nil
	last := 0
	for e, err := range m.Scan(ctx, codec.Bounds[uint64]{From: new(uint64)}, client.ScanOptions{KeysOnly: true}) {
		if last++; last == 2 && (!errors.Is(err, codec.ErrEncoding) || e.Key != 0 || !bytes.Contains([]byte(err.Error()), []byte("malien"))) {
			t.Errorf("a key of another program gave %+v, %v", e, err)
		}
	}
	if last != 2 {
		t.Errorf("%d entries, want 2", last)
	}
}
