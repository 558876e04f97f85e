package dex_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestGroupsOfALaterVersion: a client that meets a kind of record which it does not know in the log
// of a dead client does not take the range, and says why, each time. It lives on, and no leaf has
// anything of the log. That is what a version without groups does with the log of one that has
// them.
func TestGroupsOfALaterVersion(t *testing.T) {
	o, err := dying(t, 2, "nobody", 0, 4, 256, poolsim.Options{Servers: 1, Executor: executor})
	if err != nil {
		t.Fatal(err)
	}
	o.plan.Faults, o.opts.CacheBytes, o.seed = nil, 64<<10, 4 // with all techniques
	if err := o.w.Run(func(p *simenv.Process) {
		o.main = p
		if err := o.laterVersion(); err != nil {
			o.w.Fail(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func (o *owners) laterVersion() error {
	all := &owned{low: 0, high: 4, start: simKey(0)}
	o.ranges = []*owned{all}
	for range 2 {
		if !o.make() {
			return errors.New("no clients")
		}
	}
	first, second := o.living[0], o.living[1]
	if err := o.moveTo(all, first); err != nil {
		return err
	}
	if _, err := o.in(first, "write", func() error {
		s, err := first.x.Session()
		if err != nil {
			return err
		}
		members := []index.Member{{Key: simKey(1)}, {Key: simKey(2)}}
		if err := s.(index.Grouper).Group(members, func() error {
			for i := range members {
				members[i].Action, members[i].Value = index.Put, []byte("both")
			}
			return nil
		}); err != nil {
			return err
		}
		return dex.LogLater(first.x)
	}); err != nil {
		return err
	}
	first.p.Kill()
	o.died(first)
	holding := pool.Holding{Start: all.start, End: all.end, Epoch: 100, Inherits: all.inherits}
	_, err := o.in(second, "take", func() error {
		for range 3 {
			if err := second.x.Take(holding); !errors.Is(err, index.ErrFormat) || !strings.Contains(err.Error(), "a later version") {
				return fmt.Errorf("the range is taken: %w", err)
			}
			if err := dex.Alive(second.x); err != nil {
				return err
			}
		}
		found, err := second.x.(index.Checker).Check()
		if err == nil && found.Pairs > 0 {
			err = fmt.Errorf("leaves have %d pairs of the log", found.Pairs)
		}
		return err
	})
	return err
}
