package main

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// TestDumpKeepsDeadlines: a restored pair expires when the dumped one would have, as does a sorted
// set, and an index whose pairs do not expire takes no such pair.
func TestDumpKeepsDeadlines(t *testing.T) {
	expires := func(c *local.Config) { c.Expires = true }
	from, to, endless := newIndex(t, expires), newIndex(t, expires), newIndex(t, nil)
	want := []client.Pair{
		{Key: []byte("a"), Value: []byte("1"), Expires: time.UnixMilli(33_000_000_000_123)},
		{Key: []byte("b"), Value: []byte("2")},
		{Key: []byte("set"), Value: []byte("m\x00"), Member: true, Score: -1.5, Expires: time.UnixMilli(33_000_000_000_456)},
		{Key: []byte("set"), Value: []byte("n"), Member: true, Score: math.Inf(1), Expires: time.UnixMilli(33_000_000_000_456)},
	}
	if err := from.client().PutMany(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump")
	from.want("", "dump", file)
	endless.refuse("pairs of this index do not expire", "restore", file)
	for _, args := range [][]string{{"restore", file}, {"restore", "--replace", file}} {
		to.want("", args...)
		var got []client.Pair
		for p, err := range to.client().Scan(t.Context(), nil, nil, client.ScanOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p)
		}
		if !slices.EqualFunc(got, want, func(a, b client.Pair) bool {
			return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) && a.Expires.Equal(b.Expires) && a.Member == b.Member && a.Score == b.Score
		}) {
			t.Errorf("restored %v, want %v", got, want)
		}
		// it expires no more
		if err := to.client().Put(t.Context(), []byte("a"), []byte("3")); err != nil {
			t.Error(err)
		}
	}
}

// TestBackupHoldsSets: a backup is restored with all members of its sorted sets, also by an attempt
// that goes on with what an earlier one put; one that finds another score there is refused.
func TestBackupHoldsSets(t *testing.T) {
	expires := func(c *local.Config) { c.Expires = true }
	from, to := newIndex(t, expires), newIndex(t, expires)
	var want []client.Pair
	for i := range 1000 {
		want = append(want, client.Pair{Key: []byte("set"), Value: fmt.Appendf(nil, "%03d", i), Member: true, Score: float64(i % 7)})
	}
	if _, err := from.client().Load(t.Context(), slices.Values(want), client.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	from.want("", "backup", "create", "--dir", dir, "--artifact", "a.dump")
	c := to.client()
	put := func(p ...client.Pair) {
		t.Helper()
		if err := c.PutMany(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	put(want[:300]...)
	put(client.Pair{Key: []byte("set"), Value: []byte("299"), Member: true, Score: 99})
	to.refuse("another value, type or deadline", "backup", "restore", "--dir", dir, "--artifact", "a.dump")
	put(want[299])
	to.want("", "backup", "restore", "--dir", dir, "--artifact", "a.dump")
	var got []client.Pair
	for p, err := range c.Scan(t.Context(), nil, nil, client.ScanOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d pairs were restored, which are not those of the backup", len(got))
	}
}

func (i *typed) client() *client.Client {
	i.t.Helper()
	c, err := client.Connect(i.t.Context(), client.Options{Endpoints: []string{i.endpoint}, Insecure: true})
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { _ = c.Close() })
	return c
}
