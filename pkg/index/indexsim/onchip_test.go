package indexsim_test

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestOnChipIsTheServers: where the locks lie is the servers' choice. With onChip off, the index
// refuses locks on a chip; and in host memory the same work takes longer.
func TestOnChipIsTheServers(t *testing.T) {
	off := map[string]bool{"onChip": false}
	run := func(host bool, switches map[string]bool) (took time.Duration, err error) {
		w := simenv.New(simenv.Options{Seed: 1})
		c, err := poolsim.New(w, poolsim.Options{HostLocks: host, Fabric: sim.Options{
			Capabilities: verbs.Capabilities{MaskedAtomics: true, DeviceMemory: 8 << 10},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if e := w.Run(func(p *simenv.Process) {
			var x index.Index
			if x, err = sherman.Open(must(c.Open(p)), index.Options{Uint64: true, MaxValueBytes: 8, Switches: switches}); err != nil {
				return
			}
			start := p.Now()
			g := env.NewWaitGroup(p)
			for range 8 {
				s := must(x.Session())
				g.Go("writer", func() {
					for i := range uint64(100) {
						if e := s.Upsert(paperKey(i), paperKey(i)); e != nil {
							w.Fail(e)
						}
					}
				})
			}
			g.Wait(env.Forever)
			took = p.Now() - start
		}); e != nil {
			t.Fatal(e)
		}
		return took, err
	}
	if _, err := run(false, off); err == nil {
		t.Error("an index without onChip takes locks on a chip")
	} else {
		t.Log(err)
	}
	chip, err := run(false, nil)
	if err != nil {
		t.Fatal(err)
	}
	host, err := run(true, off)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%v on chip, %v in host memory", chip, host); host <= chip {
		t.Errorf("writes take %v with locks on chip, %v with locks in host memory", chip, host)
	}
}
