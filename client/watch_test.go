package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// TestClasses: each error of this package has a word of its own, wrapped or not.
func TestClasses(t *testing.T) {
	seen := map[string]bool{"": true, "other": true}
	for _, err := range causes {
		class, _ := Class(&Error{Op: "get", Err: err, Cause: context.Canceled})
		if class == "other" || class == "" {
			t.Errorf("%v has the class %q", err, class)
		}
	}
	for _, c := range classes {
		if class, answer := Class(fmt.Errorf("wrapped: %w", c.err)); class != c.class || answer != c.answer || seen[class] {
			t.Errorf("%v has the class %q, seen before: %v", c.err, class, seen[class])
		}
		seen[c.class] = true
	}
	if class, answer := Class(errors.New("of the program")); class != "other" || answer {
		t.Errorf("an error of the program has the class %q", class)
	}
	if class, _ := Class(nil); class != "" {
		t.Errorf("no error has the class %q", class)
	}
}

// TestWatchAllocatesNothing: a call that nobody watches allocates nothing for it, nor does one that
// is watched.
func TestWatchAllocatesNothing(t *testing.T) {
	told := 0
	for _, tell := range []func(context.Context, Call){nil, func(context.Context, Call) { told++ }} {
		c, ctx, op := &Client{o: Options{OnCall: tell}}, context.Background(), &task{}
		if got := testing.AllocsPerRun(100, func() {
			var err error
			w := c.watch(ctx, "get", 1)
			defer func() { w.reportCall(err) }()
			w.noteServer(op)
		}); got > 0 {
			t.Errorf("%v allocations, watched: %v", got, tell != nil)
		}
	}
	if told == 0 {
		t.Error("OnCall was told of no call")
	}
	if w := (&Client{}).watch(context.Background(), "get", 1); !reflect.ValueOf(w).IsZero() {
		t.Errorf("without OnCall there is %+v", w)
	}
}
