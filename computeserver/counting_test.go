package computeserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
)

// TestCounting: programs of both front ends count one key side by side, through servers that own it
// and that do not, and none of what they count is lost or counted twice.
func TestCounting(t *testing.T) {
	const each = 300
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	ctx, cl := context.Background(), c.sdk(2)
	for _, key := range []string{"a", "x"} {
		number, compared := []byte(key), []byte(key+"-compared")
		if has, stored, err := cl.PutIfAbsent(ctx, compared, []byte("0")); err != nil || !stored || string(has) != "0" {
			t.Fatalf("the first PutIfAbsent: %q, %v, %v", has, stored, err)
		}
		var all sync.WaitGroup
		for id := range c.servers {
			r := c.redis(id)
			all.Go(func() {
				for range each {
					if err := r.Incr(ctx, key).Err(); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for range each {
					if _, err := cl.Increment(ctx, number, 1); err != nil {
						t.Error(err)
					}
				}
			})
			all.Go(func() {
				for done := 0; done < each/10; {
					has, err := cl.Get(ctx, compared)
					if err != nil {
						t.Error(err)
						return
					}
					n, _ := strconv.Atoi(string(has))
					switch err := cl.CompareAndSwap(ctx, compared, has, strconv.AppendInt(nil, int64(n+1), 10)); {
					case err == nil:
						done++
					case !errors.Is(err, client.ErrMismatch):
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if n, err := cl.Increment(ctx, number, 0); n != 4*each || err != nil {
			t.Errorf("%s: %d were counted of %d; %v", key, n, 4*each, err)
		}
		if got, err := cl.Get(ctx, compared); string(got) != fmt.Sprint(2*each/10) || err != nil {
			t.Errorf("%s: %s were swapped of %d; %v", key, got, 2*each/10, err)
		}
	}
}

// TestSDKModifies: what the SDK's operations on a pair answer, here and at the owner of the key.
func TestSDKModifies(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	ctx, cl := context.Background(), c.sdk(1)
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	for _, name := range []string{"a", "x"} {
		key := []byte(name)
		check(cl.CompareAndSwap(ctx, key, nil, []byte("1")), client.ErrNotFound)
		check(cl.CompareAndDelete(ctx, key, nil), client.ErrNotFound)
		_, _, err := cl.PutIfAbsent(ctx, key, nil)
		check(err, nil)
		has, stored, err := cl.PutIfAbsent(ctx, key, []byte("2"))
		if check(err, nil); stored || has == nil || len(has) > 0 {
			t.Errorf("PutIfAbsent where the key has the empty value: %q, %v", has, stored)
		}
		_, err = cl.Increment(ctx, key, 1)
		check(err, client.ErrWrongValue)
		check(cl.CompareAndSwap(ctx, key, []byte("1"), []byte("3")), client.ErrMismatch)
		check(cl.CompareAndSwap(ctx, key, nil, []byte("9223372036854775806")), nil)
		n, err := cl.Increment(ctx, key, 1)
		if check(err, nil); n != 1<<63-1 {
			t.Errorf("the sum is %d", n)
		}
		_, err = cl.Increment(ctx, key, 1)
		check(err, client.ErrWrongValue)
		n, err = cl.Increment(ctx, key, -1<<63)
		if check(err, nil); n != -1 {
			t.Errorf("the sum is %d", n)
		}
		check(cl.CompareAndDelete(ctx, key, []byte("1")), client.ErrMismatch)
		check(cl.CompareAndDelete(ctx, key, []byte("-1")), nil)
		_, err = cl.Get(ctx, key)
		check(err, client.ErrNotFound)
		_, _, err = cl.PutIfAbsent(ctx, bytes.Repeat(key, 600), nil)
		check(err, client.ErrInvalid)
	}
}
