package computeserver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
)

// TestSDKCalls: OnCall is told of each call once, by its name, with its keys and its error.
func TestSDKCalls(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(c *Config) { c.Index.Expiry = config.ExpiryEnabled }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	var mu sync.Mutex
	var told []client.Call
	type marked struct{}
	cl, err := client.Connect(context.Background(), client.Options{
		Endpoints: []string{c.servers[1].addresses.RPC}, Insecure: true, Attempt: 20 * time.Second, Limit: time.Minute,
		OnCall: func(ctx context.Context, call client.Call) {
			mu.Lock()
			defer mu.Unlock()
			if told = append(told, call); ctx.Value(marked{}) == nil {
				t.Errorf("%s: the context is not that of the call", call.Op)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := context.WithValue(context.Background(), marked{}, true)
	k, z, v := []byte("k"), []byte("z"), []byte("1")
	scanned := func(most int) (err error) {
		for _, err = range cl.Scan(ctx, nil, nil, client.ScanOptions{}) {
			if most--; most == 0 {
				break
			}
		}
		return err
	}
	at := func(id uint32) string { return c.servers[id].addresses.RPC }
	refused := errors.New("refused")
	for _, row := range []struct {
		op, server string
		keys       int
		call       func() error
		err        error
	}{
		{"put", at(1), 1, func() error { return cl.Put(ctx, k, v) }, nil},
		{"put", at(2), 1, func() error { return cl.Put(ctx, z, v) }, nil},
		{"get", at(2), 1, func() error { _, err := cl.Get(ctx, z); return err }, nil},
		{"get", at(1), 1, func() error { _, err := cl.Get(ctx, v); return err }, client.ErrNotFound},
		{"get", "", 1, func() error { _, err := cl.Get(ctx, make([]byte, 1<<20)); return err }, client.ErrInvalid},
		{"insert", at(1), 1, func() error { return cl.Insert(ctx, k, v) }, client.ErrExists},
		{"update", at(1), 1, func() error { return cl.Update(ctx, k, v) }, nil},
		{"increment", at(1), 1, func() error { _, err := cl.Increment(ctx, k, 1); return err }, nil},
		{"compare and swap", at(1), 1, func() error { return cl.CompareAndSwap(ctx, k, v, v) }, client.ErrMismatch},
		{"compare and delete", at(1), 1, func() error { return cl.CompareAndDelete(ctx, k, v) }, client.ErrMismatch},
		{"put if absent", at(1), 1, func() error {
			if _, stored, err := cl.PutIfAbsent(ctx, k, v); stored || err != nil {
				return err
			}
			return client.ErrExists
		}, client.ErrExists},
		{"put", at(1), 1, func() error { return cl.PutFor(ctx, k, v, time.Hour) }, nil},
		{"expire", at(1), 1, func() error { return cl.Expire(ctx, k, time.Hour) }, nil},
		{"time left", at(1), 1, func() error { _, _, err := cl.TimeLeft(ctx, k); return err }, nil},
		{"expire", at(1), 1, func() error { return cl.Persist(ctx, k) }, nil},
		{"put many", "", 2, func() error { return cl.PutMany(ctx, []client.Pair{{Key: k}, {Key: z}}) }, nil},
		{"get many", "", 3, func() error { _, err := cl.GetMany(ctx, [][]byte{k, z, v}); return err }, nil},
		{"scan", "", 2, func() error { return scanned(-1) }, nil},
		{"scan", "", 1, func() error { return scanned(1) }, nil},
		{"load", "", 2, func() error {
			_, err := cl.Load(ctx, slices.Values([]client.Pair{{Key: k}, {Key: z}}), client.LoadOptions{})
			return err
		}, nil},
		{"transaction", "", 1, func() error {
			return cl.Transaction(ctx, func(tx *client.Tx) error {
				if _, err := tx.Get(k); err != nil {
					return err
				}
				tx.Put(k, v)
				return nil
			})
		}, nil},
		{"transaction", "", 0, func() error { return cl.Transaction(ctx, func(*client.Tx) error { return refused }) }, refused},
		{"eval", "", 1, func() error { _, err := cl.Eval(ctx, "return 1", [][]byte{k}); return err }, nil},
		{"delete", at(1), 1, func() error { return cl.Delete(ctx, k) }, nil},
		{"delete many", "", 2, func() error { _, err := cl.DeleteMany(ctx, [][]byte{z, k}); return err }, nil},
	} {
		told = told[:0]
		if err := row.call(); !errors.Is(err, row.err) {
			t.Errorf("%s: error %v, want %v", row.op, err, row.err)
		}
		if len(told) != 1 {
			t.Errorf("%s: told of %d calls: %+v", row.op, len(told), told)
			continue
		}
		if got := told[0]; got.Op != row.op || got.Keys != row.keys || got.Server != row.server || !errors.Is(got.Err, row.err) || got.Took <= 0 || got.Began.IsZero() {
			t.Errorf("told of %+v, want %s of %d keys at %q with the error %v", got, row.op, row.keys, row.server, row.err)
		}
	}
}
