package tcp

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// The server, of verbs or of plain pings, runs in a process of its own (child_test.go). CPU seconds
// count both processes.

var overTLS = flag.Bool("tls", false, "run the benchmarks of READ, WRITE and CAS over TLS")

// benchConn is a connection to a server in another process, over loopback.
func benchConn(b *testing.B) (verbs.Conn, *verbs.Arena, *benchChild) {
	b.Helper()
	child := startBenchChild(b, "verbs")
	d := NewDevice()
	if *overTLS {
		d = NewTLSDevice(func(string) *tls.Config { return &tls.Config{InsecureSkipVerify: true} })
	}
	a, err := d.NewArena(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	c, err := d.Connect(verbs.Target{Address: child.address, Token: benchToken}, verbs.DefaultLimit)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		a.Close()
	})
	return c, a, child
}

func requestOf(b *testing.B, a *verbs.Arena, op verbs.Op, n int) []verbs.Request {
	b.Helper()
	local, err := a.Alloc(n)
	if err != nil {
		b.Fatal(err)
	}
	return []verbs.Request{{Op: op, Local: local}}
}

func newQP(b *testing.B, c verbs.Conn, a *verbs.Arena) verbs.QP {
	b.Helper()
	qp, err := c.NewQP(a)
	if err != nil {
		b.Fatal(err)
	}
	return qp
}

// cpu reports operations a CPU second of both processes, next to the time each takes.
func cpu(b *testing.B, child *benchChild, run func()) {
	b.ReportAllocs()
	b.ResetTimer()
	before := ownCPU() + child.cpu(b)
	run()
	b.StopTimer()
	if used := ownCPU() + child.cpu(b) - before; used > 0 {
		b.ReportMetric(float64(b.N)/used.Seconds(), "op/cpu-s")
	}
}

// ownCPU is what this process has used so far.
func ownCPU() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// median reports the median of run's time.
func median(b *testing.B, run func()) {
	took := make([]time.Duration, b.N)
	b.ResetTimer()
	for i := range took {
		start := time.Now()
		run()
		took[i] = time.Since(start)
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
}

func one(b *testing.B, op verbs.Op, n int) {
	c, a, child := benchConn(b)
	qp, list := newQP(b, c, a), requestOf(b, a, op, n)
	cpu(b, child, func() {
		median(b, func() {
			if err := verbs.Post(qp, list); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkRead64(b *testing.B)  { one(b, verbs.Read, 64) }
func BenchmarkRead1K(b *testing.B)  { one(b, verbs.Read, 1024) }
func BenchmarkWrite1K(b *testing.B) { one(b, verbs.Write, 1024) }
func BenchmarkCAS(b *testing.B)     { one(b, verbs.CompareSwap, 8) }

// BenchmarkRead1KGoroutines is so many goroutines with a queue pair each, that post as sessions of
// the pool do.
func BenchmarkRead1KGoroutines(b *testing.B) {
	for _, n := range []int{1, 2, 8, 32, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { goroutines(b, n) })
	}
}

func goroutines(b *testing.B, n int) {
	c, a, child := benchConn(b)
	qps, lists := make([]verbs.QP, n), make([][]verbs.Request, n)
	for i := range qps {
		qps[i], lists[i] = newQP(b, c, a), requestOf(b, a, verbs.Read, 1024)
	}
	cpu(b, child, func() {
		var all sync.WaitGroup
		for i := range qps {
			all.Go(func() {
				for n := i; n < b.N; n += len(qps) {
					if err := verbs.PostAll(qps[i:i+1], lists[i:i+1]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// BenchmarkRead1K64Together is one goroutine that posts on 64 queue pairs at once.
func BenchmarkRead1K64Together(b *testing.B) {
	c, a, child := benchConn(b)
	var qps []verbs.QP
	var lists [][]verbs.Request
	for range 64 {
		qps, lists = append(qps, newQP(b, c, a)), append(lists, requestOf(b, a, verbs.Read, 1024))
	}
	cpu(b, child, func() {
		for n := 0; n < b.N; n += 64 {
			if err := verbs.PostAll(qps, lists); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRead1K64Pipelined is one goroutine that asks anew on a queue pair as soon as that is
// answered, as ping does.
func BenchmarkRead1K64Pipelined(b *testing.B) {
	c, a, child := benchConn(b)
	var qps [64]verbs.QP
	var lists [64][]verbs.Request
	for i := range qps {
		qps[i], lists[i] = newQP(b, c, a), requestOf(b, a, verbs.Read, 1024)
	}
	cpu(b, child, func() {
		for n := range b.N + len(qps) {
			i := n % len(qps)
			if n >= len(qps) && n-len(qps) < b.N {
				if err := qps[i].Wait(); err != nil {
					b.Fatal(err)
				}
			}
			if n < b.N {
				if err := qps[i].(verbs.Stager).Stage(lists[i]); err != nil {
					b.Fatal(err)
				}
			}
			if n == len(qps)-1 {
				qps[i].(verbs.Stager).Flush()
			}
		}
	})
}

// BenchmarkRead1K64Windows is one goroutine a queue pair of 8, with 8 READs in a list.
func BenchmarkRead1K64Windows(b *testing.B) {
	c, a, child := benchConn(b)
	var qps [8]verbs.QP
	var lists [8][]verbs.Request
	for i := range qps {
		qps[i] = newQP(b, c, a)
		for range 8 {
			lists[i] = append(lists[i], requestOf(b, a, verbs.Read, 1024)...)
		}
	}
	cpu(b, child, func() {
		var all sync.WaitGroup
		for i := range qps {
			all.Go(func() {
				for n := i * 8; n < b.N; n += 64 {
					if err := verbs.Post(qps[i], lists[i]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// BenchmarkPing is the baseline: plain Go over TCP, with so many requests outstanding.
func BenchmarkPing(b *testing.B) {
	for _, outstanding := range []int{1, 64} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) {
			child := startBenchChild(b, "ping")
			c, err := net.Dial("tcp", child.address)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			out, in := make([]byte, outstanding*pingRequest), make([]byte, outstanding*pingAnswer)
			cpu(b, child, func() {
				if outstanding > 1 {
					ping(b, c, out, in)
					return
				}
				median(b, func() {
					if _, err := c.Write(out); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(c, in); err != nil {
						b.Fatal(err)
					}
				})
			})
		})
	}
}

// ping keeps as many requests outstanding as out holds: for whatever is answered it asks anew.
func ping(b *testing.B, c io.ReadWriter, out, in []byte) {
	outstanding := len(out) / pingRequest
	c.Write(out)
	asked := outstanding
	partial := 0
	for answered := 0; answered < b.N; {
		n, err := c.Read(in)
		if err != nil {
			b.Fatal(err)
		}
		partial += n
		whole := partial / pingAnswer
		partial -= whole * pingAnswer
		answered += whole
		if again := min(whole, b.N-asked); again > 0 {
			asked += again
			if _, err := c.Write(out[:again*pingRequest]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
