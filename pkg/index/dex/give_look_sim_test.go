//go:build invariants

package dex_test

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
)

// TestScansBeginBeforeTheyLook gives the range ahead of a scan after the scan has looked at the
// ranges of its client, and before it has READ anything. The epochs must wait for the scan by then.
func TestScansBeginBeforeTheyLook(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		t.Run(fmt.Sprint("reverse ", reverse), func(t *testing.T) {
			e, met := &besideEnv{}, false
			h := &beside{inline: 4, env: func(p env.Env) env.Env { e.Env = p; return e }}
			h.run(t, nil, func(h *beside) error {
				return h.scanBeside(reverse, func(begun bool) error {
					if begun {
						return nil
					}
					e.yields = func() error { met = true; return h.giveAhead() }
					return nil
				})
			})
			if e.err != nil {
				t.Error(e.err)
			}
			if !met {
				t.Error("no range was given between the look at the ranges and the first READ: this tests nothing")
			}
		})
	}
}

// besideEnv does something when its client yields for the first time in builds with invariants.
type besideEnv struct {
	env.Env
	yields func() error
	err    error
}

func (e *besideEnv) Uint64() uint64 {
	if e.yields != nil {
		return 0
	}
	return e.Env.Uint64()
}

func (e *besideEnv) Yield() {
	if do := e.yields; do != nil {
		e.yields = nil
		e.err = do()
	}
	e.Env.Yield()
}
