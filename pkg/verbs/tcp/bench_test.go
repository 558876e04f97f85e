package tcp

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// Client and server share this process, so the CPU figures count both sides.

// benchConn is a connection to a server of this process over loopback.
func benchConn(b *testing.B) (verbs.Conn, *verbs.Arena) {
	b.Helper()
	var tokens verbstest.Tokens
	s, err := NewServer(verbs.ServerOptions{Memory: verbstest.Memory(b, 16<<20, 4096), Admission: &tokens})
	if err != nil {
		b.Fatal(err)
	}
	l := listen(b)
	go s.Serve(l)
	d := NewDevice()
	a, err := d.NewArena(1 << 20)
	if err != nil {
		b.Fatal(err)
	}
	c, err := d.Connect(verbs.Target{Address: l.Addr().String(), Token: tokens.Issue(verbs.Peer{Index: "b", Client: 1})}, 5*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		s.Close()
		a.Close()
	})
	return c, a
}

func listen(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
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

// cpu reports operations a CPU second of this process, next to the time each takes.
func cpu(b *testing.B, run func()) {
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	run()
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	if used > 0 {
		b.ReportMetric(float64(b.N)/(float64(used)/1e9), "op/cpu-s")
	}
}

func one(b *testing.B, op verbs.Op, n int) {
	c, a := benchConn(b)
	qp, list := newQP(b, c, a), requestOf(b, a, op, n)
	b.ReportAllocs()
	b.ResetTimer()
	cpu(b, func() {
		for range b.N {
			if err := verbs.Post(qp, list); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRead64(b *testing.B)  { one(b, verbs.Read, 64) }
func BenchmarkRead1K(b *testing.B)  { one(b, verbs.Read, 1024) }
func BenchmarkWrite1K(b *testing.B) { one(b, verbs.Write, 1024) }
func BenchmarkCAS(b *testing.B)     { one(b, verbs.CompareSwap, 8) }

// BenchmarkRead1K64Goroutines is 64 goroutines with a queue pair each.
func BenchmarkRead1K64Goroutines(b *testing.B) {
	c, a := benchConn(b)
	var qps [64]verbs.QP
	var lists [64][]verbs.Request
	for i := range qps {
		qps[i], lists[i] = newQP(b, c, a), requestOf(b, a, verbs.Read, 1024)
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu(b, func() {
		var all sync.WaitGroup
		for i := range qps {
			all.Go(func() {
				for n := i; n < b.N; n += len(qps) {
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

// BenchmarkRead1K64Together is one goroutine that posts on 64 queue pairs at once.
func BenchmarkRead1K64Together(b *testing.B) {
	c, a := benchConn(b)
	var qps []verbs.QP
	var lists [][]verbs.Request
	for range 64 {
		qps, lists = append(qps, newQP(b, c, a)), append(lists, requestOf(b, a, verbs.Read, 1024))
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu(b, func() {
		for n := 0; n < b.N; n += 64 {
			if err := verbs.PostAll(qps, lists); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRead1K64Windows is one goroutine a queue pair of 8, with 8 READs in a list.
func BenchmarkRead1K64Windows(b *testing.B) {
	c, a := benchConn(b)
	var qps [8]verbs.QP
	var lists [8][]verbs.Request
	for i := range qps {
		qps[i] = newQP(b, c, a)
		for range 8 {
			lists[i] = append(lists[i], requestOf(b, a, verbs.Read, 1024)...)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	cpu(b, func() {
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

const (
	pingRequest = 32
	pingAnswer  = 1024
)

// pingServer answers 1 KiB for every 32 bytes, all that has arrived at once.
func pingServer(b *testing.B) net.Conn {
	b.Helper()
	l := listen(b)
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, 64<<10), make([]byte, 0, 64*pingAnswer*32)
		have := 0
		for {
			n, err := c.Read(in[have:])
			if err != nil {
				return
			}
			have += n
			whole := have / pingRequest
			out = out[:whole*pingAnswer]
			if _, err := c.Write(out); err != nil {
				return
			}
			have = copy(in, in[whole*pingRequest:have])
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// BenchmarkPing is the baseline: plain Go over TCP, with so many requests outstanding.
func BenchmarkPing(b *testing.B) {
	for _, outstanding := range []int{1, 64} {
		b.Run(fmt.Sprint(outstanding), func(b *testing.B) {
			c := pingServer(b)
			out, in := make([]byte, outstanding*pingRequest), make([]byte, outstanding*pingAnswer)
			b.ReportAllocs()
			b.ResetTimer()
			cpu(b, func() { ping(b, c, out, in) })
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
