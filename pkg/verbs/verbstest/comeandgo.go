package verbstest

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// comeAndGo: many peers work, end in all ways and return, all at the same time.
func comeAndGo(f *fixture) {
	const peers = 8
	s := f.newCast(peers)
	rounds := min(max(f.h.Rounds/100, 10), 20)
	var all []func()
	for _, p := range s.peer {
		g := &goer{cast: s, peer: p, watcher: f.client(100 + p.number), in: f.buffer(ledgerBytes), seed: f.rand.Uint64()}
		all = append(all, func() {
			for round := range rounds {
				if err := g.round(); err != nil {
					f.Errorf("client %d, round %d: %v", p.number, round, err)
					return
				}
			}
		})
	}
	f.together(all...)
}

// goer is a peer of comeAndGo.
type goer struct {
	cast    *cast
	peer    *peer
	watcher verbs.QP // nothing happens to it
	in      []byte
	seed    uint64

	broken verbs.Conn // the last connection, unless it ended otherwise
	token  verbs.Token
}

// draw is a number below n.
func (g *goer) draw(n int) int {
	g.seed = g.seed*6364136223846793005 + 1442695040888963407
	return int(g.seed >> 33 % uint64(n))
}

// look reads the ledger. It shows what any peer had confirmed before.
func (g *goer) look() (shown ledger, err error) {
	var sure [mostPeers * lines]uint64
	for i, p := range g.cast.peer {
		for l := range p.line {
			sure[i*lines+l] = p.line[l].confirmed.Load()
		}
	}
	if err = shown.read(g.watcher, g.in); err != nil {
		return shown, fmt.Errorf("a connection that nothing happens to: %w", err)
	}
	for i, n := range sure {
		if shown.counted[i] < n {
			return shown, fmt.Errorf("client %d had %d lists confirmed, of which %d are seen", i/lines+1, n, shown.counted[i])
		}
	}
	return shown, nil
}

// The ways in which a connection of comeAndGo ends.
const (
	closed          = iota
	cut             // by Disconnect
	fenced          // by Fence
	broken          // on its client's side
	brokenAndFenced // and its client returns from another process
	allWays
)

var wayNames = [allWays]string{"closed", "cut", "fenced", "broken", "broken and fenced"}

// round is one connection of the peer, from the return to the end.
func (g *goer) round() error {
	f, p := g.cast.f, g.peer
	if err := g.comes(); err != nil {
		return err
	}
	way, lists := g.draw(allWays), 1+g.draw(30)
	begun := f.env.NewEvent()
	var atEnd ledger
	var failed error
	f.together(func() {
		for i := 0; p.line[i%lines].work() == nil; i++ {
			if i == lists {
				begun.Set()
			}
			f.env.Yield()
		}
		begun.Set()
	}, func() {
		begun.Wait(soon)
		if failed = g.ends(way); failed == nil {
			atEnd, failed = g.look()
		}
	})
	if failed == nil {
		failed = g.left(way, &atEnd)
	}
	if failed != nil {
		return fmt.Errorf("%s: %w", wayNames[way], failed)
	}
	return nil
}

// comes connects the peer. Nothing of its earlier connections takes effect then.
func (g *goer) comes() error {
	p := g.peer
	if err := g.cast.connect(p); err != nil {
		return err
	}
	before, err := g.look()
	if err == nil {
		err = before.settle(p)
	}
	if err != nil || g.broken == nil {
		return err
	}
	old := g.broken
	g.broken = nil
	return g.arrives(old, g.token, &before)
}

// arrives lets arrive what a broken connection left. It takes no effect.
func (g *goer) arrives(old verbs.Conn, t verbs.Token, before *ledger) error {
	if err := g.cast.network.Deliver(old, t); err != nil {
		return err
	}
	after, err := g.look()
	if err == nil {
		err = before.same(&after, g.peer)
	}
	if err != nil {
		return fmt.Errorf("what a broken connection left arrives: %w", err)
	}
	return nil
}

// ends ends the connection while the peer works.
func (g *goer) ends(way int) error {
	f, p := g.cast.f, g.peer
	switch way {
	case closed:
		return p.conn.Close()
	case cut:
		if n := f.server.Disconnect(number(p.number)); n < 1 { // shm closes without a word
			return fmt.Errorf("%d connections were cut, want one", n)
		}
		return nil
	case broken, brokenAndFenced:
		if g.draw(2) == 0 {
			g.cast.network.Hold(p.conn, p.token)
			for range g.draw(20) {
				f.env.Yield()
			}
		}
		g.cast.network.Break(p.conn, p.token)
	}
	if way == broken {
		return nil
	}
	return f.server.Fence(number(p.number), soon)
}

// left is after the end, which the peer has seen. Of a connection that is broken only, anything may
// still take effect.
func (g *goer) left(way int, atEnd *ledger) error {
	p := g.peer
	p.conn.Close() // an error where something may still arrive
	if way == broken {
		g.broken, g.token = p.conn, p.token
		return nil
	}
	if way == brokenAndFenced {
		p.host = 1 - p.host
		return g.arrives(p.conn, p.token, atEnd)
	}
	after, err := g.look()
	if err != nil {
		return err
	}
	return atEnd.same(&after, p)
}

// reconnectDuringLongLists: a client has a new connection only once a long list of its broken one
// is at its end, though another goroutine of the client posts it.
func reconnectDuringLongLists(f *fixture) {
	s, other, list := f.newCast(1), f.client(2), f.longList()
	p := s.peer[0]
	for round := range 20 {
		f.must(s.connect(p))
		c, t, probe := p.conn, p.token, p.line[0].qp
		f.whileLong(c, other, list, func() {
			if round%2 == 0 {
				s.network.Hold(c, t)
			}
			s.network.Break(c, t)
			f.eventually(func() bool { return probe.Err() != nil }, "the queue pairs of a broken connection die")
			if err := s.connect(p); err != nil {
				f.Error(err)
			}
		})
		before := f.word(other, verbs.RegionLocks, 0)
		c.Close() // an error where something may still arrive
		f.must(s.network.Deliver(c, t))
		if after := f.word(other, verbs.RegionLocks, 0); after != before {
			f.Fatalf("round %d: the count went from %d to %d when a broken connection arrived", round, before, after)
		}
		f.must(p.conn.Close())
	}
}
