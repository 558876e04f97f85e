//go:build ibv

package rdma

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/partition"
)

// podArgs are the arguments of a pod's container as the operator writes them; see
// controllers/internal/build.
func podArgs(t *testing.T, pod string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(setting(t, "RDMA_ARGS"), "machine_"+pod+".args"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// container runs the image's program in a root of its own, as a pod's container does.
func container(t *testing.T, root string, args ...string) {
	t.Helper()
	c := exec.Command("chroot", append([]string{root, "/dmindex"}, args...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("%v ended with %v", args[:2], err)
		}
	})
}

// TestPods: a memory server on another machine that is reached by RDMA, one that is reached by TCP,
// and a compute server that speaks both, each with the arguments of the operator's pods and out of
// the image, serve RESP.
func TestPods(t *testing.T) {
	const keys = 400
	tls, root := setting(t, "RDMA_TLS"), setting(t, "RDMA_COMPUTE_ROOT")
	// the compute server has the port
	container(t, setting(t, "RDMA_SLOW_ROOT"), append(podArgs(t, "slow"), "--metrics=")...)

	files, err := identity.Open(filepath.Join(tls, "operator"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	served := config.Index{Identity: indexID, Name: "demo", Design: "sherman", KeyType: config.KeyBytes, MaxKeyBytes: 16, MaxValueBytes: 64, Durability: "Memory", Routing: config.RoutingAny}
	members := []config.MemoryServer{{ID: 1, Control: "memory:7471", Transport: config.TransportIBV}, {ID: 1025, Control: "slow:7471", Transport: config.TransportTCP}}
	var memory []rpcv1.MemoryClient
	for i, m := range members {
		conn, err := control.Dial(m.Control, files)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		c := rpcv1.NewMemoryClient(conn)
		has, err := c.Describe(ctx, &rpcv1.DescribeMemoryRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatalf("memory server %s: %v", m.Control, err)
		}
		if want := []string{"ibv", "tcp"}[i]; len(has.Transports) != 1 || has.Transports[0].Provider != want {
			t.Errorf("memory server %s offers %v, want %s alone", m.Control, has.Transports, want)
		}
		// of an earlier test
		if _, err := c.Evict(ctx, &rpcv1.EvictRequest{Index: indexID}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Admit(ctx, &rpcv1.AdmitRequest{Index: indexID, QuotaChunks: 20}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"rxe0", ""}[i]; has.Transports[0].Device != want {
			t.Errorf("memory server %s is on device %q, want %q", m.Control, has.Transports[0].Device, want)
		}
		m.Incarnation = has.Incarnation
		served.MemoryServers = append(served.MemoryServers, m)
		memory = append(memory, c)
	}
	text, err := json.Marshal(served)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, config.IndexFile), text, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, config.PasswordFile), []byte("secret"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := partition.EqualWidth(indexID, []partition.Server{{ID: 1, Name: "demo-compute-0", RPC: "127.0.0.1:7480", RESP: "127.0.0.1:6379"}}, partition.Bytes, served.MaxKeyBytes)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := m.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := memory[0].SwapMap(ctx, &rpcv1.SwapMapRequest{Index: indexID, Generation: m.Generation, Map: encoded}); err != nil {
		t.Fatal(err)
	}
	container(t, root, podArgs(t, "compute")...)

	options := redis.Options{Addr: "127.0.0.1:6379", Password: "secret", Protocol: 2, DisableIdentity: true, ReadTimeout: limit, MaxRetries: -1}
	patient := options // while the server starts
	patient.MaxRetries, patient.MinRetryBackoff, patient.MaxRetryBackoff = 10, 100*time.Millisecond, time.Second
	first := redis.NewClient(&patient)
	defer first.Close()
	for err = first.Set(ctx, "first", "1", 0).Err(); err != nil && ctx.Err() == nil; {
		err = first.Set(ctx, "first", "1", 0).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&options)
	defer client.Close()
	value := func(n int) string { return strings.Repeat(fmt.Sprint(n, " "), 4) }
	// few: what a pipeline does not begin within its limit is refused, and this machine is slow
	const together = 10
	for n := 0; n < keys; n += together {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := n; i < n+together; i++ {
				p.Set(ctx, fmt.Sprintf("key-%08d", i), value(i), 0)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < keys; n += 7 {
		if got, err := client.Get(ctx, fmt.Sprintf("key-%08d", n)).Result(); err != nil || got != value(n) {
			t.Fatalf("key %d: %q, %v", n, got, err)
		}
	}
	paths := described(t, ctx, "http://127.0.0.1:9090/describe").Paths
	if len(paths) != 2 || paths[0].Server != 1 || paths[0].Provider != "ibv" || paths[0].Device != "rxe0" ||
		paths[1].Server != 1025 || paths[1].Provider != "tcp" || paths[1].Device != "" {
		t.Errorf("the compute server's paths are %v", paths)
	}
	for i, c := range memory {
		has, err := c.Describe(ctx, &rpcv1.DescribeMemoryRequest{})
		if err != nil || len(has.Indexes) != 1 || has.Indexes[0].Clients == 0 || has.Indexes[0].UsedChunks == 0 {
			t.Errorf("memory server %s: %v, %v", members[i].Control, has.GetIndexes(), err)
			continue
		}
		t.Logf("%s over %s: %d chunks in use, %d connections", members[i].Control, has.Transports[0].Provider, has.Indexes[0].UsedChunks, has.Indexes[0].Clients)
	}
}

// described is what a compute server says of itself at the port of its metrics.
func described(t *testing.T, ctx context.Context, url string) *rpcv1.DescribeComputeReply {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	reply := &rpcv1.DescribeComputeReply{}
	if err := protojson.Unmarshal(text, reply); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return reply
}
