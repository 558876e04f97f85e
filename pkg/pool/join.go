package pool

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// An index is made on some memory servers, and others may join it later. The home keeps the list of
// these ([JoinedList]), beside the superblock. The operator changes it, in this order:
//
//  1. The new server admits the index, with a quota of 0 chunks.
//  2. The home notes the server as Joining.
//  3. Every client that holds a lease at the home says that it reaches the server (below).
//  4. The home notes the server as a Member. From here on its loss is a loss of data, and a client
//     that cannot reach it does not open the index.
//  5. As 3 again: a client that read the list before 4 may have opened the index without it.
//  6. Every client that the new server knows, and that is fenced at the home, is fenced there, too.
//  7. The new server gets its quota. From here on nodes lie there, and addresses of them elsewhere.
//
// Each step can be repeated, and whoever finds the list can go on. Before 4 the server may be noted
// as Left instead, for ever: its id does not join again.
//
// # How a client joins a server
//
// The answer to each renewal at the home has the version of its list. If that is news, the client:
//
//  1. asks the home for the list, which refuses a client that is fenced there;
//  2. connects to each server that is new to it, whose lease on this client begins with that;
//  3. asks the home once more, which refuses a client that was fenced meanwhile;
//  4. uses the server, and tells the home with its next renewal which version it reaches.
//
// # Why no client meets an address of a server that it does not reach
//
// Before 7 above there is no such address. At 5 each client with a lease at the home reaches the
// server. A client without one is fenced there, or has not connected to the home yet: then it reads
// the list after 4 (Open asks for it after it connected), and opens the index with the server. A
// client that is fenced at the home but not elsewhere may meet such an address, and does not reach
// the server (3 of joining refused it): its session fails, and it has to end in any case.
//
// # Why reclamation is right
//
// A client has a part in the epochs of a server from its Connect on. It must hold no address there
// by then. It holds none: those who use the server connected before 7, or before they read
// anything. A client that connected and was refused by 3 of joining uses nothing there.
//
// # Why a fence reaches the client everywhere
//
// Who fences a client at all servers fences it at the home, and reads the list after that (Others).
// A client that uses a server has read the list with that server in it before it was fenced at the
// home. So that server is in the list which is read later. If it is a member there, the client is
// fenced at it like at all others: what it had is cut, and what it asks for later is refused, known
// there or not. If it is only joining, nobody need wait for it, though it may be away: nothing is
// there yet, and before anything is, 6 fences the client. The server knows it then, since it
// connected before it was fenced at the home; and a client that is fenced at the home after 6
// looked there is fenced by somebody who finds a member in the list.
//
// # A server that nothing depends on
//
// Until a session of this client posts something to a server that joined, nothing that the client
// has comes from there. While the server is joining nothing lies there either, so the end of the
// lease there is no reason to give the client up: a server that joins and dies at once harms
// nobody. A client that could not follow such an address when it meets one gives itself up then
// (lose, strange): its next incarnation opens the index anew.
//
// So what is done on all servers is done on members: memory is asked for there, epochs are waited
// for, and half-made changes are looked for. One that was joining when it died stays in the list of
// the client's servers.
//
// When the server is a member, others may have nodes there, with addresses in them of memory that
// this client gives up: it waits for the epochs of the server, too (limbo.go). It learns of them as
// long as it has a lease there. So once a client knows that a server is a member, the end of the
// lease there ends the client, also if that was fenced there before it used the server. Who knows
// it as a member has told the home so before 7.

// Joins is the part of the control path by which servers join an index. A Control may have it. Safe
// for concurrent use.
type Joins interface {
	// Joined asks the home for the list. From then on all of its servers can be named to Connect,
	// Renew, Fence and so on. ErrFenced: the client is fenced at the home. Client 0 asks for
	// nobody.
	Joined(client uint32, limit time.Duration) (JoinedList, error)
}

// JoinedList are the servers that joined an index since it was made. Servers are never removed.
type JoinedList struct {
	Version uint64 // grows with each change; 0 = no server ever joined
	Servers []JoinedServer
}

// JoinedServer is one of them.
type JoinedServer struct {
	ID    uint16
	State JoinState
}

// JoinState is how far a server is. It changes from Joining only.
type JoinState uint8

// The states.
const (
	Joining JoinState = iota + 1 // it holds nothing: clients connect to it if they can
	Member                       // it may hold memory of the index
	Left                         // it never held anything, and never will
)

// joined is what a pool knows of the servers that joined.
type joined struct {
	reached atomic.Uint64 // the version of the list of which this client reaches all servers
	told    atomic.Uint64 // the version that the home told of last
	news    env.Event     // told has grown, or somebody met a strange address
	strange atomic.Bool   // somebody did
}

// joinMembers connects to the members of the list, as a part of Open. Those that are joining are
// left to the keeper: whether they are there must not matter to who opens the index.
func (p *Pool) joinMembers() error {
	p.joined.news = p.env.NewEvent()
	if p.joins == nil {
		return nil
	}
	list, err := p.joins.Joined(p.number, p.limit)
	if err != nil {
		return fmt.Errorf("ask the home server which servers joined: %w", err)
	}
	all := true
	for _, j := range list.Servers {
		switch j.State {
		case Joining:
			all = false
		case Member:
			s, err := p.connect(j.ID)
			if err != nil {
				return fmt.Errorf("memory server %d, which joined the index: %w", j.ID, err)
			}
			p.add(s)
			p.count(s)
		}
	}
	p.joined.told.Store(list.Version)
	if all {
		p.joined.reached.Store(list.Version)
	}
	return nil
}

// add makes a server that this client is connected to one of its servers.
func (p *Pool) add(s *server) {
	if p.alloc != nil {
		p.alloc.mu.Lock()
		defer p.alloc.mu.Unlock()
		p.alloc.grow(s)
	}
	list := append(slices.Clone(p.servers()), s)
	p.list.Store(&list)
	p.dense[s.id].Store(int32(len(list)))
}

// noteVersion takes the version of the list that the home answers.
func (k *leaseKeeper) noteVersion(version uint64) {
	j := &k.pool.joined
	if version > j.told.Load() {
		raise(&j.told, version)
		j.news.Set()
	}
}

// join joins servers for as long as the pool is open.
func (k *leaseKeeper) join() {
	p := k.pool
	for {
		wait := env.Forever
		if p.joined.reached.Load() < p.joined.told.Load() {
			wait = p.servers()[0].lease.interval()
		}
		p.joined.news.Wait(wait)
		if k.stopped.Load() || p.condemned.Load() != nil {
			return
		}
		if p.joined.reached.Load() < p.joined.told.Load() || p.joined.strange.Swap(false) {
			_ = p.joinNew() // tried again
		}
	}
}

// joinNew joins the servers that this client does not reach yet. What it could not do is done at
// the next call.
func (p *Pool) joinNew() error {
	list, err := p.joins.Joined(p.number, p.limit)
	if err != nil {
		return p.refusedByHome(err)
	}
	var fresh []joining
	var failed []error
	for _, j := range list.Servers {
		i := p.dense[j.ID].Load() - 1
		switch {
		case j.State == Left && i >= 0:
			p.leaseLost(p.servers()[i], fmt.Errorf("memory server %d left the index", j.ID))
		case j.State == Member && i >= 0:
			p.count(p.servers()[i])
		case j.State == Left, i >= 0:
		default:
			s, err := p.connect(j.ID)
			switch {
			case err == nil:
				fresh = append(fresh, joining{s, j.State})
			case errors.Is(err, ErrFenced) && j.State == Member:
				p.Condemn(fmt.Errorf("memory server %d, which joined the index: %w", j.ID, err))
			case errors.Is(err, ErrFenced): // it stays so
			default:
				failed = append(failed, fmt.Errorf("join memory server %d: %w", j.ID, err))
			}
		}
	}
	if len(fresh) > 0 {
		if _, err := p.joins.Joined(p.number, p.limit); err != nil {
			for _, s := range fresh {
				_ = s.conn.Close()
			}
			return p.refusedByHome(err)
		}
	}
	for _, s := range fresh {
		p.add(s.server)
		p.keeper.begin(s.server)
		if s.state == Member {
			p.count(s.server)
		}
	}
	if p.condemned.Load() != nil { // who cut all connections may not have seen these
		for _, s := range fresh {
			s.local.cancel()
			_ = s.conn.Close()
		}
	}
	if len(failed) == 0 {
		raise(&p.joined.reached, list.Version)
		p.servers()[0].wake.Set() // to tell the home
	}
	return errors.Join(failed...)
}

// refusedByHome gives this client up if the home says that it is fenced.
func (p *Pool) refusedByHome(err error) error {
	if errors.Is(err, ErrFenced) || errors.Is(err, verbs.ErrLostMemory) {
		p.Condemn(fmt.Errorf("the home server: %w", err))
	}
	return err
}

// leaseLost is called when the lease on a server is over for good: this client is given up, unless
// nothing of it depends on the server. Then whoever is the first to use it gives it up (depend).
func (p *Pool) leaseLost(s *server, why error) {
	s.lost.CompareAndSwap(nil, &why)
	s.wake.Set()
	if s.used.Load() || s.counts.Load() {
		p.Condemn(why)
	}
}

// joining is a server that this client has connected to, and does not use yet.
type joining struct {
	*server
	state JoinState
}

// count lets what is given up from now on wait for the epochs of s, which is a member.
func (p *Pool) count(s *server) {
	if s.counts.Swap(true) {
		return
	}
	p.learned.Add(1)
	if why := s.lost.Load(); why != nil {
		p.Condemn(*why)
	}
}

// members are the servers on which nodes of the index may lie, by dense number.
func (p *Pool) members() iter.Seq2[int, *server] {
	return func(yield func(int, *server) bool) {
		for i, s := range p.servers() {
			if s.counts.Load() && !yield(i, s) {
				return
			}
		}
	}
}

// depend is called before this client uses a server for the first time.
func (p *Pool) depend(s *server) {
	s.used.Store(true)
	if why := s.lost.Load(); why != nil {
		p.Condemn(*why)
	}
}

// needed reports whether the end of this client at s is not complete without an answer from there.
func (s *server) needed() bool { return s.used.Load() || s.lost.Load() == nil }

// strange is called where an address is of no server that this client reaches.
func (p *Pool) strange() {
	if p.joins != nil {
		p.joined.strange.Store(true)
		p.joined.news.Set()
	}
}

// Others are all memory servers that may hold memory of the index, but the home, as the home knows
// them now. Who fences a client everywhere asks after it is fenced at the home.
func (p *Pool) Others() ([]uint16, error) {
	ids := slices.Clone(p.control.Servers()[1:])
	if p.joins == nil {
		return ids, nil
	}
	list, err := p.joins.Joined(p.number, p.limit)
	if err != nil {
		return nil, fmt.Errorf("ask the home server which servers joined: %w", err)
	}
	for _, j := range list.Servers {
		if j.State == Member {
			ids = append(ids, j.ID)
		}
	}
	return ids, nil
}

// joinedBehind appends the servers that joined, or are joining, to those that the index was made
// on.
func (p *Pool) joinedBehind(servers []uint16) ([]uint16, error) {
	if p.joins == nil {
		return servers, nil
	}
	list, err := p.joins.Joined(0, p.limit) // this client may not be registered yet
	for _, j := range list.Servers {
		if j.State != Left {
			servers = append(servers, j.ID)
		}
	}
	return servers, err
}

// addServer makes room for one more server in the lists of the session.
func (s *Session) addServer() {
	s.qps = append(s.qps, nil)
	s.lists = append(s.lists, nil)
	s.fenced = append(s.fenced, false)
}

// connect opens the session's queue pair to a server.
func (s *Session) connect(i int, srv *server) error {
	qp, err := srv.conn.NewQP(s.arena)
	switch why := s.pool.condemned.Load(); {
	case err != nil && why != nil:
		return *why // the reason why the connection was cut
	case err != nil:
		return err
	}
	s.qps[i], s.lists[i] = qp, make([]verbs.Request, 0, verbs.MaxList)
	shown := slices.Clone(s.qps)
	s.shown.Store(&shown)
	return nil
}

// reaches reports whether the session has a queue pair to a server. It opens that if it is the
// first one. If it cannot, the session is dead.
func (s *Session) reaches(i int) bool {
	if i < len(s.qps) && s.qps[i] != nil {
		return true
	}
	if s.broken != nil {
		return false
	}
	for len(s.qps) <= i {
		s.addServer()
	}
	srv := s.pool.servers()[i]
	s.pool.depend(srv)
	if err := s.connect(i, srv); err != nil {
		s.reject(fmt.Errorf("connect to memory server %d, which joined the index: %w", srv.id, err))
		return false
	}
	s.qps[i].SetLimit(s.waits)
	return true
}
