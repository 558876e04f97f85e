package dex_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestGiveBesideScans gives the range ahead of a scan that has shown the first pair of a kept leaf.
// The other client changes all values of the range. The scan ends where the kept keys end.
func TestGiveBesideScans(t *testing.T) {
	for _, inline := range []int{0, 4} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprintf("inline %d, reverse %v", inline, reverse), func(t *testing.T) {
				h := &beside{inline: inline}
				h.run(t, nil, func(h *beside) error {
					return h.scanBeside(reverse, func(begun bool) error {
						if begun {
							return h.giveAhead()
						}
						return h.divideEnds()
					})
				})
			})
		}
	}
}

// divideEnds leaves no leaf with keys on both sides of an end of the range: a scan that visits one
// may show all of it, as it was when it was READ. Taking merges what is underfull, so keys are put
// first.
func (h *beside) divideEnds() error {
	for n := uint64(besideFrom + 1); n < besideAll; n += 2 {
		if err := h.put(h.s, n, fmt.Sprintf("odd %d", n)); err != nil {
			return err
		}
	}
	for _, at := range []uint64{besideFrom, besideTo} {
		if _, err := h.x.Give(simKey(at), nil); err != nil {
			return err
		}
		if err := h.take(h.x, simKey(at), nil); err != nil {
			return err
		}
	}
	return nil
}

// TestScansOfDividedLeaves gives the range ahead of a scan that has READ a leaf with keys on both
// sides of its end. The scan shows what it READ, up to the new end.
func TestScansOfDividedLeaves(t *testing.T) {
	dex.OnFabrics(t, func(t *testing.T, o sim.Options) {
		met := false
		h := &beside{fabric: o}
		h.run(t, nil, func(h *beside) error {
			if _, err := h.leaf(besideTo); err != nil { // the scan need not READ inner nodes
				return err
			}
			return h.scanBeside(true, func(begun bool) error {
				if !begun {
					h.late.after = func(pool.Addr) error { // all leaves are READ together
						met = true
						return h.giveAhead()
					}
				}
				return nil
			})
		})
		if !met {
			t.Error("the scan has not READ a leaf: this tests nothing")
		}
	})
}

// scanBeside scans the keys that the first client keeps, and on into the range, upwards from below
// it, or downwards from above it. during is called before the scan, and when it has shown its first
// pair.
func (h *beside) scanBeside(reverse bool, during func(begun bool) error) error {
	if err := during(false); err != nil {
		return err
	}
	shown, start := 0, simKey(0)
	if reverse {
		start = nil
	}
	var failed error // the first one; the scan goes on, as it may end with another one
	err := h.s.Scan(start, besideAll, reverse, func(key, value []byte) bool {
		if shown++; shown == 1 {
			failed = during(true)
		}
		if failed != nil {
			return true
		}
		n := binary.BigEndian.Uint64(key) >> 32
		switch {
		case besideFrom <= n && n < besideTo:
			failed = fmt.Errorf("the scan shows key %d, %q, which the other client owns and has made %q", n, value, h.have[n])
		case string(value) != h.have[n]:
			failed = fmt.Errorf("the scan shows key %d, %q, which is %q", n, value, h.have[n])
		}
		return true
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	want := 0
	for n := range h.have {
		if !reverse && n < besideFrom || reverse && n >= besideTo {
			want++
		}
	}
	if shown != want {
		return fmt.Errorf("the scan shows %d pairs, %d were kept", shown, want)
	}
	return nil
}

// giveAhead gives the range to the second client, which changes all of it until blocks that the
// first one wrote are used again, or the epochs have had the time for it.
func (h *beside) giveAhead() error {
	if _, err := h.x.Give(simKey(besideFrom), simKey(besideTo)); err != nil {
		return err
	}
	if err := h.serve(); err != nil {
		return err
	}
	return h.inB(func() error {
		s, err := h.y.Session()
		if err != nil {
			return err
		}
		for round := range 12 {
			h.b.Sleep(20 * besideRenew)
			for n := uint64(besideFrom); n < besideTo; n += 2 {
				if err := h.put(s, n, fmt.Sprintf("r%d %d", round, n)); err != nil {
					return err
				}
			}
		}
		return s.Close()
	})
}
