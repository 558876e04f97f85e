package client

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestLoadKeepsExisting: a load that replaces nothing leaves a key with its value, and goes on
// after an attempt of which it is not known whether it stored the pair.
func TestLoadKeepsExisting(t *testing.T) {
	theKey = []byte("loaded")
	f := newFake(t)
	c := f.connect(t, time.Minute)
	load := func(o LoadOptions) {
		t.Helper()
		n, err := c.Load(context.Background(), slices.Values([]Pair{{theKey, []byte("new")}}), o)
		if n != 1 || err != nil {
			t.Errorf("%d pairs were loaded: %v", n, err)
		}
	}
	for _, test := range []struct {
		keep    bool
		there   string
		script  []ending
		effects int
		is      string
	}{
		{false, "old", []ending{answers}, 1, "new"},
		{true, "old", []ending{answers}, 0, "old"},
		{true, "", []ending{answers}, 1, "new"},
		{true, "", []ending{unknownDone, answers}, 1, "new"},
		{true, "", []ending{unknownNotDone, brokenBefore, answers}, 1, "new"},
		{true, "", []ending{brokenAfter, answers}, 1, "new"},
	} {
		var value []byte
		if test.there != "" {
			value = []byte(test.there)
		}
		f.begin(value, func() { t.Errorf("%+v: one more attempt", test) }, test.script...)
		load(LoadOptions{KeepExisting: test.keep})
		if effects, _ := f.end(); effects != test.effects || string(f.value) != test.is {
			t.Errorf("%+v: %d changes, the value is %q", test, effects, f.value)
		}
	}
}
