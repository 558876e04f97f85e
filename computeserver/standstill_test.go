package computeserver

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
)

// lapsing is an open index whose client loses its leases when the test says so: at that moment the
// clock jumps, so that nobody sees one without the other.
type lapsing struct {
	ownership.Opened
	store *memindex.Store
	clock *computeservertest.Clock
	fall  *atomic.Bool
}

func (l *lapsing) Alive() error {
	if l.fall.CompareAndSwap(true, false) {
		l.store.Lapse("stood still")
		l.clock.By.Add(int64(2 * computeservertest.Standstill))
	}
	return l.Opened.Alive()
}

// TestStandstillCutsConnections: RESP connections and streams from before are over, and programs
// connect again.
func TestStandstillCutsConnections(t *testing.T) {
	j := computeservertest.NewClock()
	var fall atomic.Bool
	var c *cluster
	c = newCluster(t, config.RoutingAny, func(cfg *Config) {
		open := cfg.Open
		cfg.Env, cfg.Open = j, func() (ownership.Opened, error) {
			ix, err := open()
			return &lapsing{ix, c.store, j, &fall}, err
		}
	})
	c.start(1)
	c.split([]uint32{1})
	r, cl, ctx := c.raw(1), c.sdk(1), context.Background()
	r.Send(computeservertest.Command("SET", "a", "1"))
	r.Expect("+OK\r\n")
	if err := cl.Put(ctx, []byte("b"), nil); err != nil {
		t.Fatal(err)
	}
	fall.Store(true)
	if got := r.ExpectEnd(); got != "" {
		t.Errorf("an old connection got %q", got)
	}
	if err := cl.Put(ctx, []byte("c"), nil); err != nil { // over a new one
		t.Error(err)
	}
	computeservertest.Await(t, "connections are taken again", func() bool { _, ok := c.servers[1].core.Sessions.NewConnection(); return ok })
	again := c.raw(1)
	again.Send(computeservertest.Command("GET", "a"))
	again.Expect("$1\r\n1\r\n")
}
