package control

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestReachable(t *testing.T) {
	f := func(provider, address, control, want string) {
		t.Helper()
		if got := reachable(provider, address, control); got != want {
			t.Errorf("%s %s by way of %s is %s, want %s", provider, address, control, got, want)
		}
	}
	f("tcp", "[::]:7470", "pool-1.pool.ns.svc:7471", "pool-1.pool.ns.svc:7470")
	f("tcp", "0.0.0.0:7470", "10.0.0.7:7471", "10.0.0.7:7470")
	f("tcp", ":7470", "[fd00::7]:7471", "[fd00::7]:7470")
	f("tcp", "10.0.0.9:7470", "10.0.0.7:7471", "10.0.0.9:7470")
	f("tcp", "other:7470", "10.0.0.7:7471", "other:7470")
	f("tcp", "nonsense", "10.0.0.7:7471", "nonsense")
	f("shm", "/run/dmindex/shm", "10.0.0.7:7471", "/run/dmindex/shm")
}

func TestErrors(t *testing.T) {
	f := func(code codes.Code, want error) {
		t.Helper()
		err := errorOf(status.Error(code, "what the server said"))
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "what the server said") {
			t.Errorf("%v becomes %v, want %v", code, err, want)
		}
	}
	f(codes.NotFound, verbs.ErrRefused)
	f(codes.PermissionDenied, verbs.ErrRefused)
	f(codes.Unauthenticated, verbs.ErrRefused)
	f(codes.Unavailable, verbs.ErrDisconnected)
	f(codes.DeadlineExceeded, verbs.ErrTimeout)
	f(codes.Aborted, ErrStale)
	f(codes.Canceled, verbs.ErrClosed)
	if err := errorOf(allocateError(status.Error(codes.ResourceExhausted, "quota"))); !errors.Is(err, pool.ErrPoolFull) {
		t.Error(err)
	}
	if err := errorOf(status.Error(codes.ResourceExhausted, "tokens")); errors.Is(err, pool.ErrPoolFull) {
		t.Error(err)
	}
}

// TestRefusedRelease: only the ledger's refusal proves that nothing was released, so only after it
// keys may be served again.
func TestRefusedRelease(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if err := errorOf(released(status.Error(code, "what the server said"))); errors.Is(err, pool.ErrHoldings) != (code == codes.OutOfRange) {
			t.Errorf("%v: %v", code, err)
		}
	}
}

func TestNew(t *testing.T) {
	f := func(c Config, want string) {
		t.Helper()
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	one := Server{ID: 1, Control: "localhost:1"}
	f(Config{Servers: []Server{one}}, "identity")
	f(Config{Index: "a"}, "no memory servers")
	f(Config{Index: "a", Name: strings.Repeat("n", 65), Servers: []Server{one}}, "of 65 bytes; choose one of at most 64")
	f(Config{Index: "a", Servers: []Server{one, one}}, "id 1 is used twice")
	f(Config{Index: "a", Servers: []Server{one, {ID: 1 << 15}}}, "32768")
	c, err := New(Config{Index: "a", Servers: []Server{one, {ID: 9, Control: "localhost:2"}}})
	if err != nil {
		t.Fatal(err)
	}
	if ids := c.Servers(); len(ids) != 2 || ids[0] != 1 || ids[1] != 9 {
		t.Error(ids)
	}
	if _, err := c.AllocateChunk(2, 1, 1024, false, time.Second); err == nil || !strings.Contains(err.Error(), "2 is no memory server") {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestAway: a server that is not there and one that does not answer are told apart, within the
// limit.
func TestAway(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	const gone = "127.0.0.1:1" // a port that nobody is given
	c, err := New(Config{Index: "a", Servers: []Server{{ID: 1, Control: gone}, {ID: 2, Control: silent.Addr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	if _, err := c.Register(time.Minute); !errors.Is(err, verbs.ErrDisconnected) || !strings.Contains(err.Error(), gone) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := c.AllocateChunk(2, 1, 1024, false, 100*time.Millisecond); !errors.Is(err, verbs.ErrTimeout) || !strings.Contains(err.Error(), "memory server 2") {
		t.Errorf("nobody answers: %v", err)
	}
	if took := time.Since(start); took > 50*time.Second {
		t.Errorf("it took %v", took)
	}
}
