package engine

import (
	"context"
	"slices"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestReadsKeepTheirOrder: reads of a batch that are not looked up together take effect in their
// place among those that are. So a pair that expires in the middle of the batch does not come back.
func TestReadsKeepTheirOrder(t *testing.T) {
	withSweeper(t, func(x *sweeping) {
		key := []byte("k")
		look, ask := &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: key}, &rpcv1.Operation{Kind: rpcv1.Operation_DEADLINE, Key: key, Expiry: rpcv1.Operation_AT}
		x.tick = 1
		for left := range int64(12) { // readings of the clock until the pair expires
			if err := x.s.Upsert(key, expiry.AppendStored(nil, []byte("v"), expiry.Mark{Deadline: x.now + left})); err != nil {
				t.Fatal(err)
			}
			var codes []rpcv1.Outcome_Code
			for _, o := range x.c.Do([]*rpcv1.Operation{look, look, ask, look, ask, look, look}, false, x.c.Limit, 0) {
				codes = append(codes, o.Code)
			}
			if !slices.IsSorted(codes) || codes[0] != rpcv1.Outcome_OK && codes[0] != rpcv1.Outcome_NOT_FOUND {
				t.Errorf("a pair that expires after %d readings of the clock: %v", left, codes)
			}
		}
	})
}

// TestOtherForms: a pair that a later version stored is refused, and costs no session.
func TestOtherForms(t *testing.T) {
	withSweeper(t, func(x *sweeping) {
		key, other := []byte("k"), []byte("l")
		for k, stored := range map[string]string{"k": "value\x07", "l": "value\x00"} {
			if err := x.s.Upsert([]byte(k), []byte(stored)); err != nil {
				t.Fatal(err)
			}
		}
		opened := x.c.Sessions.Opened()
		for range 2 * deathsTolerated {
			ops := []*rpcv1.Operation{
				{Kind: rpcv1.Operation_LOOKUP, Key: key}, {Kind: rpcv1.Operation_LOOKUP, Key: other}, {Kind: rpcv1.Operation_INSERT, Key: key, Value: other},
				{Kind: rpcv1.Operation_INCREMENT, Key: key, Number: 1}, {Kind: rpcv1.Operation_DEADLINE, Key: key}, {Kind: rpcv1.Operation_LOOKUP, Key: other},
			}
			for i, o := range x.c.Do(ops, false, x.c.Limit, 0) {
				want := rpcv1.Outcome_UNSUPPORTED
				if &ops[i].Key[0] == &other[0] {
					want = rpcv1.Outcome_OK
				}
				if o.Code != want {
					t.Errorf("operation %d is answered %v, want %v: %s", i, o.Code, want, o.Message)
				}
			}
			x.w.step()
		}
		if x.c.Sessions.Opened() != opened {
			t.Error("the index was opened again")
		}
		if value, err := x.s.Lookup(key, nil); err != nil || string(value) != "value\x07" {
			t.Errorf("the pair became %q, %v", value, err)
		}
	})
}

// TestScanWhoseRemovalFails: a scan tells nothing from the first pair on that has expired and
// cannot be removed.
func TestScanWhoseRemovalFails(t *testing.T) {
	withSweeper(t, func(x *sweeping) {
		x.fill("a", 10, 3)
		x.store.BeforeOperation(func(key []byte) {
			if string(key) == "a0003" {
				x.store.Fail(index.ErrTimeout)
			}
		})
		scan := func() (keys []string, err error) {
			err = x.c.Scan(context.Background(), ScanRange{End: []byte("m")}, true, func(key, _ []byte, _ expiry.Mark) bool {
				keys = append(keys, string(key))
				return true
			}, func() error { return nil })
			return keys, err
		}
		if keys, err := scan(); !slices.Equal(keys, []string{"a0001", "a0002"}) || CodeOf(err) != rpcv1.Outcome_TIMED_OUT {
			t.Errorf("a scan whose second removal fails has %v, %v", keys, err)
		}
		x.store.BeforeOperation(nil)
		x.store.Fail(nil)
		if keys, err := scan(); !slices.Equal(keys, []string{"a0001", "a0002", "a0004", "a0005", "a0007", "a0008"}) || err != nil {
			t.Errorf("then a scan has %v, %v", keys, err)
		}
	})
}
