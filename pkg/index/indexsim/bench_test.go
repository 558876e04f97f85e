package indexsim_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// The papers' setting: 8 compute servers of 22 clients each, 8 memory servers.
const (
	benchHosts, benchEach, benchServers = 8, 22, 8

	benchKeys = 200_000
	benchTime = 20 * time.Millisecond // simulated, after as much that warms caches
)

// BenchmarkSherman176Clients says what the model gives, and how much processor a simulated second
// takes.
func BenchmarkSherman176Clients(b *testing.B) {
	for _, c := range []struct {
		name   string
		writes int // of a hundred
	}{{"lookup", 0}, {"half-upserts", 50}} {
		b.Run(c.name, func(b *testing.B) {
			var ops, took float64
			for range b.N {
				o, d := paperRun(b, c.writes, nil)
				ops, took = ops+o, took+d
			}
			b.ReportMetric(ops/float64(b.N)/1e6, "Mops/simulated-s")
			b.ReportMetric(took/float64(b.N), "cpu-s/simulated-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// paperRun returns operations a simulated second, and seconds of processor that one of those takes.
func paperRun(b testing.TB, writes int, switches map[string]bool) (ops, took float64) {
	w := simenv.New(simenv.Options{Seed: 1, Ordered: true, MaxEvents: 1 << 60})
	c, err := poolsim.New(w, poolsim.Options{
		Servers: benchServers, Chunks: 4, ChunkBytes: 8 << 20, Locks: 131072,
		HostLocks: switches != nil && !switches["onChip"],
		Fabric:    sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: true, DeviceMemory: 256 << 10}},
	})
	if err != nil {
		b.Fatal(err)
	}
	done, warm := 0, false
	var began float64
	o := index.Options{Uint64: true, MaxValueBytes: 8, Switches: switches}
	if err := w.Run(func(p *simenv.Process) {
		x := must(design(b).Open(must(c.Open(p)), o))
		s := must(x.Session())
		for i := range uint64(benchKeys) {
			if err := s.Upsert(paperKey(i), paperKey(i)); err != nil {
				b.Fatal(err)
			}
		}
		g := env.NewWaitGroup(p)
		start := w.Now()
		for h := range benchHosts {
			proc := w.NewProcess(fmt.Sprint("host-", h))
			x := must(design(b).Open(must(c.Open(proc)), o))
			for i := range benchEach {
				s, r := must(x.Session()), rand.New(rand.NewPCG(uint64(h), uint64(i)))
				g.Go(fmt.Sprint("client ", h, i), func() {
					var v []byte
					for w.Now() < start+2*benchTime {
						key := paperKey(r.Uint64N(benchKeys))
						if r.IntN(100) < writes {
							err = s.Upsert(key, key)
						} else {
							v, err = s.Lookup(key, v[:0])
						}
						if err != nil {
							b.Error(err)
							return
						}
						if warm {
							done++
						}
					}
				})
			}
		}
		start = w.Now()
		p.Sleep(benchTime)
		warm, began = true, cpuSeconds(b)
		p.Sleep(benchTime)
		took = (cpuSeconds(b) - began) / benchTime.Seconds()
		ops = float64(done) / benchTime.Seconds()
	}); err != nil {
		b.Fatal(err)
	}
	return ops, took
}

// cpuSeconds is the time that this process had on processors: others' load does not count.
func cpuSeconds(b testing.TB) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func paperKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i*0x9E3779B97F4A7C15) }

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
