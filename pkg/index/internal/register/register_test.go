package register

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestModelJudges shows histories of one key that are right, and one for each way to be wrong.
func TestModelJudges(t *testing.T) {
	type op struct {
		verb  Verb
		value string
		found bool
		got   string
	}
	check := func(want bool, ops ...op) {
		t.Helper()
		var history []porcupine.Operation
		for i, o := range ops {
			history = append(history, porcupine.Operation{Call: int64(2 * i), Return: int64(2*i + 1),
				Input: Input{o.verb, "k", o.value}, Output: Output{Found: o.found, Value: o.got}})
		}
		if got := porcupine.CheckOperations(Model, history); got != want {
			t.Errorf("%v: judged %v", ops, got)
		}
	}
	check(true, op{Lookup, "", false, ""}, op{Insert, "1", false, ""}, op{Insert, "2", true, ""}, op{Lookup, "", true, "1"},
		op{Update, "3", true, ""}, op{Delete, "", true, ""}, op{Delete, "", false, ""}, op{Update, "4", false, ""}, op{Lookup, "", false, ""})
	check(false, op{Upsert, "1", false, ""}, op{Lookup, "", false, ""})
	check(false, op{Upsert, "1", false, ""}, op{Upsert, "2", false, ""}, op{Lookup, "", true, "1"})
	check(false, op{Insert, "1", false, ""}, op{Insert, "2", false, ""})
	check(false, op{Upsert, "1", false, ""}, op{Delete, "", true, ""}, op{Lookup, "", true, "1"})
	check(false, op{Update, "1", true, ""})

	// By the lengths: "22" puts where there is nothing, "1" with it puts, "22" with "1" puts, "333"
	// with "1" keeps, "4444" with "1" removes.
	check(true, op{Modify, "1", false, ""}, op{Lookup, "", false, ""}, op{Modify, "22", false, ""}, op{Modify, "1", true, "22"},
		op{Modify, "333", true, "1"}, op{Lookup, "", true, "1"}, op{Modify, "4444", true, "1"}, op{Modify, "22", false, ""})
	check(false, op{Modify, "22", false, ""}, op{Modify, "1", false, ""})
	check(false, op{Upsert, "1", false, ""}, op{Modify, "22", true, "2"})
	check(false, op{Upsert, "1", false, ""}, op{Modify, "22", true, "1"}, op{Lookup, "", true, "1"})
	check(false, op{Upsert, "1", false, ""}, op{Modify, "333", true, "1"}, op{Lookup, "", true, "333"})
	check(false, op{Upsert, "1", false, ""}, op{Modify, "4444", true, "1"}, op{Lookup, "", true, "1"})
}
