package volume

import (
	"fmt"
	"testing"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestUsedIDs: what the annotation says, and that it says the same when it was read.
func TestUsedIDs(t *testing.T) {
	f := func(text string, next int, want string) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{}
		if text != "" {
			pool.Annotations = map[string]string{dmv1.AnnotationUsedIDs: text}
		}
		used, err := UsedIDs(pool, next)
		if got := fmt.Sprint(used, err != nil); got != want {
			t.Errorf("%q of %d: %s, want %s", text, next, got, want)
		}
	}
	f("", 0, "- false")
	f("", 3, "0-2 false")
	f("-", 3, "- false")
	f("1", 3, "1 false")
	f("0-1,5", 9, "0-1,5 false")
	f("5,0,1,7-1023", 9, "0-1,5,7-1023 false")
	for _, text := range []string{"x", "1-", "3-2", "1024", ",", "-1"} {
		f(text, 9, "- true")
	}
}

// TestRecordedIDs: the servers that an index has are used, whatever the pool says.
func TestRecordedIDs(t *testing.T) {
	i := &dmv1.DMIndex{}
	i.Name = "demo"
	i.Spec.MemoryPools = []dmv1.IndexMemoryPool{{Name: "one", Ref: &dmv1.LocalReference{Name: "first"}}, {Name: "two", Ref: &dmv1.LocalReference{Name: "second"}}}
	i.Annotations = map[string]string{dmv1.AnnotationMemory: `{"1":7,"3":8,"1026":9}`}
	for pool, want := range map[string]string{"first": "0,2", "second": "1", "third": "-"} {
		s := IDs{}
		s.AddRecorded(i, pool)
		if s.String() != want {
			t.Errorf("%s: %s, want %s", pool, s, want)
		}
	}
}
