package computeserver

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/ownership"
)

// slowGiver is a client whose cache takes until release to be written back.
type slowGiver struct {
	*ownedIndex
	giving, release chan struct{}
}

func (x *slowGiver) Give(start, end []byte) (int, error) {
	close(x.giving)
	<-x.release
	return x.ownedIndex.Give(start, end)
}

// TestShutdownGivesAllBack: a server that shuts down gives everything back before Run returns,
// though writing it back takes longer than a request may. So nobody waits for its lease.
func TestShutdownGivesAllBack(t *testing.T) {
	const limit = 50 * time.Millisecond
	own := owners(t)
	var opened atomic.Pointer[slowGiver]
	c := newCluster(t, config.RoutingOwner, func(cfg *Config) {
		own(cfg)
		cfg.Limit = limit
		open := cfg.Open
		cfg.Open = func() (ownership.Opened, error) {
			ix, err := open()
			if err != nil {
				return nil, err
			}
			x := &slowGiver{ix.(*ownedIndex), make(chan struct{}), make(chan struct{})}
			opened.Store(x)
			return x, nil
		}
	}, 1)
	c.split([]uint32{1})
	holds := func() int {
		held, err := opened.Load().Holdings()
		if err != nil {
			t.Fatal(err)
		}
		return len(held)
	}
	computeservertest.Await(t, "the server serves its keys", func() bool {
		all := c.servers[1].core.Ranges()
		return len(all) == 1 && all[0].State == ownership.RangeServing
	})
	r, x := c.servers[1], opened.Load()
	r.cancel()
	<-x.giving
	select {
	case err := <-r.done:
		t.Error("Run returns while the server gives its keys back")
		r.done <- err
	case <-time.After(10 * limit):
	}
	close(x.release)
	delete(c.servers, 1)
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if n := holds(); n != 0 {
		t.Errorf("Run has returned, and the server still holds keys in %d ranges", n)
	}
}
