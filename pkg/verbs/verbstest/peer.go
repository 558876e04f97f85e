package verbstest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// lines is how many queue pairs a peer has.
const lines = 2

// mostPeers is how many peers' lines a ledger shows.
const mostPeers = 16

// line is a queue pair of a peer. It changes two words that no other one changes: a WRITE of a
// rising number, and an atomic behind it that adds 1.
type line struct {
	qp   verbs.QP
	list []verbs.Request // under way, or the last

	// Over all connections of the peer.
	posted  uint64 // lists; the last one wrote this number
	written uint64 // by the last list that surely took effect
	most    uint64 // how often the atomic may have taken effect
	// how often it surely has; others look at it
	confirmed atomic.Uint64
}

// peer is a client with its connections, one after the other.
type peer struct {
	f      *fixture
	number uint16
	line   [lines]line
	post   [2][lines][]verbs.Request // by host

	host  int // whose device it connects with
	conn  verbs.Conn
	token verbs.Token
}

// host is a process with clients, as far as its device knows.
type host struct {
	device verbs.Device
	arena  *verbs.Arena
}

// cast are peers of two hosts, and the network between them and the server.
type cast struct {
	f       *fixture
	network Network
	host    [2]host
	peer    []*peer
}

// newCast makes so many peers, which are not connected.
func (f *fixture) newCast(peers int) *cast {
	f.Helper()
	s := &cast{f: f, network: f.h.Network(f, f.address), host: [2]host{{f.device, f.arena}}}
	second := f.h.Device()
	arena, err := second.NewArena(1 << 20)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		for _, p := range s.peer {
			if p.conn != nil {
				p.conn.Close() // an error where something may still arrive
			}
		}
		arena.Close()
		second.Close()
	})
	s.host[1] = host{second, arena}
	for i := range peers {
		p := &peer{f: f, number: uint16(i + 1), host: i % 2}
		for h := range s.host {
			b, err := s.host[h].arena.Alloc(lines * 16)
			if err != nil {
				f.Fatal(err)
			}
			for l := range p.post[h] {
				at := uint64(i*lines+l) * 8
				p.post[h][l] = []verbs.Request{write(at, b[l*16:][:8]), fetchAdd(at, b[l*16+8:][:8], 1)}
			}
		}
		s.peer = append(s.peer, p)
	}
	return s
}

// connect connects p anew.
func (s *cast) connect(p *peer) error {
	h := &s.host[p.host]
	t := s.f.target(p.number)
	t.Address = s.network.Address()
	c, err := h.device.Connect(t, soon)
	if err != nil {
		return fmt.Errorf("client %d: %w", p.number, err)
	}
	p.conn, p.token = c, t.Token
	for l := range p.line {
		if p.line[l].qp, err = c.NewQP(h.arena); err != nil {
			return fmt.Errorf("client %d: new queue pair: %w", p.number, err)
		}
		p.line[l].list = p.post[p.host][l]
	}
	return nil
}

// start starts a list of l.
func (l *line) start() error {
	l.posted++
	l.most++
	fill(l.list[0].Local, l.posted)
	return l.qp.Start(l.list)
}

// wait waits for the list and reports whether it is confirmed.
func (l *line) wait() error {
	err := l.qp.Wait()
	if err == nil {
		l.written = l.posted
		l.confirmed.Add(1)
	}
	return err
}

func (l *line) work() error {
	if err := l.start(); err != nil {
		return err
	}
	return l.wait()
}

// ledger is the words of all lines, as a queue pair reads them.
type ledger struct {
	written, counted [mostPeers * lines]uint64
}

// read reads the ledger; in is of the queue pair's arena.
func (g *ledger) read(q verbs.QP, in []byte) error {
	const half = mostPeers * lines * 8
	err := verbs.Post(q, []verbs.Request{read(0, in[:half]), {Op: verbs.Read, Region: verbs.RegionLocks, Local: in[half:][:half]}})
	for i := range g.written {
		g.written[i], g.counted[i] = get(in[i*8:]), get(in[half+i*8:])
	}
	return err
}

// ledgerBytes is what read takes.
const ledgerBytes = 2 * mostPeers * lines * 8

// of is what g says about l of p.
func (g *ledger) of(p *peer, l int) (written, counted uint64) {
	at := (int(p.number)-1)*lines + l
	return g.written[at], g.counted[at]
}

// same compares what two ledgers say about p.
func (g *ledger) same(other *ledger, p *peer) error {
	for l := range p.line {
		w, n := g.of(p, l)
		if v, m := other.of(p, l); v != w || m != n {
			return fmt.Errorf("client %d, line %d: from (%d, %d) to (%d, %d)", p.number, l, w, n, v, m)
		}
	}
	return nil
}

// settle checks that g shows of p all that was confirmed, and nothing that it did not post. It is
// quiet: what was unknown is known then.
func (g *ledger) settle(p *peer) (err error) {
	for i := range p.line {
		l := &p.line[i]
		w, n := g.of(p, i)
		if sure := l.confirmed.Load(); w < l.written || w > l.posted || n < sure || n > l.most {
			err = errors.Join(err, fmt.Errorf("client %d, line %d: %d was written, want %d to %d; %d counted, want %d to %d",
				p.number, i, w, l.written, l.posted, n, sure, l.most))
		}
		l.written, l.most = w, n
		l.confirmed.Store(n)
	}
	return err
}
