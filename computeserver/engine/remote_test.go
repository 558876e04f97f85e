package engine

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestServersAreAskedSideBySide: a batch has keys of this server and of two others. The others are
// asked at the same time. One that refuses is asked again while the other one does not answer, and
// the call ends with its limit.
func TestServersAreAskedSideBySide(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1, Preempt: 4})
	err := w.Run(func(p *simenv.Process) {
		store := memindex.New(p, 8, 8)
		c := New(Options{
			Env: p, Index: computeservertest.Config(config.RoutingOwner), Self: 1, SharesAll: true, Limit: 30 * time.Second, MaxSessions: 4, MaxWaiting: 64,
			Open: func() (ownership.Opened, error) { return store.Open(), nil }, Log: computeservertest.Logger(t),
		})
		var began, answered time.Duration
		peers := &scriptedPeers{env: p, does: map[uint32]func(time.Duration) (rpcv1.Outcome_Code, error){}, asked: map[uint32]int{}}
		takesSecond := func(time.Duration) (rpcv1.Outcome_Code, error) {
			p.Sleep(time.Second)
			return rpcv1.Outcome_NOT_FOUND, nil
		}
		peers.does[2], peers.does[3] = takesSecond, takesSecond
		c.Peers = peers
		m, err := partition.ByBoundaries(computeservertest.Index, []partition.Server{{ID: 1, Name: "pod-1"}, {ID: 2, Name: "pod-2"}, {ID: 3, Name: "pod-3"}}, [][]byte{[]byte("h"), []byte("p")})
		if err != nil {
			t.Fatal(err)
		}
		c.View.Apply(m)
		p.Go("engine", c.Sessions.Run)
		p.Sleep(time.Second)
		ask := func() (codes [4]rpcv1.Outcome_Code, took time.Duration) {
			var ops []*rpcv1.Operation
			for _, key := range []string{"i", "a", "q", "j"} {
				ops = append(ops, &rpcv1.Operation{Kind: rpcv1.Operation_LOOKUP, Key: []byte(key)})
			}
			began = p.Now()
			for i, o := range c.Do(ops, false, 5*time.Second, 0) {
				codes[i] = o.Code
			}
			return codes, p.Now() - began
		}
		none, unknown := rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_UNKNOWN
		if codes, took := ask(); codes != [4]rpcv1.Outcome_Code{none, none, none, none} || took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("%v after %v; want a second, as each of the others takes", codes, took)
		}
		tries := 0
		peers.does[2] = func(time.Duration) (rpcv1.Outcome_Code, error) {
			if tries++; tries < 4 {
				p.Sleep(2 * patience) // the caller has begun to look at each answer
				return rpcv1.Outcome_NOT_OWNER, nil
			}
			answered = p.Now() - began
			return none, nil
		}
		peers.does[3] = func(limit time.Duration) (rpcv1.Outcome_Code, error) {
			p.Sleep(limit + time.Second)
			return none, nil
		}
		codes, took := ask()
		if codes != [4]rpcv1.Outcome_Code{none, none, unknown, none} || took < 4900*time.Millisecond || took > 5100*time.Millisecond {
			t.Errorf("%v after %v; want that the silent server's key is UNKNOWN at the limit", codes, took)
		}
		if tries != 4 || answered > 200*time.Millisecond {
			t.Errorf("the server that refused was asked %d times, the last of them after %v", tries, answered)
		}
		c.Sessions.Halt(time.Minute)
	})
	if err != nil {
		t.Error(err)
	}
}
