package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// TestLocalCache: the caches of a local index together are a quarter of its memory unless told, and
// none is smaller than the design's default; what was asked for is taken, or refused with a reason.
func TestLocalCache(t *testing.T) {
	f := func(memoryServers, computeServers int, memory, asked uint64, want int, refusal string) {
		t.Helper()
		c := &local.Config{MemoryServers: memoryServers, ComputeServers: computeServers, MemoryBytes: memory}
		got, err := localCache(c, asked)
		if got != want || (err != nil) != (refusal != "") || err != nil && !strings.Contains(err.Error(), refusal) {
			t.Errorf("%d memory servers of %d bytes, %d compute servers, asked for %d: %d, %v; want %d, %q", memoryServers, memory, computeServers, asked, got, err, want, refusal)
		}
	}
	f(2, 2, 1<<30, 0, 256<<20, "")
	f(2, 1, 1<<30, 0, 512<<20, "")
	f(1, 64, 1<<30, 0, 0, "")
	f(2, 2, 256<<20, 0, 0, "")
	f(0, 2, 1<<30, 0, 0, "")
	f(2, 0, 1<<30, 0, 0, "")
	f(2, 2, 1<<30, 1<<20, 1<<20, "")
	f(2, 2, 1<<30, 2<<30, 2<<30, "")
	f(2, 2, 1<<20, 64<<20, 64<<20, "")
	f(2, 2, 1<<30, 1, 0, "1Mi at least")
	f(2, 2, 1<<30, 1<<40, 0, "a larger --memory")
}

// TestToldWaitsForNobody: what is said is written once the index is announced, and while nothing
// reads it the one who says it goes on.
func TestToldWaitsForNobody(t *testing.T) {
	r, w := io.Pipe()
	l := newTold(w)
	l.say("too early")
	l.begin(func(io.Writer) {})
	for i := range 2 * mostTold {
		l.say(fmt.Sprint(i))
	}
	read := make(chan []string)
	go func() {
		b, _ := io.ReadAll(r)
		read <- strings.Fields(string(b))
	}()
	l.end()
	w.Close()
	got := <-read
	if len(got) < mostTold || len(got) > mostTold+1 || !slices.Equal(got[:3], []string{"0", "1", "2"}) {
		t.Errorf("%q", got)
	}
}

// TestSecondLocal: an index whose addresses are taken says with which flags it gets others.
func TestSecondLocal(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--listen-rpc"} {
		args := []string{"local", "--memory", "64Mi", "--listen", "127.0.0.1:0", "--listen-rpc", "127.0.0.1:0", flag, taken.Addr().String()}
		cmd := root()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "give --listen and --listen-rpc other ports") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
