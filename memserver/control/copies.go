//env:real calls of gRPC are not simulated

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// serverConn is one memory server of the index. Its memory may be kept more than once: then it has
// several copies, which are processes with an address each, and one of them at a time, the primary,
// answers for it (package volumes).
//
// # Who is called
//
// One copy at a time is called: that is a turn. All copies are asked which view they are in, side
// by side, as long as the client is open (follow). When a view is heard whose primary is in another
// pod, a new turn begins (takeView):
//
//  1. All calls go to that copy from now on.
//  2. Calls to the one before end. It might answer them late, or never.
//  3. Who holds a grant of an earlier turn is told (Follow), and gives its client up: that client
//     cannot go on, and would notice it only when its requests or its leases time out.
//
// A later process of the same pod is no new turn. It is a server that restarted, which ends the
// connections by itself.
//
// One process may answer at several addresses for a while: the address of a pod that is gone leads
// to whichever pod has its IP address by now, until the name is looked up again. So the address
// that the view names is called if it answers. Where the primary does not answer at the address
// that is called, and a copy at another one serves in the same view, a new turn begins there
// (findPrimary).
//
// # Why that is safe
//
// Nothing here decides who answers. The servers do, and a copy that is not the primary refuses all
// calls but those for its view. So a view that is old, late or made up leads to calls that fail, or
// to a client that is opened anew without need, once for each view. The views that a client takes
// have growing numbers, and it asks each copy pauseLeast apart at most.
//
// # What is believed
//
// That a server lost its memory ends a compute server for good. A copy that was replaced has an
// empty memory, with an incarnation of its own. It does not serve it. Still, where there are
// several copies, or were, only the copy that the highest view names is believed (checkContent).
//
// A copy that invents a high number keeps this process from hearing of later views until it starts
// anew. Who can do that has the certificate of a memory server, and the memory with it.
type serverConn struct {
	Server              // as it was given first
	joined  bool        // it is one that joined the index
	granted atomic.Bool // a client of this process got a token there
	all     *servers

	mu       sync.Mutex
	given    []string    // addresses, the primary's first
	named    []string    // the same, of the highest view
	copies   []*copyConn // those that were given, then those that a view told of
	asks     bool        // the copies are asked for views
	heard    chan struct{}
	view     uint64    // the highest that was heard; 0 = none
	pod      string    // of its primary
	best     *copyConn // that primary; nil = none
	turn     *turn     // nil = not known yet
	watchers map[*watcher]struct{}
}

// copyConn is one copy of a memory server.
type copyConn struct {
	address string
	conn    *grpc.ClientConn
	memory  rpcv1.MemoryClient
	volume  rpcv1.VolumeClient

	ctx context.Context // of the calls that follow its views
	end context.CancelFunc
	// it answered which view it is in, or could not be asked; and that it serves in none
	asked, serves bool
	servesIn      uint64 // the view that it serves in, by its last answer; 0 = it does not
	failed        bool   // it could not be asked the last time
}

// turn is the time in which one copy is called.
type turn struct {
	number uint64 // from 1 on
	at     *copyConn
	ctx    context.Context // of the calls; ends with the turn
	end    context.CancelFunc
}

// watcher is who holds a grant of a turn.
type watcher struct {
	turn  uint64
	moved func(error)
}

var _ pool.Moves = (*Client)(nil)

const (
	// maxCopies bounds the addresses of one memory server: two copies, one that joins, and the
	// primary before are four.
	maxCopies = config.MaxCopies
	// lookLimit is how long all copies are waited for before the first call.
	lookLimit = time.Second
)

// addressesOf are the addresses of a server's copies, the primary's first.
func addressesOf(s *Server) []string { return append([]string{s.Control}, s.Copies...) }

// newConn is a memory server. It is not called yet.
func (c *servers) newConn(s Server) (*serverConn, error) {
	conn := &serverConn{Server: s, all: c, heard: make(chan struct{}), watchers: map[*watcher]struct{}{}}
	addresses := addressesOf(&s)
	if len(addresses) > maxCopies {
		return nil, fmt.Errorf("memory server %d has %d addresses; at most %d are possible", s.ID, len(addresses), maxCopies)
	}
	for _, address := range addresses {
		if err := conn.add(address); err != nil {
			return nil, errors.Join(fmt.Errorf("memory server %d at %s: %w", s.ID, address, err), conn.close())
		}
	}
	conn.given = addresses
	if len(conn.copies) == 1 {
		conn.begin(conn.copies[0])
	}
	return conn, nil
}

// add makes a copy known, unless it is. s.mu is held, or s is new.
func (s *serverConn) add(address string) error {
	if s.find(address) != nil {
		return nil
	}
	conn, err := Dial(address, s.all.config.TLS)
	if err != nil {
		return err
	}
	k := &copyConn{address: address, conn: conn, memory: rpcv1.NewMemoryClient(conn), volume: rpcv1.NewVolumeClient(conn)}
	k.ctx, k.end = context.WithCancel(s.all.ctx)
	s.copies = append(s.copies, k)
	if s.asks && s.all.ctx.Err() == nil {
		s.all.follows.Go(func() { s.follow(k) })
	}
	return nil
}

func (s *serverConn) find(address string) *copyConn {
	for _, k := range s.copies {
		if k.address == address {
			return k
		}
	}
	return nil
}

// setCopies makes exactly the copies known that were given or that the view told of, and keeps the
// one that is called. s.mu is held.
func (s *serverConn) setCopies() {
	if s.all.ctx.Err() != nil { // closed, as all that was known then
		return
	}
	addresses := append(slices.Clone(s.given), s.named...)
	s.copies = slices.DeleteFunc(s.copies, func(k *copyConn) bool {
		gone := !slices.Contains(addresses, k.address) && k != s.best && (s.turn == nil || s.turn.at != k)
		if gone {
			k.end()
			_ = k.conn.Close() // nothing waits for it but what k.end ended
		}
		return gone
	})
	for _, address := range addresses {
		_ = s.add(address) // one that cannot be is asked for nothing, as one that is away
	}
}

// begin begins a turn. It returns who holds a grant of the one before, to be told behind s.mu,
// which is held, or s is new.
func (s *serverConn) begin(at *copyConn) (left []*watcher) {
	t := &turn{number: 1, at: at}
	t.ctx, t.end = context.WithCancel(s.all.ctx)
	if s.turn != nil {
		t.number = s.turn.number + 1
		s.turn.end()
	}
	s.turn = t
	for w := range s.watchers { //env:real all of them are told
		left = append(left, w)
	}
	clear(s.watchers)
	return left
}

// tellWatchers tells who holds a grant of an earlier turn.
func (s *serverConn) tellWatchers(left []*watcher) {
	for _, w := range left {
		w.moved(fmt.Errorf("memory server %d: another copy of it answers now", s.ID))
	}
}

func (s *serverConn) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, k := range s.copies {
		k.end()
		errs = append(errs, k.conn.Close())
	}
	return errors.Join(errs...)
}

// setAddresses says which addresses the copies have, the primary's first, as the index's
// configuration or its home has them by now. A client that was away while its server moved finds it
// by that.
func (s *serverConn) setAddresses(addresses []string) {
	var left []*watcher
	defer func() { s.tellWatchers(left) }() // behind s.mu
	s.mu.Lock()
	defer s.mu.Unlock()
	if addresses = addresses[:min(len(addresses), maxCopies)]; slices.Equal(addresses, s.given) {
		return
	}
	s.given = addresses
	s.setCopies()
	if s.view == 0 && s.turn != nil && !slices.Contains(addresses, s.turn.at.address) {
		if first := s.find(addresses[0]); first != nil { // as if the server had no copies
			left = s.begin(first)
		}
	}
}

// called is the present turn. Before the first call it asks all copies, side by side, which view
// they are in. It waits until all have answered, for lookLimit at most, since one that stood still
// may believe in an old view. If none knows, one that serves counts, and else the first address.
func (s *serverConn) called(ctx context.Context) *turn {
	s.mu.Lock()
	t := s.turn
	s.startAsking()
	s.mu.Unlock()
	if t != nil {
		return t
	}
	look := time.NewTimer(lookLimit)
	defer look.Stop()
	for over := false; ; {
		s.mu.Lock()
		if s.turn == nil && (over || !slices.ContainsFunc(s.copies, func(k *copyConn) bool { return !k.asked })) {
			s.begin(s.first())
		}
		t, heard := s.turn, s.heard
		s.mu.Unlock()
		if t != nil {
			return t
		}
		select {
		case <-heard:
		case <-look.C:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
}

// findPrimary calls the primary at another address where it answers, if it does not at the one that
// is called. It reports whether that is so, and returns who holds a grant of the turn before. s.mu
// is held.
func (s *serverConn) findPrimary() (left []*watcher, other bool) {
	if s.best == nil || !s.best.failed {
		return nil, false
	}
	i := slices.IndexFunc(s.copies, func(k *copyConn) bool { return k.servesIn == s.view && !k.failed })
	if i < 0 {
		return nil, false
	}
	s.best = s.copies[i]
	if s.turn != nil && s.turn.at != s.best {
		left = s.begin(s.best)
	}
	return left, true
}

// unreached notes that a call of a turn did not reach its copy. The question for its view may still
// be waiting there.
func (s *serverConn) unreached(t *turn) {
	s.mu.Lock()
	var left []*watcher
	other := false
	if s.turn == t && s.best == t.at {
		t.at.failed = true
		left, other = s.findPrimary()
	}
	s.mu.Unlock()
	if s.tellWatchers(left); other {
		s.all.tellNews()
	}
}

// first is the copy that is called first. s.mu is held.
func (s *serverConn) first() *copyConn {
	if s.best != nil {
		return s.best
	}
	if i := slices.IndexFunc(s.copies, func(k *copyConn) bool { return k.serves }); i >= 0 {
		return s.copies[i]
	}
	return s.copies[0]
}

// checkContent reports whether a server has the content that the index knows.
func (s *serverConn) checkContent(incarnation uint64, t *turn) error {
	if s.Incarnation == 0 || s.Incarnation == incarnation {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := verbs.ErrLostMemory
	if known := s.view > 0 || len(s.copies) > 1; known && (t != s.turn || t.at != s.best || s.pod == "") {
		kind = verbs.ErrDisconnected
	}
	return fmt.Errorf("%w: it has incarnation %#x, the index knows %#x", kind, incarnation, s.Incarnation)
}

// Follow implements pool.Moves.
func (c *Client) Follow(server uint16, number uint64, moved func(error)) (stop func()) {
	s := c.server(server)
	if s == nil {
		return func() {}
	}
	w := &watcher{number, moved}
	s.mu.Lock()
	late := s.turn != nil && s.turn.number != number
	if !late {
		s.watchers[w] = struct{}{}
	}
	s.mu.Unlock()
	if late {
		s.tellWatchers([]*watcher{w})
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}
}

// OnNews says what is to be called when a memory server may be reached that could not be before:
// another view of it was heard. It must not wait.
func (c *Client) OnNews(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news = append(c.news, f)
}

// Give says which addresses a server has, the primary's first, as its configuration has them now.
func (c *Client) Give(server uint16, addresses []string) {
	if s := c.server(server); s != nil && len(addresses) > 0 {
		s.setAddresses(addresses)
	}
}

// validAddress reports whether a copy may be at an address that another one told.
func validAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && host != "" && port != "" && len(address) <= 256
}
