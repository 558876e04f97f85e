package indexsim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index"
)

// Judging at each answer. A key that one session alone changes has a fate: what it may have now.
// Each answer must be one that the fate allows, and says which of it is so. A change that ends with
// an error other than an answer is undone, and leaves the fate as it was, unless the error wraps
// ErrUnknown. Then it may have taken effect, or take effect at any time until the session's next
// change of the key is answered: that one found what it had left, or keeps it from what comes late.

// state is what a key has: absent, or present with a value behind the sign.
type state string

const (
	absent  state = "-"
	present state = "="
)

// isThere reports whether the key is there.
func (s state) isThere() bool { return s != absent }

// lacking reports whether it is not.
func (s state) lacking() bool { return !s.isThere() }

// any is true of every state.
func (s state) any() bool { return true }

func stateOf(value []byte, found bool) state {
	if !found {
		return absent
	}
	return present + state(value)
}

// fate is what a key may have: one of now, or, from any moment on, one of late.
type fate struct{ now, late []state }

// statesWith are the states that hold says something of.
func (f *fate) statesWith(holds func(state) bool) (some []state) {
	for _, s := range slices.Concat(f.now, f.late) {
		if holds(s) && !slices.Contains(some, s) {
			some = append(some, s)
		}
	}
	return some
}

// judge is told what a lookup or a scan found.
func (f *fate) judge(s state) error {
	if len(f.statesWith(func(o state) bool { return o == s })) == 0 {
		return fmt.Errorf("it is %q, and may be one of %q, or late one of %q", s, f.now, f.late)
	}
	f.now = []state{s}
	return nil
}

// changed is told how a change ended that makes the key to where takes is true of it, and is
// refused with an answer else.
func (f *fate) changed(to state, takes func(state) bool, answer, err error) error {
	switch {
	case err == nil:
		if len(f.statesWith(takes)) == 0 {
			return fmt.Errorf("it succeeds, and the key may be one of %q, or late one of %q", f.now, f.late)
		}
		f.now, f.late = []state{to}, nil
	case answer != nil && errors.Is(err, answer):
		some := f.statesWith(func(s state) bool { return !takes(s) })
		if len(some) == 0 {
			return fmt.Errorf("it ends with %w, and the key may be one of %q, or late one of %q", err, f.now, f.late)
		}
		f.now = some
	case errors.Is(err, index.ErrUnknown) && len(f.statesWith(takes)) > 0:
		f.late = append(f.late, to)
	}
	return nil
}
