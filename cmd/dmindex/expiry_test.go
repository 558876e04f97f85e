package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// TestDumpKeepsDeadlines: a restored pair expires when the dumped one would have, and an index
// whose pairs do not expire takes no such pair.
func TestDumpKeepsDeadlines(t *testing.T) {
	expires := func(c *local.Config) { c.Expires = true }
	from, to, endless := newIndex(t, expires), newIndex(t, expires), newIndex(t, nil)
	want := []client.Pair{
		{Key: []byte("a"), Value: []byte("1"), Expires: time.UnixMilli(33_000_000_000_123)},
		{Key: []byte("b"), Value: []byte("2")},
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
			return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) && a.Expires.Equal(b.Expires)
		}) {
			t.Errorf("restored %v, want %v", got, want)
		}
		// it expires no more
		if err := to.client().Put(t.Context(), []byte("a"), []byte("3")); err != nil {
			t.Error(err)
		}
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
