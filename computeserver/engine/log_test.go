package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// batch is one operation of each kind, on a key that is there or not.
func batch() []*rpcv1.Operation {
	return []*rpcv1.Operation{
		{Kind: rpcv1.Operation_UPSERT, Key: []byte("a"), Value: []byte("1")},
		{Kind: rpcv1.Operation_LOOKUP, Key: []byte("a")},
		{Kind: rpcv1.Operation_UPDATE, Key: []byte("none"), Value: []byte("1")},
		{Kind: rpcv1.Operation_LOOKUP, Key: []byte("none")},
		{Kind: rpcv1.Operation_INSERT, Key: []byte("b"), Value: []byte(strings.Repeat("v", 100))},
		{Kind: rpcv1.Operation_DELETE, Key: []byte("a")},
	}
}

// TestBatchWaitsOnce: a batch waits for the log once, at its end. If that fails, or the leases
// expire meanwhile, its changes are unknown and its reads are not answered.
func TestBatchWaitsOnce(t *testing.T) {
	for _, what := range []string{"durable", "lost", "late", "expired"} {
		w := simenv.New(simenv.Options{Seed: 1, Preempt: 4})
		err := w.Run(func(p *simenv.Process) {
			store, opened, waits := memindex.New(p, 8, 8), 0, 0
			c := New(Options{
				Env: p, Index: &config.Index{Identity: "x", KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: 200, Routing: config.RoutingAny},
				SharesAll: true, Open: func() (ownership.Opened, error) { opened++; return store.Open(), nil },
				Limit: time.Second, MaxSessions: 4, MaxWaiting: 4, Log: computeservertest.Logger(t),
			})
			p.Go("engine", c.Sessions.Run)
			p.Sleep(time.Second)
			store.Log(func(uint64) error {
				if waits++; store.Len() != 0 {
					t.Errorf("%s: the log is waited for before the last change, with %d keys", what, store.Len())
				}
				p.Sleep(time.Millisecond)
				switch what {
				case "lost":
					return fmt.Errorf("%w: connection reset", index.ErrUnknown)
				case "late":
					return fmt.Errorf("%w: %w", index.ErrUnknown, index.ErrTimeout)
				case "expired":
					store.Lapse("frozen too long")
				}
				return nil
			})
			var got []string
			for _, o := range c.Do(batch(), false, time.Second, 0) {
				got = append(got, o.Code.String())
			}
			want := "OK OK NOT_FOUND NOT_FOUND INVALID OK"
			if what != "durable" {
				want = "UNKNOWN UNAVAILABLE UNAVAILABLE UNAVAILABLE INVALID UNKNOWN"
			}
			if all := strings.Join(got, " "); all != want {
				t.Errorf("%s: %s; want %s", what, all, want)
			}
			if waits != 1 {
				t.Errorf("%s: %d waits for the log", what, waits)
			}
			for what == "late" && waits <= 2*deathsTolerated { // nor do many in a row end anything
				c.Do(batch(), false, time.Second, 0)
			}
			p.Sleep(time.Second)
			// a log that failed is of no use any more; one that was late is
			if again := 1 + map[string]int{"lost": 1, "expired": 1}[what]; opened != again {
				t.Errorf("%s: the index was opened %d times; want %d", what, opened, again)
			}
			c.Sessions.Halt(time.Minute)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
