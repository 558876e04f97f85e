package computeserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// lapseAfter ends the leases of all clients when an operation on key is done, and before anybody
// sees its outcome; once.
func (c *cluster) lapseAfter(key string) {
	c.store.AfterOperation(func(k []byte) {
		if string(k) == key {
			c.store.AfterOperation(nil)
			c.store.Lapse("frozen too long")
		}
	})
}

// TestLapsedAnswersNothingOverRPC runs every kind of operation in one batch whose last one outlives
// the leases.
func TestLapsedAnswersNothingOverRPC(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	l := c.link(1, 1)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	op := func(kind rpcv1.Operation_Kind, key string) *rpcv1.Operation {
		return &rpcv1.Operation{Kind: kind, Key: []byte(key), Value: []byte("v")}
	}
	if _, err := l.stream.Do(ctx, []*rpcv1.Operation{op(rpcv1.Operation_UPSERT, "a"), op(rpcv1.Operation_UPSERT, "b")}); err != nil {
		t.Fatal(err)
	}
	c.lapseAfter("last")
	table := []struct {
		op   *rpcv1.Operation
		want rpcv1.Outcome_Code
	}{
		{op(rpcv1.Operation_LOOKUP, "a"), rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_LOOKUP, "nope"), rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_INSERT, "new"), rpcv1.Outcome_UNKNOWN},
		{op(rpcv1.Operation_INSERT, "a"), rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_UPDATE, "a"), rpcv1.Outcome_UNKNOWN},
		{op(rpcv1.Operation_UPDATE, "nope"), rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_UPSERT, "a"), rpcv1.Outcome_UNKNOWN},
		{op(rpcv1.Operation_DELETE, "b"), rpcv1.Outcome_UNKNOWN},
		{op(rpcv1.Operation_DELETE, "nope"), rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_INCREMENT, "n"), rpcv1.Outcome_UNKNOWN},
		{op(rpcv1.Operation_INCREMENT, "new"), rpcv1.Outcome_UNAVAILABLE}, // it is no number
		{op(rpcv1.Operation_APPEND, "new"), rpcv1.Outcome_UNKNOWN},
		{op(rpcv1.Operation_EXCHANGE, "new"), rpcv1.Outcome_UNKNOWN},
		{&rpcv1.Operation{Kind: rpcv1.Operation_EXCHANGE, Key: []byte("new"), Condition: rpcv1.Operation_ABSENT}, rpcv1.Outcome_UNAVAILABLE},
		{&rpcv1.Operation{Kind: rpcv1.Operation_REMOVE, Key: []byte("new"), Condition: rpcv1.Operation_EQUAL, Operand: []byte("x")}, rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_REMOVE, "nope"), rpcv1.Outcome_UNAVAILABLE},
		{op(rpcv1.Operation_UPSERT, strings.Repeat("k", 600)), rpcv1.Outcome_INVALID},
		{op(rpcv1.Operation_LOOKUP, "last"), rpcv1.Outcome_UNAVAILABLE},
	}
	var batch []*rpcv1.Operation
	for _, row := range table {
		batch = append(batch, row.op)
	}
	reply, err := l.stream.Do(ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range table {
		o := reply.Outcomes[i]
		if o.Code != row.want || len(o.Value) > 0 || o.Code != rpcv1.Outcome_INVALID && !strings.Contains(o.Message, "frozen too long") {
			t.Errorf("%v of %.8q: %v, want %v", row.op.Kind, row.op.Key, o, row.want)
		}
	}
	c.awaitOpen(1)
	reply, err = l.stream.Do(ctx, []*rpcv1.Operation{op(rpcv1.Operation_LOOKUP, "new")})
	if err != nil || reply.Outcomes[0].Code != rpcv1.Outcome_OK {
		t.Errorf("afterwards, by the next client: %v, %v", reply, err)
	}
}

// TestLapsedAnswersNothingOverRESP has the leases end in the middle of a pipeline: what the session
// gave is replied as errors, in its places, between replies that did not come from it, with those
// from another server among them.
func TestLapsedAnswersNothingOverRESP(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	r.Send(computeservertest.Command("SET", "a", "old") + computeservertest.Command("SET", "x", "there"))
	r.Expect("+OK\r\n+OK\r\n")
	c.store.AfterOperation(func(k []byte) {
		if string(k) == "last" { // the client of server 1 alone
			c.store.AfterOperation(nil)
			c.servers[1].core.Sessions.Opened().Condemn(errors.New("frozen too long"))
		}
	})
	r.Send(computeservertest.Command("PING", "1") + computeservertest.Command("GET", "x") + computeservertest.Command("GET", "a") + computeservertest.Command("GET", "b") + computeservertest.Command("GET", "x") + computeservertest.Command("SET", "a", "new") +
		computeservertest.Command("GET", "x") + computeservertest.Command("INCR", "a") + computeservertest.Command("INCR", "c") + computeservertest.Command("GETDEL", "c") + computeservertest.Command("SETNX", "a", "newer") + computeservertest.Command("DEL", "b") + computeservertest.Command("PING", "2") + computeservertest.Command("GET", "last") + computeservertest.Command("GET", "x"))
	there := "$5\r\nthere\r\n"
	r.Expect("$1\r\n1\r\n" + there)
	f := func(prefix string) {
		t.Helper()
		if line := r.Line(); !strings.HasPrefix(line, prefix) || !strings.Contains(line, "frozen too long") {
			t.Errorf("replied %q, want %q", line, prefix)
		}
	}
	f("-UNAVAILABLE it was not answered, try again: ") // GET a
	f("-UNAVAILABLE ")                                 // GET b
	r.Expect(there)
	f("-UNKNOWN ") // SET a new
	r.Expect(there)
	f("-UNAVAILABLE ") // INCR a: that it is no number is an answer as well
	f("-UNKNOWN ")     // INCR c
	f("-UNKNOWN ")     // GETDEL c
	f("-UNAVAILABLE ") // SETNX a newer
	f("-UNAVAILABLE ") // DEL b
	r.Expect("$1\r\n2\r\n")
	f("-UNAVAILABLE ") // GET last
	r.Expect(there)
	c.awaitOpen(1)
	r.Send(computeservertest.Command("GET", "a"))
	r.Expect("$3\r\nnew\r\n")
	if _, body := c.servers[1].get(t, "/metrics"); !strings.Contains(body, `dmindex_compute_requests_total{front_end="resp",operation="setnx",outcome="error"} 1`) {
		t.Error("the SETNX does not count as an error")
	}
}

// TestLapsedManyKeys: commands of many keys are answered with one error.
func TestLapsedManyKeys(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	r.Send(computeservertest.Command("MSET", "a", "1", "last", "2"))
	r.Expect("+OK\r\n")
	for command, want := range map[string]string{
		computeservertest.Command("MGET", "a", "last"):           "-UNAVAILABLE ",
		computeservertest.Command("EXISTS", "a", "last"):         "-UNAVAILABLE ",
		computeservertest.Command("MSET", "a", "1", "last", "2"): "-UNKNOWN ",
		computeservertest.Command("RANGE", "", ""):               "*4\r\n",
		computeservertest.Command("DBSIZE"):                      ":2\r\n",
	} {
		c.lapseAfter("last")
		r.Send(command)
		if line := r.Line(); !strings.HasPrefix(line, want) {
			t.Errorf("%q was replied %q", command, line)
		}
		if strings.HasPrefix(want, "*") { // the scan was made again, by the next client
			r.Expect("$1\r\na\r\n$1\r\n1\r\n$4\r\nlast\r\n$1\r\n2\r\n")
		}
		c.awaitOpen(1)
	}
}

// TestLapsedScanGoesOn loses the leases behind every few pieces of a scan: what was read then is
// read again, and the scan gives every pair once, in order, and none that was changed meanwhile.
func TestLapsedScanGoesOn(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		c := newCluster(t, config.RoutingAny, nil, 1)
		c.split([]uint32{1})
		cl, ctx := c.sdk(1), context.Background()
		const n = 5 * engine.ScanPiecePairs / 2
		var put []client.Pair
		for i := range n {
			put = append(put, client.Pair{Key: fmt.Appendf(nil, "k%06d", i), Value: []byte("before")})
		}
		if err := cl.PutMany(ctx, put); err != nil {
			t.Fatal(err)
		}
		writer, err := c.store.Open().Session()
		if err != nil {
			t.Fatal(err)
		}
		pieces, writing := 0, false
		changed := map[string]bool{}
		c.store.AfterOperation(func(last []byte) {
			if writing || len(last) == 0 {
				return
			}
			if pieces++; pieces%2 == 0 {
				return
			}
			// The client is fenced after it read this piece; then another one changes a pair that
			// it read.
			c.store.Lapse("frozen too long")
			changed[string(last)], writing = true, true
			if err := writer.Update(last, []byte("after")); err != nil {
				t.Error(err)
			}
			writing = false
		})
		seen := 0
		for pair, err := range cl.Scan(ctx, nil, nil, client.ScanOptions{Reverse: reverse}) {
			if err != nil {
				t.Fatal(err)
			}
			i, want := seen, "before"
			if reverse {
				i = n - 1 - seen
			}
			if changed[string(pair.Key)] {
				want = "after"
			}
			if string(pair.Key) != fmt.Sprintf("k%06d", i) || string(pair.Value) != want {
				t.Fatalf("pair %d is %q: %q, want %q", seen, pair.Key, pair.Value, want)
			}
			seen++
		}
		if seen != n || len(changed) < 2 {
			t.Errorf("%d pairs of %d, %d changed", seen, n, len(changed))
		}
	}
}

// TestLapsedCountIsForgotten: DBSIZE does not answer what another client of this server counted,
// neither at once nor when the next client has the index open.
func TestLapsedCountIsForgotten(t *testing.T) {
	for _, await := range []bool{false, true} {
		c := newCluster(t, config.RoutingAny, nil, 1)
		c.split([]uint32{1})
		r := c.raw(1)
		r.Send(computeservertest.Command("SET", "a", "1") + computeservertest.Command("DBSIZE"))
		r.Expect("+OK\r\n:1\r\n")
		other, err := c.store.Open().Session()
		if err == nil {
			err = other.Insert([]byte("b"), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.store.Lapse("frozen too long")
		if await {
			c.awaitOpen(1)
		}
		r.Send(computeservertest.Command("DBSIZE"))
		r.Expect(":2\r\n")
	}
}
