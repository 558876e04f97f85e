package computeserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

func (c *cluster) sdk(ids ...uint32) *client.Client {
	c.t.Helper()
	// a change that is not answered in time would fail
	o := client.Options{Insecure: true, Attempt: 20 * time.Second, Limit: time.Minute}
	for _, id := range ids {
		o.Endpoints = append(o.Endpoints, c.servers[id].addresses.RPC)
	}
	cl, err := client.Connect(context.Background(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func TestSDKAnswers(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		t.Run(routing, func(t *testing.T) {
			c := newCluster(t, routing, nil, 1, 2, 3)
			c.split([]uint32{1, 2, 3}, "h", "p")
			cl, ctx := c.sdk(2), context.Background()
			check := func(err, want error) {
				t.Helper()
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
			}
			for _, key := range []string{"a", "k", "z", ""} {
				k := []byte(key)
				_, err := cl.Get(ctx, k)
				check(err, client.ErrNotFound)
				check(cl.Update(ctx, k, k), client.ErrNotFound)
				check(cl.Insert(ctx, k, []byte("1")), nil)
				check(cl.Insert(ctx, k, []byte("2")), client.ErrExists)
				check(cl.Update(ctx, k, []byte("3")), nil)
				v, err := cl.Get(ctx, k)
				check(err, nil)
				if string(v) != "3" {
					t.Errorf("%q is %q", key, v)
				}
				check(cl.Put(ctx, k, nil), nil)
				if v, err := cl.Get(ctx, k); v == nil || len(v) != 0 || err != nil {
					t.Errorf("an empty value is %v, %v", v, err)
				}
				check(cl.Delete(ctx, k), nil)
				check(cl.Delete(ctx, k), client.ErrNotFound)
			}
			err := cl.Put(ctx, bytes.Repeat([]byte("x"), 700), nil)
			check(err, client.ErrInvalid)
			for _, part := range []string{"700 bytes", "at most 512", "put"} {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("error %v lacks %q", err, part)
				}
			}
			check(cl.PutMany(ctx, []client.Pair{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("z"), Value: []byte("2")}}), nil)
			values, err := cl.GetMany(ctx, [][]byte{[]byte("z"), []byte("m"), []byte("a")})
			if err != nil || string(values[0]) != "2" || values[1] != nil || string(values[2]) != "1" {
				t.Errorf("many: %q, %v", values, err)
			}
			for prefix, want := range map[string]string{"": "a z", "a": "a", "b": "", "z": "z", "\xff": ""} {
				var got []string
				for pair, err := range cl.ScanPrefix(ctx, []byte(prefix), client.ScanOptions{KeysOnly: true}) {
					check(err, nil)
					got = append(got, string(pair.Key))
				}
				if strings.Join(got, " ") != want {
					t.Errorf("keys that begin with %q: %q, want %q", prefix, got, want)
				}
			}
			n, err := cl.DeleteMany(ctx, [][]byte{[]byte("z"), []byte("m"), bytes.Repeat([]byte("x"), 700), []byte("a")})
			check(err, client.ErrInvalid)
			if n != 2 || c.store.Len() != 0 {
				t.Errorf("%d keys were deleted, and %d are left", n, c.store.Len())
			}
			c.store.Fail(fmt.Errorf("take a chunk: %w", index.ErrPoolFull))
			err = cl.Put(ctx, []byte("q"), nil)
			check(err, client.ErrPoolFull)
			for _, part := range []string{`keys ["p", end) at server`, "give the index more memory"} {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("the error lacks %q: %v", part, err)
				}
			}
			c.store.Fail(nil)
		})
	}
}

// TestScansAgainstAModel compares scans of every kind, through the SDK and RESP, with a sorted
// slice.
func TestScansAgainstAModel(t *testing.T) {
	scansAgainstAModel(t, nil, config.RoutingAny, config.RoutingOwner)
}

func scansAgainstAModel(t *testing.T, adjust func(*Config), routings ...string) {
	rnd := computeservertest.Seeded(t)
	for _, routing := range routings {
		c := newCluster(t, routing, adjust, 1, 2, 3)
		c.split([]uint32{1, 2, 3}, "b", "c", "cc", "ccc", "d")
		cl, ctx := c.sdk(1), context.Background()
		model := map[string]string{}
		var pairs []client.Pair
		for range 3000 {
			key := make([]byte, rnd.IntN(7))
			for i := range key {
				key[i] = "abcd"[rnd.IntN(4)]
			}
			value := fmt.Sprint(rnd.Uint32())
			if _, there := model[string(key)]; !there {
				model[string(key)] = value
				pairs = append(pairs, client.Pair{Key: key, Value: []byte(value)})
			}
		}
		n, err := cl.Load(ctx, slices.Values(pairs), client.LoadOptions{Batch: 100})
		if err != nil || n != uint64(len(pairs)) {
			t.Fatalf("%d of %d pairs were loaded: %v", n, len(pairs), err)
		}
		others := slices.Clone(pairs)
		for i := range others {
			others[i].Value = []byte("another")
		}
		if n, err := cl.Load(ctx, slices.Values(others), client.LoadOptions{KeepExisting: true}); err != nil || n != uint64(len(others)) {
			t.Fatalf("%d of %d pairs that are there were passed over: %v", n, len(others), err)
		}
		keys := make([]string, 0, len(model))
		for key := range model {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		r := c.redis(2)
		for range 60 {
			start, end := keys[rnd.IntN(len(keys))], keys[rnd.IntN(len(keys))]
			if rnd.IntN(4) == 0 {
				start = ""
			}
			if rnd.IntN(4) == 0 {
				end = ""
			}
			o := client.ScanOptions{Limit: uint64(rnd.IntN(3) * rnd.IntN(900)), Reverse: rnd.IntN(2) == 0}
			want := between(keys, start, end, o.Reverse, int(o.Limit))
			var got []string
			for pair, err := range cl.Scan(ctx, []byte(start), []byte(end), o) {
				if err != nil {
					t.Fatal(err)
				}
				if model[string(pair.Key)] != string(pair.Value) {
					t.Fatalf("%q is %q, should be %q", pair.Key, pair.Value, model[string(pair.Key)])
				}
				got = append(got, string(pair.Key))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: scan [%q, %q) %+v: %d keys, want %d", routing, start, end, o, len(got), len(want))
			}
			args := []any{"RANGE", start, end}
			if o.Limit > 0 {
				args = append(args, "LIMIT", o.Limit)
			}
			if o.Reverse {
				args = append(args, "REV")
			}
			flat, err := r.Do(ctx, args...).StringSlice()
			if err != nil || len(flat) != 2*len(want) {
				t.Fatalf("%s: %v gave %d elements, want %d: %v", routing, args, len(flat), 2*len(want), err)
			}
			for i, key := range want {
				if flat[2*i] != key || flat[2*i+1] != model[key] {
					t.Fatalf("%s: %v: pair %d is %q %q", routing, args, i, flat[2*i], flat[2*i+1])
				}
			}
		}
		var scanned []string
		for it := r.Scan(ctx, 0, "", 77).Iterator(); it.Next(ctx); {
			scanned = append(scanned, it.Val())
		}
		if !slices.Equal(scanned, keys) {
			t.Errorf("%s: SCAN gave %d keys, there are %d", routing, len(scanned), len(keys))
		}
		if size := r.DBSize(ctx).Val(); size != int64(len(keys)) {
			t.Errorf("DBSIZE is %d, there are %d", size, len(keys))
		}
	}
}

func between(keys []string, start, end string, reverse bool, limit int) (out []string) {
	for _, key := range keys {
		if key >= start && (end == "" || key < end) {
			out = append(out, key)
		}
	}
	if reverse {
		slices.Reverse(out)
	}
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out
}

// TestMapsChangeUnderLoad moves ranges between three servers, joins a fourth and drains it, while
// writers, each with keys of its own, compare every answer with a model. No request may fail.
func TestMapsChangeUnderLoad(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		t.Run(routing, func(t *testing.T) { mapsChangeUnderLoad(t, nil, routing) })
	}
}

func mapsChangeUnderLoad(t *testing.T, adjust func(*Config), routing string) {
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, routing, adjust, 1, 2, 3)
	m := c.split([]uint32{1, 2, 3}, "w2", "w5")
	cl, ctx := c.sdk(1, 2, 3), context.Background()
	var over atomic.Bool
	var requests atomic.Int64
	var writers sync.WaitGroup
	for w := range 8 {
		mine := rand.New(rand.NewPCG(rnd.Uint64(), 1))
		writers.Go(func() {
			model := map[string]string{}
			for !over.Load() && !t.Failed() {
				key, value := fmt.Sprintf("w%d-%02d", w, mine.IntN(40)), fmt.Sprint(mine.Uint32())
				was, there := model[key]
				var err error
				switch mine.IntN(5) {
				case 0:
					err = cl.Insert(ctx, []byte(key), []byte(value))
					if there && errors.Is(err, client.ErrExists) {
						err = nil
					} else if err == nil && there {
						err = errors.New("inserted although it was there")
					} else {
						model[key] = value
					}
				case 1:
					err = cl.Delete(ctx, []byte(key))
					if !there && errors.Is(err, client.ErrNotFound) {
						err = nil
					}
					delete(model, key)
				case 2:
					err = cl.Put(ctx, []byte(key), []byte(value))
					model[key] = value
				default:
					var got []byte
					got, err = cl.Get(ctx, []byte(key))
					if !there && errors.Is(err, client.ErrNotFound) {
						err = nil
					} else if err == nil && (!there || string(got) != was) {
						err = fmt.Errorf("got %q, should be %q (there: %v)", got, was, there)
					}
				}
				if err != nil {
					t.Errorf("writer %d, %q: %v", w, key, err)
					return
				}
				requests.Add(1)
			}
		})
	}
	writers.Go(func() { // a scanner: sorted, no error
		for !over.Load() && !t.Failed() {
			last := ""
			for pair, err := range cl.Scan(ctx, nil, nil, client.ScanOptions{}) {
				if err != nil || string(pair.Key) <= last {
					t.Errorf("scan: %q after %q: %v", pair.Key, last, err)
					return
				}
				last = string(pair.Key)
			}
			requests.Add(1)
		}
	})
	c.start(4)
	for i := range 12 {
		before := requests.Load()
		ids := [][]uint32{{1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4}, {1, 4}}[i%4]
		boundaries := [][]byte{}
		for _, b := range []string{"w1", "w2", "w3", "w4", "w5", "w6", "w7"} {
			if i%6 != 3 && rnd.IntN(2) == 0 { // now and then one server has all keys
				boundaries = append(boundaries, []byte(b))
			}
		}
		next, err := partition.ByBoundaries(computeservertest.Index, c.members(ids...), boundaries)
		if err != nil {
			t.Fatal(err)
		}
		next.Generation = m.Generation + 1
		m = next
		c.publish(m)
		computeservertest.Await(t, "requests go on under the new map", func() bool { return requests.Load() > before+200 || t.Failed() })
	}
	// Server 4 leaves the map and shuts down; the others go on.
	next, _, err := partition.Plan(m, c.members(1, 2, 3), partition.Options{Keys: partition.Bytes})
	if err != nil {
		t.Fatal(err)
	}
	c.publish(next)
	before := requests.Load()
	c.stop(4)
	delete(c.maps, 4)
	computeservertest.Await(t, "requests go on after the shutdown", func() bool { return requests.Load() > before+200 || t.Failed() })
	over.Store(true)
	writers.Wait()
	t.Logf("%d requests", requests.Load())
}
