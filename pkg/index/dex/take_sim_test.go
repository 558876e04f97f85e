package dex_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestTakeHasTakenOrNot: an error of Take says that nothing was taken. What fails afterwards is no
// error of it: here the session that took cannot be closed.
func TestTakeHasTakenOrNot(t *testing.T) {
	runBeside(t, nil, func(h *beside) error {
		if _, err := h.x.Give(simKey(besideFrom), simKey(besideTo)); err != nil {
			return err
		}
		h.late.close = errors.New("a queue pair cannot be closed")
		err := h.take(h.x, simKey(besideFrom), simKey(besideTo))
		h.late.close = nil
		_, refused := h.s.Lookup(simKey(besideFrom), nil)
		if (err == nil) != (refused == nil) {
			return fmt.Errorf("Take: %v; a lookup of its first key: %v", err, refused)
		}
		if err != nil {
			if err := h.take(h.x, simKey(besideFrom), simKey(besideTo)); err != nil {
				return err
			}
		}
		if _, err := h.x.Give(simKey(besideFrom), simKey(besideTo)); err != nil {
			return err
		}
		return h.serve()
	})
}

// TestTakeAwaitsTheLeafBelowItsEnd: the leaf at the end of a range is divided there, and whoever
// did it has the lock of its left part still. Take is not over before that lock is given up.
func TestTakeAwaitsTheLeafBelowItsEnd(t *testing.T) {
	runBeside(t, nil, func(h *beside) error {
		left, err := h.leaf(0)
		if err != nil {
			return err
		}
		if _, err := h.x.Give(nil, simKey(besideFrom)); err != nil {
			return err
		}
		var divider *pool.Session
		if err := h.inB(func() (err error) {
			if divider, err = h.pool.NewSession(besideNode); err != nil {
				return err
			}
			b, err := divider.Buffer(besideNode)
			if err != nil {
				return err
			}
			divider.Begin()
			return divider.Lock(left, b)
		}); err != nil {
			return err
		}
		taken := h.a.NewEvent()
		var failed error
		h.a.Go("take", func() {
			defer taken.Set()
			failed = h.take(h.x, nil, simKey(besideFrom))
		})
		early := taken.Wait(index.DefaultLimit / 4)
		if err := h.inB(func() error {
			err := divider.PostUnlock()
			divider.End()
			return errors.Join(err, divider.Close())
		}); err != nil || early {
			return errors.Join(err, fmt.Errorf("taken before the leaf below the end was given up: %v", early))
		}
		if taken.Wait(env.Forever); failed != nil {
			return failed
		}
		if _, err := h.x.Give(simKey(besideFrom), simKey(besideTo)); err != nil {
			return err
		}
		return h.serve()
	})
}

// TestLogsOfTheLivingAreLeftAlone: a node that was this client's when it looked may be the log of a
// client that lives by the time that it is READ. That client is not fenced, and keeps its log.
func TestLogsOfTheLivingAreLeftAlone(t *testing.T) {
	runBeside(t, nil, func(h *beside) error {
		if err := dex.CollectAt(h.x, h.y); err != nil {
			return err
		}
		if err := h.inB(h.pool.Alive); err != nil {
			return fmt.Errorf("the other client: %w", err)
		}
		if _, err := h.x.Give(simKey(besideFrom), simKey(besideTo)); err != nil {
			return err
		}
		return h.serve()
	})
}
