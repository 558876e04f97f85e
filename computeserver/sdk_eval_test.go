package computeserver

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
)

// TestSDKEval: a script of the SDK runs at the server of its keys, and what it returns comes back
// as values of Go. One that cannot be run does nothing.
func TestSDKEval(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	cl, ctx := c.sdk(1), t.Context()
	for _, name := range []string{"a", "x"} { // of either server
		key := []byte(name)
		if _, err := cl.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err) // then servers know what their sessions can do
		}
		for _, x := range []struct{ script, want string }{
			{"return redis.call('GET', KEYS[1])", "<nil>"},
			{"return redis.call('SET', KEYS[1], ARGV[1])", "string OK"},
			{"return redis.call('INCRBY', KEYS[1], ARGV[2])", "int64 -2"},
			{"return redis.call('GET', KEYS[1])", "[]uint8 [45 50]"},
			{"return ''", "[]uint8 []"},
			{"return {}", "[]interface {} []"},
			{"return {1, {'b', false}, redis.status_reply('S'), redis.error_reply('E no')}", "[]interface {} [1 [[98] <nil>] S eval \"" + name + "\": the script gave an error: E no]"},
		} {
			got, err := cl.Eval(ctx, x.script, [][]byte{key}, []byte("7"), []byte("-9"))
			text := strings.TrimSpace(fmt.Sprintf("%T %v", got, got))
			if got == nil {
				text = "<nil>"
			}
			if err != nil || text != x.want {
				t.Errorf("%s gave %s, %v, want %s", x.script, text, err, x.want)
			}
		}
		for _, x := range []struct {
			script, says string
			is           error
			keys         []string
		}{
			{"return redis.error_reply('MINE no')", "MINE no", client.ErrScript, nil},
			{"redis.call('SET', KEYS[1], 'x') return redis.call('INCR', KEYS[1])", "not an integer", client.ErrScript, nil},
			{"redis.call('SET', KEYS[1], 'y') while true do end", "", client.ErrInvalid, nil},
			{"return (", "", client.ErrInvalid, nil},
			{"return redis.call('SET', 'other', 'y')", "", client.ErrScript, nil},
			{"return 1", "", client.ErrInvalid, []string{"a", "x"}},
			{"return 1", "names no key", client.ErrInvalid, []string{}},
		} {
			keys := [][]byte{key}
			if x.keys != nil {
				keys = nil
			}
			for _, k := range x.keys {
				keys = append(keys, []byte(k))
			}
			if got, err := cl.Eval(ctx, x.script, keys); got != nil || !errors.Is(err, x.is) || !strings.Contains(fmt.Sprint(err), x.says) || !strings.HasPrefix(fmt.Sprint(err), "eval") {
				t.Errorf("%s gave %v, %v, want %v that says %q", x.script, got, err, x.is, x.says)
			}
		}
		// what a script did before its error is done
		if got, err := cl.Get(ctx, key); string(got) != "x" || err != nil {
			t.Errorf("%s is %q, %v", key, got, err)
		}
	}
	if n := c.store.Len(); n != 2 {
		t.Errorf("%d keys are stored", n)
	}
}

// TestSDKTransactionCounts: a transaction counts as Client.Increment does, on what it has changed
// itself, too. Deadlines stay.
func TestSDKTransactionCounts(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	cl, ctx := c.sdk(1), t.Context()
	for _, name := range []string{"a", "x"} { // of either server
		one, two, text := []byte(name+"1"), []byte(name+"2"), []byte(name+"3")
		if err := errors.Join(cl.PutFor(ctx, two, []byte("5"), time.Hour), cl.Put(ctx, text, []byte("07"))); err != nil {
			t.Fatal(err)
		}
		calls := 0
		err := cl.Transaction(ctx, func(tx *client.Tx) error {
			calls++
			add := func(key []byte, delta, want int64) {
				t.Helper()
				if n, err := tx.Increment(key, delta); n != want || err != nil {
					t.Errorf("%s became %d, %v, want %d", key, n, err, want)
				}
			}
			add(one, 2, 2)
			add(one, -3, -1)
			if calls == 1 { // another one comes in between
				add(two, 1, 6)
				if _, err := cl.Increment(ctx, two, 10); err != nil {
					t.Error(err)
				}
			} else {
				add(two, 1, 16)
			}
			if _, err := tx.Increment(text, 1); !errors.Is(err, client.ErrWrongValue) {
				t.Errorf("a text was counted: %v", err)
			}
			tx.PutFor(text, []byte("7"), time.Hour)
			add(text, 1, 8)
			if _, err := tx.Increment(text, 1<<63-1); !errors.Is(err, client.ErrWrongValue) {
				t.Errorf("a sum of 65 bits: %v", err)
			}
			return nil
		})
		if err != nil || calls != 2 {
			t.Fatalf("%v after %d calls", err, calls)
		}
		for key, want := range map[string]string{string(one): "-1", string(two): "16", string(text): "8"} {
			got, err := cl.Get(ctx, []byte(key))
			_, expires, failed := cl.TimeLeft(ctx, []byte(key))
			if string(got) != want || expires != (key != string(one)) || err != nil || failed != nil {
				t.Errorf("%s is %q and expires %v, want %s: %v, %v", key, got, expires, want, err, failed)
			}
		}
		// It is given again, without a deadline.
		err = cl.Transaction(ctx, func(tx *client.Tx) error {
			tx.Delete(two)
			_, err := tx.Increment(two, 4)
			return err
		})
		got, failed := cl.Get(ctx, two)
		if _, expires, timed := cl.TimeLeft(ctx, two); string(got) != "4" || expires || err != nil || failed != nil || timed != nil {
			t.Errorf("%s is %q and expires %v: %v, %v, %v", two, got, expires, err, failed, timed)
		}
	}
	// An index whose pairs do not expire counts, too.
	plain := newCluster(t, config.RoutingOwner, nil, 1)
	plain.store.AllowGroups()
	plain.split([]uint32{1})
	other := plain.sdk(1)
	if _, err := other.Increment(ctx, []byte("a"), 1); err != nil {
		t.Fatal(err)
	}
	err := other.Transaction(ctx, func(tx *client.Tx) error { _, err := tx.Increment([]byte("a"), 1); return err })
	if got, failed := other.Get(ctx, []byte("a")); string(got) != "2" || err != nil || failed != nil {
		t.Errorf("the key is %q: %v, %v", got, err, failed)
	}
}
