package state

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const uid = "u"

// of is a witness with a number of its own, and a value that says which.
func of(uid string, n uint64, value string) Witness {
	values := map[string]string{"a": value}
	return Witness{Stamp: Stamp(uid, n, values), Values: values}
}

// bad is a witness whose value was changed.
func bad(w Witness) *Witness {
	w.Values = map[string]string{"a": w.Values["a"] + "'"}
	return &w
}

func TestJudge(t *testing.T) {
	show := func(s State, err error) string {
		switch {
		case errors.Is(err, ErrDamaged):
			return "damaged"
		case errors.Is(err, ErrDiffer):
			return "differ"
		}
		return fmt.Sprintf("%d %s object %v record %v", s.Sequence, s.Values["a"], s.ObjectBehind, s.RecordBehind)
	}
	f := func(name string, object Witness, record *Witness, want string) {
		t.Helper()
		if got := show(Judge(uid, object, record)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	one, two, other := of(uid, 1, "one"), of(uid, 2, "two"), of("v", 9, "other")
	f("new", Witness{}, nil, "0  object false record false")
	f("of another object", other, nil, "0  object false record false")
	f("equal", two, &two, "2 two object false record false")
	f("stripped", Witness{}, &two, "2 two object true record false")
	f("values without a stamp", Witness{Values: map[string]string{"a": "x"}}, &two, "2 two object true record false")
	f("an old manifest", one, &two, "2 two object true record false")
	f("somebody else's manifest", other, &two, "2 two object true record false")
	f("an edited annotation", *bad(two), &two, "2 two object true record false")
	f("a stamp that is none", Witness{Stamp: "x", Values: two.Values}, &two, "2 two object true record false")
	f("the record was deleted", two, nil, "2 two object false record true")
	f("the record was edited", two, bad(two), "2 two object false record true")
	f("the record was emptied", two, &Witness{}, "2 two object false record true")
	f("the record is of another object", two, &other, "2 two object false record true")
	f("the operator died in between", two, &one, "2 two object false record true")
	f("both edited", *bad(two), bad(one), "damaged")
	f("edited, and no record", *bad(two), nil, "damaged")
	f("stripped, and an edited record", Witness{}, bad(two), "damaged")
	f("stripped, and an emptied record", Witness{}, &Witness{}, "damaged")
	predecessor := func(w *Witness) Witness { w.Predecessor = true; return *w }
	f("a predecessor wrote", predecessor(bad(two)), &two, "3 two' object true record true")
	f("it wrote after an operator died", predecessor(bad(two)), &one, "3 two' object true record true")
	f("it wrote into what was stripped", predecessor(&Witness{Values: map[string]string{"a": "x"}}), &two, "3 x object true record true")
	f("it wrote what is whole", predecessor(&Witness{Stamp: two.Stamp, Values: two.Values}), &two, "2 two object false record false")
	f("it wrote, and an old manifest is back", predecessor(&Witness{Stamp: one.Stamp, Values: one.Values}), &two, "2 two object true record false")
	f("it wrote, and the record is damaged", predecessor(bad(two)), bad(one), "damaged")
	third := of(uid, 2, "third")
	f("the same number", two, &third, "differ")
}

func TestWith(t *testing.T) {
	s := State{Sequence: 3, Values: map[string]string{"a": "1", "b": "2"}}
	if same := s.With(map[string]string{"a": "1", "c": ""}); same.Sequence != 3 || same.ObjectBehind || same.RecordBehind {
		t.Errorf("nothing changes: %+v", same)
	}
	if next := s.With(map[string]string{"a": "", "c": "3"}); next.Sequence != 4 || !next.ObjectBehind || !next.RecordBehind || !maps.Equal(next.Values, map[string]string{"b": "2", "c": "3"}) {
		t.Errorf("changed: %+v", next)
	}
	if !maps.Equal(s.Values, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("the state before was changed: %v", s.Values)
	}
}

// side is one of the two witnesses as the API server has it.
type side struct {
	Witness
	there   bool
	version int
}

// pending is an operator between its two writes.
type pending struct {
	now           State
	recordVersion int
}

// TestOperatorsAndOthers: whatever operators that overlap, stand still and die do, and whoever
// replaces, strips, exports, applies, edits and deletes one side, what somebody acted upon is in
// force for ever after, or nothing is decided any more.
func TestOperatorsAndOthers(t *testing.T) {
	for range 20 {
		rapid.Check(t, operatorsAndOthers)
	}
}

// operatorsAndOthers is one history.
func operatorsAndOthers(t *rapid.T) {
	object, record := side{there: true}, side{}
	exported := []Witness{{}, of("v", 7, "x")} // manifests that people have
	var waiting []pending
	acted, decided := "", 0 // a value is all decisions that it follows from: "1.4."
	judge := func() (State, bool) {
		var r *Witness
		if record.there {
			r = &record.Witness
		}
		s, err := Judge(uid, object.Witness, r)
		return s, err == nil
	}
	mend := func() bool { // as an operator that looks does
		s, ok := judge()
		if !ok || s.Sequence == 0 {
			return ok
		}
		if s.ObjectBehind {
			object.Witness, object.version = Witness{Stamp: Stamp(uid, s.Sequence, s.Values), Values: s.Values}, object.version+1
		}
		if s.RecordBehind {
			record = side{Witness{Stamp: Stamp(uid, s.Sequence, s.Values), Values: s.Values}, true, record.version + 1}
		}
		return true
	}
	finish := func(p pending) {
		if record.version == p.recordVersion {
			record = side{Witness{Stamp: Stamp(uid, p.now.Sequence, p.now.Values), Values: p.now.Values}, true, record.version + 1}
			acted = p.now.Values["a"]
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			if s, ok := judge(); ok && !strings.HasPrefix(s.Values["a"], acted) {
				t.Fatalf("%s was acted upon, and %+v is in force; object %+v, record %+v", acted, s, object, record)
			}
		},
		"Look": func(*rapid.T) { mend() },
		"Decide": func(t *rapid.T) {
			if !mend() {
				return
			}
			s, _ := judge()
			decided++
			next := s.With(map[string]string{"a": fmt.Sprint(s.Values["a"], decided, ".")})
			p := pending{next, record.version}
			object.Witness, object.version = Witness{Stamp: Stamp(uid, next.Sequence, next.Values), Values: next.Values}, object.version+1
			switch rapid.IntRange(0, 2).Draw(t, "then") {
			case 0:
				finish(p)
			case 1:
				waiting = append(waiting, p) // it stands still
			}
		},
		"Resume": func(t *rapid.T) {
			if len(waiting) > 0 {
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				finish(waiting[i])
				waiting = append(waiting[:i], waiting[i+1:]...)
			}
		},
		"Export": func(*rapid.T) { exported = append(exported, object.Witness) },
		"Replace": func(t *rapid.T) {
			// One side at a time: an operator looks before the other is changed, too.
			if is, _ := record.read(uid); record.there && is == whole || mend() {
				object.Witness, object.version = rapid.SampledFrom(exported).Draw(t, "manifest"), object.version+1
			}
		},
		"DeleteRecord": func(*rapid.T) {
			if mend() {
				record = side{version: record.version + 1}
			}
		},
		"EditRecord": func(*rapid.T) {
			if mend() && record.there {
				record.Witness, record.version = *bad(record.Witness), record.version+1
			}
		},
	})
}
