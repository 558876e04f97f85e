package kube

import "testing"

func TestWithin(t *testing.T) {
	type m = map[string]any
	type l = []any
	f := func(name string, wanted, live any, want bool) {
		t.Helper()
		if got := within(wanted, live); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("equal", m{"a": "1"}, m{"a": "1"}, true)
	f("defaulted", m{"a": "1"}, m{"a": "1", "b": "2"}, true)
	f("changed", m{"a": "1"}, m{"a": "2"}, false)
	f("missing", m{"a": "1"}, m{}, false)
	f("zero is a value", m{"a": int64(0)}, m{"a": int64(1)}, false)
	f("empty and not there", m{"a": m{}, "b": l{}}, m{}, true)
	f("list with defaults", l{m{"a": "1"}}, l{m{"a": "1", "b": "2"}}, true)
	f("longer list", l{m{"a": "1"}}, l{m{"a": "1"}, m{"a": "2"}}, false)
	f("other kind", m{"a": m{"b": "1"}}, m{"a": "x"}, false)
}
