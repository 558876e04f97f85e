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
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestUnknownOperationsAreRefused: an operation that the server does not know is refused by itself,
// however many there are. The batch goes on, and the index stays open.
func TestUnknownOperationsAreRefused(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	if err := w.Run(func(p *simenv.Process) {
		store, opened := memindex.New(p, 8, 64), 0
		c := New(Options{
			Env: p, Index: &config.Index{Identity: "x", KeyType: config.KeyBytes, MaxKeyBytes: 8, MaxValueBytes: 64, Routing: config.RoutingAny},
			SharesAll: true, Open: func() (ownership.Opened, error) { opened++; return store.Open(), nil },
			Limit: time.Second, MaxSessions: 8, MaxWaiting: 4, Log: computeservertest.Logger(t),
		})
		p.Go("engine", c.Sessions.Run)
		for range 2 * deathsTolerated {
			out := c.Do([]*rpcv1.Operation{
				{Kind: 77, Key: []byte("a")}, {Kind: -1, Key: []byte("a")}, {Key: []byte("a")},
				{Kind: rpcv1.Operation_UPSERT, Key: []byte("a")}, {Kind: rpcv1.Operation_LOOKUP, Key: []byte("a")},
			}, false, time.Second, 0)
			for i, o := range out {
				want := rpcv1.Outcome_UNSUPPORTED
				if i > 2 {
					want = rpcv1.Outcome_OK
				}
				if o.Code != want {
					t.Errorf("operation %d was answered %v %q, want %v", i, o.Code, o.Message, want)
				}
			}
			if want := "operation kind 77 is unknown to this server, and nothing was done"; !strings.HasPrefix(out[0].Message, want) {
				t.Errorf("it says %q", out[0].Message)
			}
			s := sessionOf(t, c.Sessions)
			_, err := Run(s, &rpcv1.Operation{Kind: 77, Key: []byte("a")}, nil, &rpcv1.Outcome{})
			if Kills(err) {
				t.Errorf("%v ends the session", err)
			}
			c.Sessions.Repay(s, err)
		}
		for kind, name := range rpcv1.Operation_Kind_name {
			out := c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_Kind(kind), Key: []byte("b")}}, false, time.Second, 0)
			if known := kind != 0; known == (out[0].Code == rpcv1.Outcome_UNSUPPORTED) {
				t.Errorf("%s was answered %v", name, out[0].Code)
			}
		}
		for _, op := range []*rpcv1.Operation{
			{Kind: rpcv1.Operation_EXCHANGE, Key: []byte("b"), Condition: 99}, {Kind: rpcv1.Operation_REMOVE, Key: []byte("b"), Condition: -1},
			{Kind: rpcv1.Operation_UPSERT, Key: []byte("b"), Condition: rpcv1.Operation_EQUAL}, {Kind: rpcv1.Operation_INCREMENT, Key: []byte("b"), Condition: rpcv1.Operation_ABSENT},
		} {
			if out := c.Do([]*rpcv1.Operation{op}, false, time.Second, 0); out[0].Code != rpcv1.Outcome_UNSUPPORTED || !strings.Contains(out[0].Message, "nothing was done") {
				t.Errorf("%v with the condition %d was answered %v %q", op.Kind, op.Condition, out[0].Code, out[0].Message)
			}
		}
		if opened != 1 {
			t.Errorf("the index was opened %d times", opened)
		}
		c.Sessions.Halt(time.Minute)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestErrorsHaveOneClass: what an error means follows from its code alone, whether it is one of the
// index, a failure of this package, or either wrapped.
func TestErrorsHaveOneClass(t *testing.T) {
	f := func(err error, code rpcv1.Outcome_Code, kills bool, kind count.Kind) {
		t.Helper()
		for _, err := range []error{err, fmt.Errorf("attempt: %w", err)} {
			o := OutcomeOf(err)
			if got := CodeOf(err); got != code || o.Code != code {
				t.Errorf("%v has code %v, and its outcome %v; want %v", err, got, o.Code, code)
			}
			if Kills(err) != kills || KindOf(o) != kind {
				t.Errorf("%v: kills %v, kind %v", err, Kills(err), KindOf(o))
			}
			if (o.Message == "") != (kind != count.Error) {
				t.Errorf("%v is answered with %q", err, o.Message)
			}
		}
	}
	f(index.ErrNotFound, rpcv1.Outcome_NOT_FOUND, false, count.Miss)
	f(index.ErrExists, rpcv1.Outcome_ALREADY_EXISTS, false, count.Miss)
	f(index.ErrKeyTooLong, rpcv1.Outcome_INVALID, false, count.Error)
	f(index.ErrPoolFull, rpcv1.Outcome_POOL_FULL, false, count.Error)
	f(fmt.Errorf("%w: %w", index.ErrUnknown, index.ErrPoolFull), rpcv1.Outcome_UNKNOWN, true, count.Error)
	f(index.ErrDataLost, rpcv1.Outcome_DATA_LOST, true, count.Error)
	f(index.ErrUnreachable, rpcv1.Outcome_UNAVAILABLE, true, count.Error)
	f(&Failure{Code: rpcv1.Outcome_INVALID, Message: "no"}, rpcv1.Outcome_INVALID, false, count.Error)
	f(unsupported(77), rpcv1.Outcome_UNSUPPORTED, false, count.Error)
	f(&Failure{Code: rpcv1.Outcome_DENIED, Message: "no"}, rpcv1.Outcome_DENIED, false, count.Error)
	f(ErrLate, rpcv1.Outcome_TIMED_OUT, true, count.Error)
	f(&Failure{Code: 99, Message: "of a newer server"}, 99, true, count.Error)
}
