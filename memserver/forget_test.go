package memserver

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestIdsComeAgain: an index that has given all of its ids is opened. Its servers forget clients
// that ended, the next one gets an id that was given before, and late calls of the earlier one with
// that id are refused.
func TestIdsComeAgain(t *testing.T) {
	for _, provider := range []string{"tcp", "shm"} {
		t.Run(provider, func(t *testing.T) {
			home, _ := start(t, dirConfig(t.TempDir()))
			other, _ := start(t, dirConfig(t.TempDir()))
			c := must(control.New(control.Config{Index: "a", Provider: provider, Servers: []control.Server{
				{ID: 7, Control: home.Addresses().Control}, {ID: 8, Control: other.Addresses().Control},
			}}))
			defer c.Close()
			must(c.Admit(4, 1024, limit))
			known := func(s *Server, f func(l *ledger.Ledger)) { s.control.Accounts.Note(f) }
			known(home, func(l *ledger.Ledger) {
				for id := range uint32(ledger.MaxClients) {
					must(l.Fence("a", id+1))
					l.Finished("a", id+1)
				}
			})
			// one that the home finished and this server did not
			known(other, func(l *ledger.Ledger) {
				must(l.Fence("a", 3))
			})
			_, err := c.Register(limit)
			if !errors.Is(err, pool.ErrPoolFull) && err == nil {
				t.Fatal("there was an id left")
			}
			p := must(pool.Open(pool.Config{Env: env.Real(), Control: c, Devices: []verbs.Device{deviceOf(provider)}, Identity: "a"}))
			if p.Client() != ledger.Number(1, 1) {
				t.Errorf("the next client is %d", p.Client())
			}
			for _, s := range []*Server{home, other} {
				known(s, func(l *ledger.Ledger) {
					if l.Live("a", p.Client()) != nil || !l.Complete("a", 1) || l.Fenced("a", 1) || l.Complete("a", 3) && !l.Fenced("a", 3) {
						t.Error("not those clients are forgotten that can be")
					}
				})
			}

			// a session with a lock word, in memory of its own
			s := must(p.NewSession(1 << 12))
			node := must(p.Allocate(128, pool.Nil))
			w := pool.Word{At: node + 120, Node: node}
			s.Begin()
			must(s.Acquire(w))

			// late calls of client 1
			for _, server := range []uint16{7, 8} {
				if _, err := c.Connect(server, 1, limit); !errors.Is(err, pool.ErrFenced) {
					t.Errorf("connect: %v", err)
				}
				if _, err := c.Renew(server, 1, pool.Epochs{}, limit); !errors.Is(err, pool.ErrFenced) {
					t.Errorf("renew: %v", err)
				}
				if err := c.Fence(server, []uint32{1}, limit); err != nil {
					t.Errorf("fence: %v", err)
				}
			}
			if err := c.FenceDead([]uint32{1}, limit); err != nil {
				t.Errorf("fence: %v", err)
			}
			if err := s.PostRelease(0, 0); err != nil {
				t.Error(err)
			}
			if _, err := c.Renew(7, p.Client(), pool.Epochs{}, limit); err != nil || p.Alive() != nil {
				t.Errorf("the client that has the id does not live: %v", err)
			}
			_ = s.Close()
			_ = p.Close()
			if _, err := c.Connect(8, p.Client(), limit); !errors.Is(err, pool.ErrFenced) {
				t.Errorf("connect after the end: %v", err)
			}
		})
	}
}
