package verbstest

import "github.com/dmindex/dmindex/pkg/verbs"

// The tests of guarantees that depend on who else is connected: of several peers, some of one
// device, some are broken, cut, fenced and let in again, while others come, go and work.
var peerTests = []test{
	{"BrokenAmongPeers", brokenAmongPeers},
	{"PeersComeAndGo", comeAndGo},
	{"ReconnectDuringLongLists", reconnectDuringLongLists},
}

// brokenAmongPeers: what a broken connection left takes no effect once its client has a new one, or
// is fenced, whichever peers of whichever device connect and end in between (G3). What was
// confirmed is there, and nobody else notices.
func brokenAmongPeers(f *fixture) {
	const peers = 6
	b := &brokenPeers{cast: f.newCast(peers), watcher: f.client(99), in: f.buffer(ledgerBytes)}
	for _, p := range b.peer {
		f.must(b.connect(p))
	}
	for round := range min(max(f.h.Rounds/50, 10), 40) {
		order := f.rand.Perm(peers)
		victims := 1 + f.rand.IntN(3)
		for _, i := range order[:victims] {
			b.breaks(b.peer[i])
		}
		comings := f.rand.IntN(4)
		if round == 0 {
			comings = 3
		}
		for range comings {
			b.comes(b.peer[order[f.rand.IntN(victims)]].host)
			b.happens(b.peer[order[victims+f.rand.IntN(peers-victims)]])
		}
		for _, i := range f.rand.Perm(victims) {
			b.returns(b.peer[order[i]])
			for _, p := range order[victims:] {
				b.works(b.peer[p])
			}
		}
		for _, p := range b.peer {
			b.works(p)
		}
		g := b.read()
		for _, p := range b.peer {
			f.must(g.settle(p))
		}
	}
}

// brokenPeers is the state of brokenAmongPeers.
type brokenPeers struct {
	*cast
	watcher verbs.QP // whom nothing happens to
	in      []byte
	comers  uint16
}

// must ends the test on an error, so only the test's own goroutine calls it.
func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (b *brokenPeers) read() (g ledger) {
	b.f.Helper()
	b.f.must(g.read(b.watcher, b.in))
	return g
}

func (b *brokenPeers) works(p *peer) {
	b.f.Helper()
	for i := range p.line {
		b.f.must(p.line[i].work())
	}
}

// breaks breaks the connection of p with lists under way.
func (b *brokenPeers) breaks(p *peer) {
	f := b.f
	f.Helper()
	if f.rand.IntN(2) == 0 { // with nothing under way that could have arrived before
		b.network.Hold(p.conn, p.token)
	}
	for i := range p.line {
		f.must(p.line[i].start())
	}
	b.network.Break(p.conn, p.token)
	for i := range p.line {
		q := p.line[i].qp
		p.line[i].wait()
		f.eventually(func() bool { return q.Err() != nil }, "the queue pairs of a broken connection die")
	}
	p.conn.Close() // an error where something may still arrive
}

// comes lets another peer of a host connect, work a little, and go.
func (b *brokenPeers) comes(h int) {
	f, host := b.f, &b.host[h]
	f.Helper()
	b.comers++
	t := f.target(200 + b.comers)
	t.Address = b.network.Address()
	c, err := host.device.Connect(t, soon)
	f.must(err)
	defer c.Close()
	q, err := c.NewQP(host.arena)
	f.must(err)
	in, err := host.arena.Alloc(8)
	f.must(err)
	f.post(q, read(0, in))
}

// happens lets something happen to p, which is not broken.
func (b *brokenPeers) happens(p *peer) {
	f := b.f
	f.Helper()
	switch f.rand.IntN(4) {
	case 0:
		b.works(p)
		return
	case 1:
		f.must(p.conn.Close())
	case 2:
		if n := f.server.Disconnect(number(p.number)); n < 1 {
			f.Fatalf("%d connections of client %d were cut, want one", n, p.number)
		}
		p.conn.Close()
	case 3:
		f.must(f.server.Fence(number(p.number), soon))
		p.conn.Close()
	}
	f.must(b.connect(p))
	b.works(p)
}

// returns lets p, which is broken, connect again in one of the ways that it has.
func (b *brokenPeers) returns(p *peer) {
	f := b.f
	f.Helper()
	token, conn := p.token, p.conn
	var old [lines]verbs.QP
	for i := range old {
		old[i] = p.line[i].qp
	}
	left := p.post[p.host]
	way := f.rand.IntN(6)
	switch way {
	case 0: // what was on its way comes first
		f.must(b.network.Deliver(conn, token))
	case 1:
		f.must(f.server.Fence(number(p.number), soon))
	case 2: // in another process, so it has to be fenced
		f.must(f.server.Fence(number(p.number), soon))
		p.host = 1 - p.host
	}
	f.must(b.connect(p))
	before := b.read()
	f.must(before.settle(p))
	if way != 0 {
		f.must(b.network.Deliver(conn, token))
	}
	for i := range old {
		if err := verbs.Post(old[i], left[i]); err == nil {
			f.Fatalf("client %d posts on a connection that is broken", p.number)
		}
	}
	after := b.read()
	if err := before.same(&after, p); err != nil {
		f.Fatalf("a broken connection takes effect after its client has a new one: %v", err)
	}
	for i := range p.line {
		in := p.line[i].list[1].Local
		f.post(p.line[i].qp, fetchAdd(p.line[i].list[1].Remote, in, 0))
		if _, n := after.of(p, i); get(in) != n {
			f.Fatalf("client %d finds %d, another one %d", p.number, get(in), n)
		}
	}
}
