package op_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestFailure: what a caller can ask an error for. A client that was given up since a server could
// not be reached is fenced, and the server is unreachable.
func TestFailure(t *testing.T) {
	givenUp := fmt.Errorf("this client was given up: %w: %w", index.ErrFenced, verbs.ErrDisconnected)
	for _, c := range []struct {
		err      error
		changing bool
		is       []error
		isNot    []error
	}{
		{verbs.ErrDisconnected, false, []error{index.ErrUnreachable}, []error{index.ErrUnknown}},
		{verbs.ErrDisconnected, true, []error{index.ErrUnknown}, []error{index.ErrUnreachable}},
		{index.ErrFenced, false, []error{index.ErrFenced}, []error{index.ErrUnreachable}},
		{givenUp, false, []error{index.ErrFenced, index.ErrUnreachable}, []error{index.ErrUnknown}},
		{givenUp, true, []error{index.ErrUnknown, index.ErrFenced}, []error{index.ErrUnreachable}},
		{verbs.ErrLostMemory, true, []error{index.ErrDataLost}, []error{index.ErrUnknown}},
		{verbs.ErrClosed, false, []error{index.ErrClosed}, nil},
	} {
		got := op.Failure(c.err, c.changing)
		for _, want := range c.is {
			if !errors.Is(got, want) {
				t.Errorf("%v, changing %v: %v is not %v", c.err, c.changing, got, want)
			}
		}
		for _, not := range c.isNot {
			if errors.Is(got, not) {
				t.Errorf("%v, changing %v: %v is %v", c.err, c.changing, got, not)
			}
		}
	}
	if err := op.Failure(nil, true); err != nil {
		t.Error(err)
	}
}
