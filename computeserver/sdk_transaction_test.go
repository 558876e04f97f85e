package computeserver

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
)

// TestSDKTransactions: what a transaction read is still there when its changes are made, or it runs
// again. What it may not do is refused, and nothing of it is done.
func TestSDKTransactions(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	cl, ctx := c.sdk(1), t.Context()
	a, b, x := []byte("a"), []byte("b"), []byte("x")
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	has := func(tx *client.Tx, key []byte, want string) {
		t.Helper()
		if got, err := tx.Get(key); want == "" && !errors.Is(err, client.ErrNotFound) || want != "" && (err != nil || string(got) != want) {
			t.Errorf("%s is %q, %v, want %q", key, got, err, want)
		}
	}
	// then servers know what their sessions can do
	if _, err := cl.GetMany(ctx, [][]byte{a, x}); err != nil {
		t.Fatal(err)
	}
	check(cl.Transaction(ctx, func(tx *client.Tx) error { return nil }), nil)
	calls := 0
	check(cl.Transaction(ctx, func(tx *client.Tx) error {
		calls++
		has(tx, a, map[bool]string{true: "", false: "other"}[calls == 1])
		if calls == 1 {
			check(cl.Put(ctx, a, []byte("other")), nil)
		}
		tx.Put(a, []byte("1"))
		has(tx, a, "1")
		tx.Put(b, []byte("2"))
		tx.Delete(a)
		has(tx, a, "")
		return nil
	}), nil)
	check(cl.Transaction(ctx, func(tx *client.Tx) error { has(tx, a, ""); has(tx, b, "2"); return nil }), nil)
	if calls != 2 {
		t.Errorf("a transaction with one conflict ran %d times", calls)
	}
	mine := errors.New("mine")
	if err := cl.Transaction(ctx, func(tx *client.Tx) error { tx.Delete(b); return mine }); err != mine {
		t.Errorf("the error of a transaction came back as %v", err)
	}
	check(cl.Transaction(ctx, func(tx *client.Tx) error { tx.Put(x, a); tx.Put(a, a); return nil }), client.ErrInvalid)
	check(cl.Transaction(ctx, func(tx *client.Tx) error { tx.Put(a, make([]byte, 4096)); tx.Put(b, a); return nil }), client.ErrInvalid)
	err := cl.Transaction(ctx, func(tx *client.Tx) error {
		for i := range 1025 {
			tx.Put([]byte(strconv.Itoa(i)), a)
		}
		return nil
	})
	check(err, client.ErrInvalid)
	if !strings.Contains(err.Error(), "at most 1024") {
		t.Error(err)
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	err = cl.Transaction(short, func(tx *client.Tx) error {
		old, err := tx.Get(b)
		if err != nil {
			return err
		}
		if err := cl.Put(ctx, b, append(old, 'x')); err != nil {
			return err
		}
		tx.Put(x[:0], nil) // never
		return nil
	})
	check(err, context.DeadlineExceeded)
	// whichever it was at: between two tries, before or behind sending
	if !errors.Is(err, client.ErrMismatch) && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrUnknown) {
		t.Errorf("a transaction that always met another one: %v", err)
	}
	check(cl.Delete(ctx, b), nil)
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// TestSDKTransactionsSideBySide: sums are kept by programs that move between two keys.
func TestSDKTransactionsSideBySide(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	keys, ctx := [][]byte{[]byte("x1"), []byte("x2")}, t.Context()
	of := func(tx *client.Tx) (n [2]int, err error) {
		for i, key := range keys {
			value, err := tx.Get(key)
			if err != nil {
				return n, err
			}
			if n[i], err = strconv.Atoi(string(value)); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	first := c.sdk(1)
	for _, key := range keys {
		if err := first.Put(ctx, key, []byte("100")); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for id := range 4 {
		cl := c.sdk(uint32(1 + id%2))
		all.Go(func() {
			for range 10 {
				err := cl.Transaction(ctx, func(tx *client.Tx) error {
					n, err := of(tx)
					if err != nil {
						return err
					}
					from := id % 2
					tx.Put(keys[from], []byte(strconv.Itoa(n[from]-3)))
					tx.Put(keys[1-from], []byte(strconv.Itoa(n[1-from]+3)))
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				var n [2]int
				if err := cl.Transaction(ctx, func(tx *client.Tx) (err error) { n, err = of(tx); return err }); err != nil || n[0]+n[1] != 200 {
					t.Errorf("the keys have %d, %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := first.Transaction(ctx, func(tx *client.Tx) error {
		if n, err := of(tx); err != nil || n != [2]int{100, 100} {
			t.Errorf("at the end the keys have %d, %v", n, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestSDKTransactionReadsOneValue: a value that is there for a moment, between two equal ones, is
// not what a transaction goes by. Another program changes a key between "even" and "odd" as long as
// it finds its own value there. The transaction says what it read.
func TestSDKTransactionReadsOneValue(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	key, ctx := []byte("x"), t.Context()
	var other sync.WaitGroup
	reader, writer := c.sdk(1), c.sdk(1)
	for range 100 {
		has, next := []byte("even"), []byte("odd")
		if err := writer.Put(ctx, key, has); err != nil {
			t.Fatal(err)
		}
		other.Go(func() {
			for {
				if err := writer.CompareAndSwap(ctx, key, has, next); err != nil {
					return
				}
				has, next = next, has
			}
		})
		var read []byte
		err := reader.Transaction(ctx, func(tx *client.Tx) (err error) {
			if read, err = tx.Get(key); err == nil {
				tx.Put(key, []byte("read"))
			}
			return err
		})
		if other.Wait(); err != nil || string(read) != string(has) {
			t.Fatalf("a transaction went by %q, and %q was there; %v", read, has, err)
		}
	}
}
