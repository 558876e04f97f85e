package computeserver

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
)

// waitingKeys are servers 1 and 2, of which 2 has the keys from m on, but for those from x on: a
// client holds these that lives, until release. limit is that of requests.
func waitingKeys(t *testing.T, limit time.Duration) (c *cluster, release func()) {
	return waitingKeysOf(t, owners(t), func(cfg *Config) { cfg.Limit = limit })
}

// waitingKeysOf is waitingKeys of servers that are otherwise as configure says.
func waitingKeysOf(t *testing.T, own, configure func(*Config)) (c *cluster, release func()) {
	other := Config{ID: 9}
	own(&other)
	opened, err := other.Open()
	if err != nil {
		t.Fatal(err)
	}
	holder := opened.(*ownedIndex)
	got, err := holder.Acquire(pool.Claim{Start: []byte("x")})
	if err != nil || len(got.Own) != 1 {
		t.Fatal(got, err)
	}
	c = newCluster(t, config.RoutingOwner, func(cfg *Config) {
		own(cfg)
		configure(cfg)
	}, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(2)
	r.Send(computeservertest.Command("SET", "n", "1"))
	r.Expect("+OK\r\n")
	return c, func() {
		if err := holder.Release([]byte("x"), nil, got.Own[0].Epoch); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaitingKeysStopNoOthers: programs ask server 1 for keys of server 2. As many wait for keys
// that it cannot take over yet as a stream between servers has workers, each in a batch of its own.
// A key that it serves is answered meanwhile, and the others once there is a server for theirs.
func TestWaitingKeysStopNoOthers(t *testing.T) {
	c, release := waitingKeys(t, 10*time.Second)
	var waiting []*computeservertest.Conn
	for n := range rpcWorkers {
		r := c.raw(1)
		r.Send(computeservertest.Command("GET", fmt.Sprint("x", n)))
		waiting = append(waiting, r)
		computeservertest.Await(t, "server 2 has the request", func() bool { return c.servers[2].calls.running.Load() > int64(n) })
	}
	r, began := c.raw(1), time.Now()
	r.Send(computeservertest.Command("GET", "n"))
	r.Expect("$1\r\n1\r\n")
	if took := time.Since(began); took > c.servers[1].core.Limit/2 { // they wait for all of it
		t.Errorf("a key that is served was read after %v", took)
	}
	release()
	for _, r := range waiting {
		r.Expect("$-1\r\n") // and no error, as when its time is over
	}
}

// TestAnswersInParts: operations of strangers travel in one batch. An outcome leaves when it is
// there, to a sender that takes outcomes in parts, and each comes once; one that does not gets all
// at once. What waits is bounded.
func TestAnswersInParts(t *testing.T) {
	c, release := waitingKeys(t, time.Minute)
	const most = 64
	c.servers[2].calls.mostParked = most
	b, old := c.batches(2), c.batches(2)
	send := func(keys ...string) {
		var ops []*rpcv1.Operation
		for _, key := range keys {
			ops = append(ops, lookup(key))
		}
		b.next++
		if err := b.stream.Send(&rpcv1.DoRequest{Id: b.next, Operations: ops, Forwarded: true, InParts: true}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(codes ...rpcv1.Outcome_Code) {
		t.Helper()
		reply := b.receive()
		got := make([]rpcv1.Outcome_Code, len(reply.Outcomes))
		for i, o := range reply.Outcomes {
			got[i] = o.Code
		}
		if fmt.Sprint(got) != fmt.Sprint(codes) {
			t.Fatalf("batch %d is answered %v; want %v", reply.Id, got, codes)
		}
	}
	old.send(0, lookup("x"), lookup("n"))
	for n := range most - 1 {
		send("x", "n", "a", "xy")
		if n >= 32 { // as many are under way
			expect(rpcv1.Outcome_LATER, rpcv1.Outcome_OK, rpcv1.Outcome_NOT_OWNER, rpcv1.Outcome_LATER)
		}
	}
	for range 32 {
		expect(rpcv1.Outcome_LATER, rpcv1.Outcome_OK, rpcv1.Outcome_NOT_OWNER, rpcv1.Outcome_LATER)
	}
	send("x", "n", "y") // takes the last place
	expect(rpcv1.Outcome_LATER, rpcv1.Outcome_OK, rpcv1.Outcome_LATER)
	send("x", "n")
	expect(rpcv1.Outcome_UNAVAILABLE, rpcv1.Outcome_OK)
	release()
	answered := map[uint64]bool{}
	for range most {
		reply := b.receive()
		if len(reply.Outcomes) != 2 || answered[reply.Id] || reply.Outcomes[0].Code != rpcv1.Outcome_NOT_FOUND || reply.Outcomes[1].Code != rpcv1.Outcome_NOT_FOUND {
			t.Fatalf("after the keys have a server: %v", reply)
		}
		answered[reply.Id] = true
	}
	if reply := old.receive(); len(reply.Outcomes) != 2 || reply.Outcomes[0].Code != rpcv1.Outcome_NOT_FOUND || string(reply.Outcomes[1].Value) != "1" {
		t.Fatalf("a sender that takes no answers in parts got %v", reply)
	}
	computeservertest.Await(t, "nothing is parked, and nothing runs", func() bool {
		p := c.servers[2].calls
		return p.running.Load() == 0 && p.pending.Load() == 0
	})
}

// TestValuesThatWaitAreBounded: what is there of a batch that is answered at once waits for the
// rest. It may be far more than the batch. So few large batches wait, and of the others what is
// there is answered.
func TestValuesThatWaitAreBounded(t *testing.T) {
	c, release := waitingKeys(t, time.Minute)
	b := c.batches(2)
	ops := []*rpcv1.Operation{lookup("x")}
	for range rpcMaxOperations - 1 {
		ops = append(ops, lookup("n"))
	}
	most := rpcParkedValues / (rpcMaxOperations * c.servers[2].core.Index.MaxValueBytes)
	for range most + 1 {
		b.send(0, ops...)
	}
	if out := b.receive().Outcomes; out[0].Code != rpcv1.Outcome_UNAVAILABLE || string(out[1].Value) != "1" {
		t.Errorf("one batch more than may wait is answered %v, %v", out[0], out[1])
	}
	release()
	for range most {
		if out := b.receive().Outcomes; out[0].Code != rpcv1.Outcome_NOT_FOUND || string(out[1].Value) != "1" {
			t.Errorf("after the keys have a server: %v, %v", out[0], out[1])
		}
	}
	b.send(0, ops...)
	if out := b.receive().Outcomes; out[0].Code != rpcv1.Outcome_NOT_FOUND {
		t.Errorf("%v", out[0])
	}
}

// TestForwardedAnswersInParts: a program whose map is old sends server 1 a batch with keys of both
// servers, also such that wait. Server 1 answers its own at once, and those of server 2 as they
// come from there.
func TestForwardedAnswersInParts(t *testing.T) {
	c, release := waitingKeys(t, time.Minute)
	b := c.batches(1)
	if err := b.stream.Send(&rpcv1.DoRequest{Id: 1, Operations: []*rpcv1.Operation{lookup("x"), lookup("a"), lookup("n"), lookup("y")}, InParts: true}); err != nil {
		t.Fatal(err)
	}
	var codes []rpcv1.Outcome_Code // of the operations that wait
	for waiting := 4; waiting > 2; {
		reply := b.receive()
		if len(reply.Outcomes) != waiting {
			t.Fatalf("%v; %d operations wait", reply, waiting)
		}
		codes = codes[:0]
		for _, o := range reply.Outcomes {
			codes = append(codes, o.Code)
			if o.Code != rpcv1.Outcome_LATER {
				waiting--
			}
		}
	}
	if codes[0] != rpcv1.Outcome_LATER || codes[len(codes)-1] != rpcv1.Outcome_LATER {
		t.Fatalf("the last answer before the keys have a server is %v", codes)
	}
	release()
	for waiting := 2; waiting > 0; {
		reply := b.receive()
		if len(reply.Outcomes) != waiting {
			t.Fatalf("%v; %d operations wait", reply, waiting)
		}
		for _, o := range reply.Outcomes {
			if o.Code == rpcv1.Outcome_NOT_FOUND {
				waiting--
			} else if o.Code != rpcv1.Outcome_LATER {
				t.Fatalf("after the keys have a server: %v", reply)
			}
		}
	}
}

// TestOneAnswerForWhatCame: what another server answers together is answered together, so a large
// batch with one operation that waits does not cost as many answers as it has operations.
func TestOneAnswerForWhatCame(t *testing.T) {
	c, release := waitingKeys(t, time.Minute)
	b := c.batches(1)
	ops := []*rpcv1.Operation{lookup("x")}
	for n := range rpcMaxOperations - 1 {
		ops = append(ops, lookup(fmt.Sprint("n", n)))
	}
	if err := b.stream.Send(&rpcv1.DoRequest{Id: 1, Operations: ops, InParts: true}); err != nil {
		t.Fatal(err)
	}
	const most = 4 // all wait for server 2; all but one, or in two parts; the last
	answers, said := 0, 0
	for waiting := len(ops); waiting > 0; answers++ {
		reply := b.receive()
		said += len(reply.Outcomes)
		for _, o := range reply.Outcomes {
			if o.Code != rpcv1.Outcome_LATER {
				waiting--
			}
		}
		if waiting == 1 {
			release()
		}
	}
	if answers > most {
		t.Errorf("%d operations took %d answers with %d outcomes together", len(ops), answers, said)
	}
}

// TestParkedBatchesEnd: a stream whose sender is gone keeps nothing that waits until its time is
// over.
func TestParkedBatchesEnd(t *testing.T) {
	c, _ := waitingKeys(t, time.Minute)
	b := c.batches(2)
	if err := b.stream.Send(&rpcv1.DoRequest{Id: 1, Operations: []*rpcv1.Operation{lookup("x"), lookup("n")}, InParts: true}); err != nil {
		t.Fatal(err)
	}
	b.receive()
	began := time.Now()
	if err := c.link(2, 2).conn.Close(); err != nil {
		t.Fatal(err)
	}
	computeservertest.Await(t, "nothing runs", func() bool { return c.servers[2].calls.running.Load() == 0 })
	if took, limit := time.Since(began), c.servers[2].core.Limit; took > limit/2 {
		t.Errorf("it ended after %v, and its time was %v", took, limit)
	}
}

// TestEndsBeforeWhatWaits: a stream that takes no more batches, since its server drains, does not
// end only when there is a server for what waits, there or at another server. Its sender would not
// learn before that what it sent meanwhile was dropped, also on keys that are served. A change that
// another server has may be made yet.
func TestEndsBeforeWhatWaits(t *testing.T) {
	for server, want := range map[uint32]string{2: "[UNAVAILABLE UNAVAILABLE]", 1: "[UNKNOWN UNAVAILABLE]"} {
		c, _ := waitingKeys(t, 10*time.Second)
		b := c.batches(server)
		if err := b.stream.Send(&rpcv1.DoRequest{Id: 1, Operations: []*rpcv1.Operation{lookup("x"), lookup("n"), {Kind: rpcv1.Operation_UPSERT, Key: []byte("y")}}, InParts: true}); err != nil {
			t.Fatal(err)
		}
		for waiting := 3; waiting > 2; {
			for _, o := range b.receive().Outcomes {
				if o.Code == rpcv1.Outcome_OK {
					waiting--
				}
			}
		}
		began := time.Now()
		go c.servers[server].drainFor(time.Minute)
		var got []rpcv1.Outcome_Code
		for len(got) < 2 {
			for _, o := range b.receive().Outcomes {
				if o.Code != rpcv1.Outcome_LATER {
					got = append(got, o.Code)
				}
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("what waits is answered %v; want %v", got, want)
		}
		if _, err := b.stream.Recv(); status.Code(err) != codes.Aborted {
			t.Errorf("the stream ended with %v", err)
		}
		if took, limit := time.Since(began), c.servers[server].core.Limit; took > limit/2 {
			t.Errorf("it ended after %v, and the time of what waits was %v", took, limit)
		}
	}
}

// TestParkedTurnAwayNoOthers: when what is parked goes on, it does not take all places of those
// that wait for a session, and what finds none goes on waiting. So a request that comes is not
// refused.
func TestParkedTurnAwayNoOthers(t *testing.T) {
	const sessions, waiters, parked = 4, 16, 50
	store := memindex.New(env.Real(), 512, 2048)
	c, release := waitingKeysOf(t, ownersOf(t, store), func(cfg *Config) {
		cfg.Limit, cfg.MaxSessions, cfg.MaxWaiting = time.Minute, sessions, waiters
	})
	b := c.batches(2)
	for n := range parked {
		if err := b.stream.Send(&rpcv1.DoRequest{Id: uint64(n), Operations: []*rpcv1.Operation{lookup("x")}, InParts: true}); err != nil {
			t.Fatal(err)
		}
		b.receive()
	}
	let, held := make(chan struct{}), atomic.Int64{}
	store.BeforeOperation(func(key []byte) {
		if string(key) == "x" {
			held.Add(1)
			<-let
		}
	})
	release()
	computeservertest.Await(t, "they have all sessions, and wait for them", func() bool { return held.Load() == sessions && c.servers[2].core.Sessions.Waiters() >= waiters/2 })
	r := c.raw(2)
	r.Send(computeservertest.Command("GET", "n"))
	computeservertest.Await(t, "another request waits, too", func() bool { return c.servers[2].core.Sessions.Waiters() > waiters/2 })
	close(let)
	r.Expect("$1\r\n1\r\n")
	for range parked {
		if o := b.receive().Outcomes[0]; o.Code != rpcv1.Outcome_NOT_FOUND {
			t.Errorf("after the keys have a server: %v", o)
		}
	}
}
