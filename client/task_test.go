package client

import (
	"bytes"
	"errors"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// So many allocations are made for a call, whatever its number of operations.
func TestTasksAreOneSlab(t *testing.T) {
	key, value := []byte("key"), bytes.Repeat([]byte("v"), 100)
	for _, n := range []int{1, 1000} {
		if got := testing.AllocsPerRun(10, func() {
			if _, err := newTasks(rpcv1.Operation_UPSERT, n, func(int) ([]byte, []byte) { return key, value }); err != nil {
				t.Fatal(err)
			}
		}); got > 3 {
			t.Errorf("%v allocations for %d tasks", got, n)
		}
	}
}

func TestTasksHaveCopies(t *testing.T) {
	keys := [][]byte{[]byte("a"), nil, {}, []byte("bc")}
	tasks, err := newTasks(rpcv1.Operation_UPSERT, len(keys), func(i int) ([]byte, []byte) { return keys[i], keys[len(keys)-1-i] })
	if err != nil {
		t.Fatal(err)
	}
	keys[0][0], keys[3][0] = 'x', 'x'
	_ = append(tasks[0].op.Key, "beyond"...)
	for i, want := range []string{"a", "", "", "bc"} {
		if string(tasks[i].op.Key) != want || string(tasks[len(keys)-1-i].op.Value) != want {
			t.Errorf("task %d has the key %q, not %q", i, tasks[i].op.Key, want)
		}
	}
	long := make([]byte, maxOperation+1)
	if _, err := newTasks(rpcv1.Operation_LOOKUP, 2, func(i int) ([]byte, []byte) { return long[:i*len(long)], nil }); !errors.Is(err, ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// TestEveryOutcomeHasACause: an outcome of this version of the protocol never ends as that of a
// newer one. LATER is none: streams keep it.
func TestEveryOutcomeHasACause(t *testing.T) {
	for code, name := range rpcv1.Outcome_Code_name {
		if _, ok := causes[rpcv1.Outcome_Code(code)]; !ok && code != int32(rpcv1.Outcome_OK) && code != int32(rpcv1.Outcome_LATER) {
			t.Errorf("%s has no error", name)
		}
	}
}
