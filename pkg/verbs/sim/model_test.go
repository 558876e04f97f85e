package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// load is what clients do in a closed loop for a time.
type load struct {
	hosts, each int // clients: hosts with a NIC each, and goroutines on them
	servers     int
	caps        verbs.Capabilities
	list        func(client int, round uint64, local []byte) []verbs.Request
}

const loadData = 1 << 20

// rate runs a load for a time and returns how many lists were done a second, and the events that
// took.
func (l *load) rate(t testing.TB, d time.Duration) (perSecond float64, events uint64) {
	w := simenv.New(simenv.Options{Seed: 1, Ordered: true, MaxEvents: 1 << 60})
	model := sim.Paper()

	f := sim.New(w, sim.Options{Capabilities: l.caps, Model: model})
	lists := 0
	if err := w.Run(func(p *simenv.Process) {
		admit := new(toyWorld)
		var addresses []string
		for range l.servers {
			_, a, err := f.NewServer(verbs.ServerOptions{Admission: admit, Memory: []verbs.Memory{
				{ID: verbs.RegionData, Bytes: make([]byte, loadData)}, {ID: verbs.RegionLocks, Bytes: make([]byte, loadData)},
			}})
			if err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, a)
		}
		g := env.NewWaitGroup(p)
		var start time.Duration
		for h := range l.hosts {
			device := f.Device(p)
			for i := range l.each {
				g.Go(fmt.Sprint("client ", h, i), func() {
					a, _ := device.NewArena(4096)
					local, _ := a.Alloc(2048)
					c, err := device.Connect(verbs.Target{Address: addresses[(h*l.each+i)%l.servers]}, time.Second)
					if err != nil {
						t.Error(err)
						return
					}
					q, err := c.NewQP(a)
					if err != nil {
						t.Error(err)
						return
					}
					start = p.Now()
					for n := uint64(0); p.Now() < start+d; n++ {
						if err := verbs.Post(q, l.list(h*l.each+i, n, local)); err != nil {
							t.Error(err)
							return
						}
						lists++
					}
				})
			}
		}
		g.Wait(env.Forever)
	}); err != nil {
		t.Fatal(err)
	}
	return float64(lists) / d.Seconds(), w.Events()
}

// spread is a place of the data region that changes from round to round.
func spread(client int, round uint64) uint64 {
	return (uint64(client)*7919 + round*104729) * 64 % (loadData - 4096)
}

func reads(n int) func(int, uint64, []byte) []verbs.Request {
	return func(client int, round uint64, local []byte) []verbs.Request {
		return []verbs.Request{{Op: verbs.Read, Remote: spread(client, round), Local: local[:n]}}
	}
}

func atomics(place func(client int, round uint64) uint64) func(int, uint64, []byte) []verbs.Request {
	return func(client int, round uint64, local []byte) []verbs.Request {
		return []verbs.Request{{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: place(client, round), Local: local[:8], Add: 1}}
	}
}

// failing is compare-and-swaps that do not find what they look for.
func failing(place func(client int, round uint64) uint64) func(int, uint64, []byte) []verbs.Request {
	return func(client int, round uint64, local []byte) []verbs.Request {
		return []verbs.Request{{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: place(client, round), Local: local[:8], Compare: 1, Swap: 2}}
	}
}

// TestModelHasThePapersFigures holds the model to what the papers report of their machines.
func TestModelHasThePapersFigures(t *testing.T) {
	same := func(int, uint64) uint64 { return 0 }
	// other words, one bucket
	bucket := func(client int, round uint64) uint64 { return uint64(client%16) * 4096 }
	apart := func(client int, round uint64) uint64 { return uint64(client) * 8 }
	chip := verbs.Capabilities{DeviceMemory: 256 << 10}
	for _, c := range []struct {
		name     string
		load     load
		low, top float64 // million a second
	}{
		{"one client waits a round trip", load{1, 1, 1, verbs.Capabilities{}, reads(8)}, 0.4, 0.5},
		{"READs of 1 KiB fill 100 Gbps", load{8, 22, 1, verbs.Capabilities{}, reads(1024)}, 11, 12.2},
		{"small READs are bound by the message rate", load{8, 22, 1, verbs.Capabilities{}, reads(8)}, 60, 77},
		{"one host is bound by its own NIC", load{1, 176, 4, verbs.Capabilities{}, reads(8)}, 45, 51},
		{"host atomics on one word", load{8, 22, 1, verbs.Capabilities{}, atomics(same)}, 1.5, 2.5},
		{"host atomics in one bucket", load{8, 22, 1, verbs.Capabilities{}, atomics(bucket)}, 1.5, 2.5},
		{"host compare-and-swaps that fail", load{8, 22, 1, verbs.Capabilities{}, failing(same)}, 3, 3.6},
		{"one host receives 100 Gbps", load{1, 176, 4, verbs.Capabilities{}, reads(1024)}, 11, 12.2},
		{"host atomics apart", load{8, 22, 1, verbs.Capabilities{}, atomics(apart)}, 40, 77},
		{"atomics on the NIC, on one word", load{8, 22, 2, chip, atomics(same)}, 60, 112},
	} {
		perSecond, _ := c.load.rate(t, time.Millisecond)
		if m := perSecond / 1e6; m < c.low || m > c.top {
			t.Errorf("%s: %.2f million a second, want %.2f to %.2f", c.name, m, c.low, c.top)
		}
	}
}

// BenchmarkSecondOf176Clients says how long a simulated second takes: a tenth of it is run.
func BenchmarkSecondOf176Clients(b *testing.B) {
	for _, c := range []struct {
		name string
		list func(int, uint64, []byte) []verbs.Request
	}{
		{"read-1KiB", reads(1024)},
		{"lock-write", func(client int, round uint64, local []byte) []verbs.Request {
			at := spread(client, round)
			if round%2 == 0 {
				return []verbs.Request{
					{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: at, Local: local[:8]},
					{Op: verbs.Read, Remote: at, Local: local[8 : 8+1024]},
				}
			}
			return []verbs.Request{
				{Op: verbs.Write, Remote: at, Local: local[:24]}, {Op: verbs.Write, Remote: at + 512, Local: local[:8]},
				{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: at, Local: local[:8]},
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := load{8, 22, 8, verbs.Capabilities{DeviceMemory: loadData}, c.list}
			const d = 100 * time.Millisecond
			start := time.Now()
			var lists float64
			for range b.N {
				lists, _ = l.rate(b, d)
			}
			took := time.Since(start) / time.Duration(b.N)
			b.ReportMetric(took.Seconds()/d.Seconds(), "s/simulated-s")
			b.ReportMetric(lists/1e6, "Mlists/simulated-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
