package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

// free is an address that nobody listens on, and that nobody else will be given: connections and
// listeners of other tests have other hosts.
func free(t *testing.T) string {
	t.Helper()
	pid := os.Getpid()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 64+pid>>16, pid>>8&0xff, pid&0xff))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestStart: while the node is unfit the ports say why, in its newest words; once it is fit the
// server has its ports and starts.
func TestStart(t *testing.T) {
	ports := Ports{GRPC: free(t), Metrics: free(t)}
	var state atomic.Int32
	check := func() error {
		switch state.Load() {
		case 0:
			return fmt.Errorf("%w: mlx5_0/1 is not active: bring its link up", ibv.ErrNoDevice)
		case 1:
			return fmt.Errorf("%w: give it IPC_LOCK", ibv.ErrMemlock)
		}
		return nil
	}
	start := func() (string, error) {
		l, err := net.Listen("tcp", ports.GRPC)
		if err == nil {
			l.Close()
		}
		return "server", err
	}
	type outcome struct {
		server string
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		s, err := Start(t.Context(), check, start, ports, 10*time.Millisecond, slog.New(slog.DiscardHandler))
		ended <- outcome{s, err}
	}()
	conn, err := grpc.NewClient(ports.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	says := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			_, err := rpcv1.NewMemoryClient(conn).Describe(ctx, &rpcv1.DescribeMemoryRequest{}, grpc.WaitForReady(true))
			if status.Code(err) != codes.FailedPrecondition {
				t.Fatalf("describe: %v", err)
			}
			if strings.Contains(err.Error(), want) {
				break
			}
		}
		for path, want := range map[string]string{"/healthz": "ok", "/readyz": want} {
			r, err := http.Get("http://" + ports.Metrics + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r.Body)
			r.Body.Close()
			if !strings.Contains(string(body), want) || (r.StatusCode == http.StatusOK) != (path == "/healthz") {
				t.Errorf("%s: %d %s, want %s", path, r.StatusCode, body, want)
			}
		}
	}
	says("bring its link up")
	for range 2 * maxConnections { // they say nothing, and keep no probe out
		c, err := net.Dial("tcp", ports.Metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	state.Store(1)
	says("give it IPC_LOCK")
	state.Store(2)
	if o := <-ended; o.err != nil || o.server != "server" {
		t.Errorf("started: %+v", o)
	}
}

// TestStartEnds: what is no matter of the node ends the server, and so does the end of the context.
func TestStartEnds(t *testing.T) {
	wrong := errors.New("wrong flag")
	log := slog.New(slog.DiscardHandler)
	_, err := Start(t.Context(), func() error { return nil }, func() (int, error) { return 0, wrong }, Ports{}, time.Hour, log)
	if !errors.Is(err, wrong) {
		t.Errorf("another error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, func() error { return ibv.ErrNoDevice }, func() (int, error) { return 0, nil }, Ports{GRPC: "127.0.0.1:0"}, time.Hour, log)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the end: %v", err)
	}
	_, err = Start(t.Context(), func() error { return ibv.ErrNoDevice }, func() (int, error) { return 0, nil }, Ports{GRPC: "nonsense"}, time.Hour, log)
	if err == nil || Unfit(err) {
		t.Errorf("ports that cannot be had: %v", err)
	}
}

func TestHugePages(t *testing.T) {
	f := func(need, page, left, free uint64, want string) {
		t.Helper()
		err := roomFor(need, page, left, free)
		if got := fmt.Sprint(err); !strings.Contains(got, want) || (err != nil) != errors.Is(err, errHugePages) {
			t.Errorf("%d of pages of %d: %s, want %s", need, page, got, want)
		}
	}
	f(4<<20, 2<<20, 4<<20, 4<<20, "nil")
	f(4<<20, 2<<20, 2<<20, 4<<20, "ask for as many hugepages-2Mi")
	f(4<<30, 1<<30, 4<<30, 3<<30, "vm.nr_hugepages")
	n := Needs{HugeDir: t.TempDir(), HugeBytes: 1 << 50}
	if err := n.checkHugePages(); err != nil {
		t.Errorf("a directory of ordinary memory: %v", err)
	}
}

// TestHidden: devices of another network namespace are told from none.
func TestHidden(t *testing.T) {
	dir := t.TempDir()
	nodes, devices := filepath.Join(dir, "uverbs*"), filepath.Join(dir, "mlx*")
	f := func(file string, want bool) {
		t.Helper()
		if file != "" {
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := hidden(nodes, devices); got != want {
			t.Errorf("with %q: %v", file, got)
		}
	}
	f("", false)
	f("uverbs0", true)
	f("mlx5_0", false)
}
