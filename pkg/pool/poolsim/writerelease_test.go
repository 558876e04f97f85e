package poolsim_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestFlatSessionsReleaseByWrite: a session without a local lock table releases its lock by a WRITE
// where the provider can do that, and only there; sessions of all kinds exclude each other.
func TestFlatSessionsReleaseByWrite(t *testing.T) {
	f := func(caps verbs.Capabilities, without pool.Techniques, atomics uint64) {
		t.Helper()
		w := simenv.New(simenv.Options{Seed: 1})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Fabric: sim.Options{Capabilities: caps}})
		must(t, err)
		must(t, w.Run(func(p *simenv.Process) {
			cl, err := c.Open(p)
			must(t, err)
			const nodes, each, sessions = 4, 20, 3
			var a [nodes]pool.Addr
			for i := range a {
				a[i], err = cl.Allocate(512, pool.Nil)
				must(t, err)
			}
			list, g := seats(t, cl, sessions), env.NewWaitGroup(p)
			one := seats(t, cl, 1)[0]
			one.s.Use(without)
			must(t, one.s.Lock(a[0], one.node))
			before := one.s.Counters()
			must(t, one.s.PostUnlock())
			now := one.s.Counters()
			spent := now.Sub(&before)
			if got := spent.Atomics(); got != atomics {
				t.Errorf("%+v, %+v: a release takes %d atomics, want %d", caps, without, got, atomics)
			}
			if got := spent.Requests[verbs.Write]; got != 1-atomics {
				t.Errorf("%+v, %+v: a release takes %d WRITEs, want %d", caps, without, got, 1-atomics)
			}
			for i := range list {
				if i > 0 { // the first has all techniques
					list[i].s.Use(without)
				}
				g.Go("session", func() {
					for n := range nodes * each {
						must(t, list[i].s.Lock(a[n%nodes], list[i].node))
						must(t, list[i].change(a[n%nodes], false))
					}
				})
			}
			g.Wait(env.Forever)
			for i := range a {
				must(t, one.s.Lock(a[i], one.node))
				if got := one.node[0]; got != each*sessions {
					t.Errorf("%+v, %+v: node %d was changed %d times, want %d", caps, without, i, got, each*sessions)
				}
				must(t, one.s.PostUnlock())
			}
		}))
	}
	for _, masked := range []bool{false, true} {
		f(verbs.Capabilities{ReleaseByWrite: true, MaskedAtomics: masked}, pool.Techniques{Flat: true}, 0)
		f(verbs.Capabilities{ReleaseByWrite: true, MaskedAtomics: masked}, pool.Techniques{Flat: true, Apart: true}, 0)
		f(verbs.Capabilities{ReleaseByWrite: true, MaskedAtomics: masked}, pool.Techniques{}, 1)
		f(verbs.Capabilities{MaskedAtomics: masked}, pool.Techniques{Flat: true}, 1)
		f(verbs.Capabilities{ReleaseByWrite: true, MaskedAtomics: masked, DeviceMemory: 4096}, pool.Techniques{Flat: true}, 0)
	}
}
