package indexsim

import (
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index/internal/register"
)

// TestHistoriesAreJudged: the checker itself must know right from wrong.
func TestHistoriesAreJudged(t *testing.T) {
	op := func(call, end int64, v register.Verb, value string, found bool, got string) porcupine.Operation {
		return porcupine.Operation{Call: call, Return: end, Input: register.Input{Verb: v, Key: "k", Value: value}, Output: register.Output{Found: found, Value: got}}
	}
	put := func(call, end int64, value string) porcupine.Operation {
		return op(call, end, register.Upsert, value, false, "")
	}
	del := func(call, end int64) porcupine.Operation { return op(call, end, register.Delete, "", true, "") }
	get := func(call, end int64, got string) porcupine.Operation {
		return op(call, end, register.Lookup, "", got != "", got)
	}
	sees := func(call, end int64, value string) scanned {
		return scanned{limit: 10, call: call, end: end, pairs: []pair{{"k", value}}}
	}
	misses := func(call, end int64) scanned { return scanned{limit: 10, call: call, end: end} }
	type ops = []porcupine.Operation
	for _, c := range []struct {
		name  string
		ops   ops
		scans []scanned
		want  string // "" = right
	}{
		{"in order", ops{put(1, 2, "a"), get(3, 4, "a"), del(5, 6), get(7, 8, "")}, nil, ""},
		{"either of two at once", ops{put(1, 4, "a"), put(2, 3, "b"), get(5, 6, "a"), get(7, 8, "a")}, nil, ""},
		{"stale", ops{put(1, 2, "a"), put(3, 4, "b"), get(5, 6, "a")}, nil, "not linearizable"},
		{"lost", ops{put(1, 2, "a"), get(3, 4, "")}, nil, "not linearizable"},
		{"there and back", ops{put(1, 2, "a"), put(3, 10, "b"), get(4, 5, "b"), get(6, 7, "a")}, nil, "not linearizable"},
		{"inserted twice", ops{op(1, 2, register.Insert, "a", false, ""), op(3, 4, register.Insert, "b", false, "")}, nil, "not linearizable"},
		{"updated nothing", ops{op(1, 2, register.Update, "a", true, "")}, nil, "not linearizable"},
		{"a scan sees it", ops{put(1, 2, "a")}, []scanned{sees(3, 4, "a")}, ""},
		{"a scan sees what comes", ops{put(4, 9, "a")}, []scanned{sees(3, 5, "a")}, ""},
		{"a scan misses what comes", ops{put(4, 9, "a")}, []scanned{misses(3, 5)}, ""},
		{"a scan misses what goes", ops{put(1, 2, "a"), del(3, 6)}, []scanned{misses(4, 5)}, ""},
		{"a scan sees what goes", ops{put(1, 2, "a"), del(3, 6)}, []scanned{sees(4, 5, "a")}, ""},
		{"a scan misses it", ops{put(1, 2, "a")}, []scanned{misses(3, 4)}, "missing"},
		{"a scan misses it while it changes", ops{put(1, 2, "a"), put(3, 6, "b")}, []scanned{misses(4, 5)}, "missing"},
		{"a scan sees an old value", ops{put(1, 2, "a"), put(3, 4, "b")}, []scanned{sees(5, 6, "a")}, "not there"},
		{"a scan sees what is gone", ops{put(1, 2, "a"), del(3, 4)}, []scanned{sees(5, 6, "a")}, "not there"},
		{"a scan sees what comes later", ops{put(5, 6, "a")}, []scanned{sees(3, 4, "a")}, "not there"},
		{"a scan sees what nobody wrote", ops{put(1, 2, "a")}, []scanned{sees(3, 4, "b")}, "not there"},
		{"a scan ended by its limit", ops{put(1, 2, "a")}, []scanned{{start: "l", limit: 10, call: 3, end: 4}}, ""},
	} {
		h := history{ops: c.ops, scans: c.scans}
		err := h.check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestScansReach says how far a scan must have come.
func TestScansReach(t *testing.T) {
	full := scanned{start: "c", limit: 2, pairs: []pair{{"c", ""}, {"e", ""}}}
	down := scanned{start: "c", limit: 2, reverse: true, pairs: []pair{{"b", ""}, {"a", ""}}}
	short := scanned{start: "c", limit: 3, pairs: full.pairs}
	for _, c := range []struct {
		sc   *scanned
		key  string
		want bool
	}{
		{&full, "b", false}, {&full, "c", true}, {&full, "d", true}, {&full, "e", true}, {&full, "f", false},
		{&down, "c", false}, {&down, "b", true}, {&down, "a", true}, {&down, "A", false},
		{&short, "b", false}, {&short, "f", true},
	} {
		if got := c.sc.reached(c.key); got != c.want {
			t.Errorf("scan from %s, limit %d, reverse %v: reached(%s) is %v", c.sc.start, c.sc.limit, c.sc.reverse, c.key, got)
		}
	}
}
