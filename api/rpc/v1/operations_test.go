package rpcv1

import "testing"

// TestTraitsAreOfEveryKind: each kind of the protocol reads or changes something, what changes
// either stores or removes or works on the value, and a kind of a newer version counts as one that
// may do anything.
func TestTraitsAreOfEveryKind(t *testing.T) {
	if want := len(Operation_Kind_name); int(Kinds) != want {
		t.Errorf("%d kinds have traits, there are %d", Kinds, want)
	}
	for number, name := range Operation_Kind_name {
		kind := Operation_Kind(number)
		is := kind.Traits()
		switch {
		case kind.Known() != (number != 0):
			t.Errorf("%s is known: %v", name, kind.Known())
		case !is.Reads && !is.Changes:
			t.Errorf("%s neither reads nor changes", name)
		case is.Value && !is.Reads:
			t.Errorf("%s answers a value that it does not read", name)
		case (is.Stores || is.Removes) && !is.Changes, is.Stores && is.Removes:
			t.Errorf("%s: %+v", name, is)
		}
	}
	for _, kind := range []Operation_Kind{-1, 0, Kinds, 1 << 20} {
		if is := kind.Traits(); kind.Known() || !is.Changes || is.Repeatable {
			t.Errorf("kind %d is known: %v, %+v", kind, kind.Known(), is)
		}
	}
	if got := Operation_KIND_UNSPECIFIED.Label() + " " + Operation_LOOKUP.Label(); got != "unspecified lookup" {
		t.Errorf("labels are %q", got)
	}
}

// TestMeaningsAreOfEveryCode: an answer has no word, an error has one, and only what did nothing is
// tried again.
func TestMeaningsAreOfEveryCode(t *testing.T) {
	if want := len(Outcome_Code_name); len(meanings) != want {
		t.Errorf("%d codes have a meaning, there are %d", len(meanings), want)
	}
	for number, name := range Outcome_Code_name {
		is := Outcome_Code(number).Meaning()
		if is.Answer == (is.Word != "") || is.Answer && !is.Pair || is.Pair && (!is.Healthy || is.Retry) {
			t.Errorf("%s: %+v", name, is)
		}
	}
	for _, code := range []Outcome_Code{-1, Outcome_Code(len(meanings))} {
		if is := code.Meaning(); *is != (Meaning{Word: "ERR"}) {
			t.Errorf("code %d: %+v", code, is)
		}
	}
}
