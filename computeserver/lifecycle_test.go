package computeserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/api/rpc/dostream"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/index"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (r *running) get(t testing.TB, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + r.addresses.Metrics + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// TestDrainUnderLoad shuts a server down while clients send pipelines: every pipeline that was sent
// whole is answered whole, or not at all.
func TestDrainUnderLoad(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.DrainLimit = 2 * time.Second }, 1)
	var pipelines atomic.Int64
	var clients sync.WaitGroup
	send, want := "", ""
	for i := range 50 {
		send += computeservertest.Command("SET", fmt.Sprint("k", i), "v") + computeservertest.Command("GET", fmt.Sprint("k", i))
		want += "+OK\r\n$1\r\nv\r\n"
	}
	for range 4 {
		r := c.raw(1)
		clients.Go(func() {
			for {
				if _, err := r.NC.Write([]byte(send)); err != nil {
					return
				}
				got := make([]byte, len(want))
				n, err := io.ReadFull(r.NC, got)
				refused := strings.HasPrefix(string(got[:n]), "-UNAVAILABLE this server is shutting down")
				if n == 0 || refused {
					return // between two pipelines, as it should be
				}
				if err != nil || string(got) != want {
					t.Errorf("a pipeline was answered with %d bytes of %d: %.80q: %v", n, len(want), got[:n], err)
					return
				}
				pipelines.Add(1)
			}
		})
	}
	silent := c.raw(1)
	silent.Send("PING\r\n") // it is accepted once that is answered
	silent.Expect("+PONG\r\n")
	computeservertest.Await(t, "pipelines run", func() bool { return pipelines.Load() > 20 })
	c.stop(1)
	if got := silent.ExpectEnd(); got != "" {
		t.Errorf("a silent connection got %q", got)
	}
	clients.Wait()
}

// TestKilledServer ends a server without warning while the SDK runs: with any server serving every
// key, nothing that is safe to repeat fails, and a scan that is under way goes on elsewhere.
func TestKilledServer(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1, 2, 3)
	c.split([]uint32{1, 2, 3}, "k3", "k6")
	cl, ctx := c.sdk(1, 2, 3), context.Background()
	var pairs []client.Pair
	for i := range 5000 {
		pairs = append(pairs, client.Pair{Key: fmt.Appendf(nil, "k%04d", i), Value: make([]byte, 500)})
	}
	if err := cl.PutMany(ctx, pairs); err != nil {
		t.Fatal(err)
	}
	n := 0
	for pair, err := range cl.Scan(ctx, nil, nil, client.ScanOptions{}) {
		if err != nil || string(pair.Key) != fmt.Sprintf("k%04d", n) {
			t.Fatalf("pair %d is %q: %v", n, pair.Key, err)
		}
		if n++; n == 10 || n == 1000 {
			kill := c.servers[uint32(1+n/1000)]
			kill.rpc.Stop() // cuts its connections, as a crash does
			_ = kill.rpcListener.Close()
		}
	}
	if n != len(pairs) {
		t.Errorf("the scan gave %d pairs of %d", n, len(pairs))
	}
	for i := range 100 {
		key := fmt.Appendf(nil, "k%04d", i)
		if _, err := cl.Get(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := cl.Put(ctx, key, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnerAway asks for keys whose owner does not answer: an error that names range and server,
// within the limit. Unless the time was over before the connection was refused, it says that nobody
// was there.
func TestOwnerAway(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) { cfg.Limit = 300 * time.Millisecond }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	address := c.servers[2].addresses.RPC
	c.servers[2].rpc.Stop()
	r := c.raw(1)
	for _, command := range []string{computeservertest.Command("GET", "x"), computeservertest.Command("SET", "x", "1"), computeservertest.Command("MGET", "a", "x"), computeservertest.Command("RANGE", "", "")} {
		computeservertest.Await(t, fmt.Sprintf("%q is unavailable", command), func() bool {
			r.Send(command)
			line := r.Line()
			for _, part := range []string{`keys ["m", end)`, "server 2 (pod-2)", address} {
				if !strings.Contains(line, part) {
					t.Errorf("%q: the error lacks %q: %s", command, part, line)
				}
			}
			return strings.HasPrefix(line, "-UNAVAILABLE ")
		})
	}
	r.Send(computeservertest.Command("SET", "a", "1") + computeservertest.Command("GET", "a"))
	r.Expect("+OK\r\n$1\r\n1\r\n")
}

// TestForwardingEnds gives two servers maps in which each says that the other is the owner: a
// request goes there once, is not sent back, and is answered when the maps agree.
func TestForwardingEnds(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	m := c.split([]uint32{1, 2}, "m")
	other := *m
	other.Generation = 2
	other.Ranges = append(other.Ranges[:0:0], m.Ranges...)
	other.Ranges[0].Owner, other.Ranges[1].Owner = 2, 1
	c.maps[1].Set(t, &other) // server 1: "a" belongs to 2; server 2 still says: to 1
	computeservertest.Await(t, "server 1 has generation 2", func() bool { return c.servers[1].core.View.Generation() == 2 })
	r := c.raw(1)
	r.Send(computeservertest.Command("SET", "a", "1"))
	one, two := c.servers[1].core.Count, c.servers[2].core.Count
	computeservertest.Await(t, "the request was refused and tried again", func() bool { return one.Forwarded.Load() >= 3 })
	if n := two.Forwarded.Load(); n != 0 {
		t.Errorf("server 2 sent %d forwarded requests on", n)
	}
	c.maps[2].Set(t, &other)
	r.Expect("+OK\r\n")
}

func TestDataLost(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	r, cl := c.raw(1), c.sdk(1)
	r.Send(computeservertest.Command("SET", "a", "1"))
	r.Expect("+OK\r\n")
	if code, body := c.servers[1].get(t, "/readyz"); code != 200 {
		t.Errorf("/readyz before: %d %s", code, body)
	}
	c.store.Fail(fmt.Errorf("memory server 2 (mem-1) came back without its content: %w", index.ErrDataLost))
	r.Send(computeservertest.Command("GET", "a"))
	if line := r.Line(); !strings.HasPrefix(line, "-DATALOST ") || !strings.Contains(line, "mem-1") {
		t.Errorf("the first answer is %q", line)
	}
	c.store.Fail(nil) // it does not come back by itself
	for _, command := range []string{computeservertest.Command("GET", "a"), computeservertest.Command("SET", "a", "1"), computeservertest.Command("MGET", "a"), computeservertest.Command("RANGE", "", ""), computeservertest.Command("SCAN", "0"), computeservertest.Command("DBSIZE")} {
		r.Send(command)
		if line := r.Line(); !strings.HasPrefix(line, "-DATALOST ") {
			t.Errorf("%q was answered with %q", command, line)
		}
	}
	if err := cl.Put(context.Background(), []byte("a"), nil); !errors.Is(err, client.ErrDataLost) {
		t.Errorf("the SDK got %v", err)
	}
	for _, err := range cl.Scan(context.Background(), nil, nil, client.ScanOptions{}) {
		if !errors.Is(err, client.ErrDataLost) {
			t.Errorf("the SDK's scan got %v", err)
		}
	}
	if code, body := c.servers[1].get(t, "/readyz"); code != 503 || !strings.Contains(body, "mem-1") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, _ := c.servers[1].get(t, "/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
}

// TestSessionsAreReplaced breaks sessions, then the whole index: the server goes on by itself once
// they work again.
func TestSessionsAreReplaced(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *Config) { cfg.Limit = 500 * time.Millisecond }, 1)
	r := c.raw(1)
	r.Send(computeservertest.Command("SET", "a", "1"))
	r.Expect("+OK\r\n")
	c.store.Fail(fmt.Errorf("memory server 1 is away: %w", index.ErrUnknown))
	r.Send(computeservertest.Command("SET", "a", "2"))
	if line := r.Line(); !strings.HasPrefix(line, "-UNKNOWN ") {
		t.Errorf("a change without confirmation was answered with %q", line)
	}
	computeservertest.Await(t, "/readyz says no", func() bool {
		// no new session can be made either: the index is opened anew, and is well until the next
		// one
		r.Send(computeservertest.Command("GET", "a"))
		if line := r.Line(); !strings.HasPrefix(line, "-UN") {
			t.Errorf("without a session: %q", line)
		}
		code, _ := c.servers[1].get(t, "/readyz")
		return code == 503
	})
	c.store.Fail(nil)
	computeservertest.Await(t, "the server answers again", func() bool {
		r.Send(computeservertest.Command("GET", "a"))
		return r.Line() == "$1\r\n" && r.Line() == "1\r\n"
	})
}

func TestMetrics(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	c.link(1, 2) // so that each is forwarded once
	r := c.raw(1)
	r.Send(computeservertest.Command("GET", "a") + computeservertest.Command("SET", "x", "1") + computeservertest.Command("GET", "x") + computeservertest.Command("NOPE"))
	r.Expect("$-1\r\n+OK\r\n$1\r\n1\r\n-ERR unknown command 'NOPE', with args beginning with: \r\n")
	// The tally of a pipeline is published before its replies are sent.
	_, body := c.servers[1].get(t, "/metrics")
	for _, line := range []string{
		`dmindex_compute_requests_total{front_end="resp",operation="get",outcome="miss"} 1`,
		`dmindex_compute_requests_total{front_end="resp",operation="get",outcome="ok"} 1`,
		`dmindex_compute_requests_total{front_end="resp",operation="set",outcome="ok"} 1`,
		`dmindex_compute_requests_total{front_end="resp",operation="unknown",outcome="error"} 1`,
		`dmindex_compute_request_seconds_count{front_end="resp"} 4`,
		`dmindex_compute_pipeline_requests_bucket{front_end="resp",le="2"} 0`, `dmindex_compute_pipeline_requests_bucket{front_end="resp",le="4"} 1`,
		`dmindex_compute_pipeline_requests_sum{front_end="resp"} 4`, `dmindex_compute_pipeline_requests_count{front_end="resp"} 1`,
		"dmindex_compute_log_waits_total 0", "dmindex_compute_log_wait_seconds_total 0", "dmindex_compute_log_round_trips_total 0",
		"dmindex_compute_forwarded_total 2", "dmindex_compute_resp_connections 1", "dmindex_compute_map_generation 1", "dmindex_compute_ready 1",
		`dmindex_compute_verbs_total{verb="READ"} 0`, "dmindex_compute_cache_bytes 0",
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}

func TestRPCAnswersInvalid(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	l := c.link(1, 1)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	reply, err := l.stream.Do(ctx, []*rpcv1.Operation{{Kind: 77, Key: []byte("a")}, {Kind: rpcv1.Operation_UPSERT, Key: []byte("a"), Value: make([]byte, 9000)}})
	if err != nil || reply.Outcomes[0].Code != rpcv1.Outcome_UNSUPPORTED || reply.Outcomes[1].Code != rpcv1.Outcome_INVALID {
		t.Errorf("unknown kind, long value: %v, %v", reply.Outcomes, err)
	}
	stream, err := l.client.Do(ctx)
	if err == nil {
		err = stream.Send(&rpcv1.DoRequest{Id: 1})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil || !strings.Contains(err.Error(), "1 to 1024 are possible") {
		t.Errorf("an empty batch: %v", err)
	}
	for name, want := range map[string]codes.Code{"": codes.OK, computeservertest.Index: codes.OK, computeservertest.Index + "/1": codes.FailedPrecondition} {
		scan, err := l.client.Scan(ctx, &rpcv1.ScanRequest{Index: name})
		if err == nil {
			_, err = scan.Recv()
		}
		if err == io.EOF {
			err = nil
		}
		if status.Code(err) != want {
			t.Errorf("a scan of the index %q: %v", name, err)
		}
		ops := dostream.New(l.client, dostream.Options{Index: name})
		_, err = ops.Do(ctx, []*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: []byte("a"), Value: []byte(name)}})
		var refused *dostream.Error
		switch {
		case want == codes.OK && err == nil:
		case !errors.As(err, &refused) || refused.Sent || status.Code(refused.Err) != want:
			t.Errorf("an operation for the index %q: %v", name, err)
		}
		ops.Close()
	}
	if reply, err := l.stream.Do(ctx, []*rpcv1.Operation{lookup("a")}); err != nil || strings.HasSuffix(string(reply.Outcomes[0].Value), "/1") {
		t.Errorf("what was meant for another index: %v, %v", reply.Outcomes, err)
	}
	describe, err := l.client.Describe(ctx, &rpcv1.DescribeComputeRequest{})
	if err != nil || describe.Id != 1 || describe.Index != computeservertest.Index || describe.MapGeneration != 1 {
		t.Errorf("describe: %v, %v", describe, err)
	}
	drained, err := l.client.Drain(ctx, &rpcv1.DrainComputeRequest{LimitMilliseconds: 2000})
	if err != nil || drained.Unfinished != 0 {
		t.Errorf("drain: %v, %v", drained, err)
	}
	if code, _ := c.servers[1].get(t, "/readyz"); code != 503 {
		t.Errorf("/readyz of a drained server: %d", code)
	}
	var refused *dostream.Error
	if _, err = l.stream.Do(ctx, []*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: []byte("a")}}); !errors.As(err, &refused) || refused.Sent {
		t.Errorf("after the drain: %v; it must be plain that nothing was done", err)
	}
}

// TestBlockedServerAnswersNothing: a server whose index is open and well answers nothing once the
// operator says that data was lost.
func TestBlockedServerAnswersNothing(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	l := c.link(1, 1)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	put := []*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: []byte("a"), Value: []byte("1")}}
	reply, err := l.stream.Do(ctx, put)
	if err != nil || reply.Outcomes[0].Code != rpcv1.Outcome_OK {
		t.Fatalf("before: %v, %v", reply, err)
	}
	r := c.raw(1)
	if _, err := l.client.Block(ctx, &rpcv1.BlockComputeRequest{}); err == nil || !strings.Contains(err.Error(), "say what was lost") {
		t.Errorf("block without a reason: %v", err)
	}
	if _, err := l.client.Block(ctx, &rpcv1.BlockComputeRequest{Reason: "memory server 7 is gone"}); err != nil {
		t.Fatal(err)
	}
	reply, err = l.stream.Do(ctx, []*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: []byte("a")}})
	if err != nil || reply.Outcomes[0].Code != rpcv1.Outcome_DATA_LOST || !strings.Contains(reply.Outcomes[0].Message, "memory server 7 is gone") {
		t.Errorf("lookup: %v, %v", reply, err)
	}
	if _, err := r.NC.Write([]byte(computeservertest.Command("GET", "a"))); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r.NC).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "-DATALOST") {
		t.Errorf("GET over RESP: %q, %v", line, err)
	}
	if code, body := c.servers[1].get(t, "/readyz"); code != 503 || !strings.Contains(body, "memory server 7 is gone") {
		t.Errorf("/readyz: %d %s", code, body)
	}
}

// valueOf is the number behind the beginning of a line of /metrics; 0 if there is no such line.
func valueOf(t testing.TB, body, beginning string) (n int) {
	t.Helper()
	for _, line := range strings.Split(body, "\n") {
		if rest, ok := strings.CutPrefix(line, beginning); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}
