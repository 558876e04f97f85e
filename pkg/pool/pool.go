// Package pool is the disaggregated memory as one client sees it: global addresses, chunks and
// nodes, lock tables and the superblock of an index, over queue pairs to every memory server of
// that index.
//
// A [Pool] belongs to a process, a [Session] to a goroutine. A session queues requests and posts
// them together: what goes to one server is one list and takes effect in the order of guarantee G1
// of package verbs; between servers there is no order.
package pool

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Config says how to open a pool.
type Config struct {
	Env     env.Env
	Control Control
	Devices []verbs.Device // one for each provider that a Grant may name
	// Identity of the index, as its memory servers know it. It is kept in the superblock and
	// checked.
	Identity string
	// Limit bounds opening and each control call. 0 = DefaultLimit.
	Limit time.Duration
	// Guard, unless nil, proves which earlier clients of the name that Control registers are dead.
	// Keys that these held are free at once, without waiting for the ends of their leases.
	Guard Guard
	// RenewEvery is how often leases are renewed, with news of epochs. 0 = a quarter of the lease,
	// or 250 ms where there are none.
	RenewEvery time.Duration
}

// Guard remembers, from one process of a name to the next on the same kernel, which clients the
// processes had.
type Guard interface {
	// Note remembers a client of this process. It is called before the client connects to any
	// memory server. A client that could not be noted is never confirmed dead.
	Note(identity string, client uint32) error

	// Confirms reports whether nothing of a noted client can be answered any more: its process has
	// ended, or it is an earlier client of this process, which gave it up.
	Confirms(identity string, client uint32) bool
}

// DefaultLimit bounds control calls and sessions unless told otherwise.
const DefaultLimit = 10 * time.Second

// Pool is the memory of one index for one client. Safe for concurrent use.
type Pool struct {
	env      env.Env
	control  Control
	identity string
	client   uint16 // the id: what locks hold
	number   uint32 // the id and its generation
	limit    time.Duration
	every    time.Duration // Config.RenewEvery
	devices  []verbs.Device
	device   verbs.Device // arenas come from it; the queue pairs of all servers take them
	joins    Joins        // nil = no server joins this index
	joined   joined
	list     atomic.Pointer[[]*server] // the home first; grows when servers join
	dense    []atomic.Int32            // by server id: its place in servers, from 1 on; 0 = none
	alloc    *allocator
	sessions *sessions
	keeper   *leaseKeeper

	clock   clock
	learned atomic.Uint64 // grows with what is known of epochs, and of the servers that have some
	marks   atomic.Pointer[Marks]

	words   *lock.Queues // of lock words
	rebuild atomic.Pointer[Rebuild]

	condemned atomic.Pointer[error] // why this client is given up
	repaired  atomic.Uint64
	reclaimed atomic.Uint64
	flat      atomic.Bool // a session was told to be flat (Techniques)
	inDoubt   atomic.Bool // see GiveUpInDoubt
	adopted   atomic.Uint64

	closing env.Mutex // held by Close
	closed  bool
}

// server is one memory server of the pool.
type server struct {
	id    uint16
	grant Grant
	conn  verbs.Conn
	caps  verbs.Capabilities
	local *lockTable
	lease lease
	slots wordSlots

	geometry geometry // of its chunks

	// something of this client may depend on it; always true of servers that the index was made on
	used atomic.Bool
	// memory that is given up waits for its epochs: nodes of the index may lie there
	counts atomic.Bool
	lost   atomic.Pointer[error] // why the lease there is over; see lose
	wake   env.Event             // of who renews the lease

	epochs [reaches]epochs // by reach
}

// epochs are what is known of the epochs of a server, for memory of one reach.
type epochs struct {
	known  atomic.Uint64 // the last one that was learned
	safe   atomic.Uint64
	wanted atomic.Uint64 // the highest that something retired waits for
}

// Open registers the client, ends earlier clients of the same process, connects to every server and
// returns the pool, which renews its leases from then on. The superblock is opened by its index.
func Open(cfg Config) (*Pool, error) {
	p := &Pool{env: cfg.Env, control: cfg.Control, identity: cfg.Identity, limit: cfg.Limit, every: cfg.RenewEvery}
	if p.limit == 0 {
		p.limit = DefaultLimit
	}
	p.sessions, p.closing = newSessions(p.env), p.env.NewMutex()
	p.clock.time.Store(1)
	p.words = lock.NewQueues(p.env)
	p.dense = make([]atomic.Int32, MaxServer+1)
	p.list.Store(new([]*server))
	p.joins, _ = p.control.(Joins)
	p.devices = cfg.Devices
	var err error
	p.number, err = p.control.Register(p.limit)
	if err != nil && p.forgetEnded(func() bool { return false }) > 0 {
		p.number, err = p.control.Register(p.limit)
	}
	if err != nil {
		return nil, fmt.Errorf("register at the home server: %w", err)
	}
	p.client = uint16(p.number)
	p.fencePredecessors(cfg.Guard)
	if cfg.Guard != nil {
		// without it the next process waits for this client's lease
		_ = cfg.Guard.Note(p.identity, p.number)
	}
	for _, id := range p.control.Servers() {
		s, err := p.connect(id)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("memory server %d: %w", id, err), p.Close())
		}
		s.used.Store(true)
		p.add(s)
		p.count(s)
	}
	if len(p.servers()) == 0 {
		return nil, errors.New("the index has no memory servers")
	}
	p.alloc = newAllocator(p)
	if err := p.joinMembers(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.keeper = newLeaseKeeper(p)
	return p, nil
}

func (p *Pool) connect(id uint16) (*server, error) {
	asked := p.env.Now()
	grant, err := p.control.Connect(id, p.number, p.limit)
	if err != nil {
		return nil, err
	}
	dev := deviceFor(grant.Provider, p.devices)
	if dev == nil {
		return nil, fmt.Errorf("it offers %q, which this client does not speak", grant.Provider)
	}
	arenas, err := arenasOf(p.device, dev)
	switch home := p.servers(); {
	case err != nil:
		return nil, err
	case p.alloc == nil:
		p.device = arenas
	case arenas != p.device:
		return nil, fmt.Errorf("it offers %q, and this client has arenas for %q: start it anew", grant.Provider, p.device.Provider())
	case grant.ChunkBytes != home[0].grant.ChunkBytes:
		return nil, fmt.Errorf("it has chunks of %d bytes, the index was made with %d", grant.ChunkBytes, home[0].grant.ChunkBytes)
	}
	conn, err := dev.Connect(grant.Target, p.limit)
	if errors.Is(err, verbs.ErrLostMemory) {
		// The process that gave the grant had the memory, and another one has its port by now.
		// Whether the memory is lost is said by the control path, which knows whom to believe.
		err = fmt.Errorf("%w: another process answers than the one that admitted this client: %v", verbs.ErrDisconnected, err)
	}
	if err != nil {
		return nil, err
	}
	s := &server{id: id, grant: grant, conn: conn, caps: conn.Capabilities(), geometry: geometryOf(grant.ChunkBytes), wake: p.env.NewEvent()}
	s.local = newLockTable(p.env, int(grant.Locks))
	s.slots.mu = p.env.NewMutex()
	s.lease.until.Store(int64(env.Forever))
	s.lease.every = p.every
	s.epochs[cached].known.Store(grant.Epoch)
	s.epochs[uncached].known.Store(grant.UncachedEpoch)
	if grant.Lease > 0 {
		s.lease.renew(asked, grant.Lease)
	}
	return s, nil
}

// arenasOf is the device whose arenas the queue pairs of both take: what was so far, nil at first,
// and that of one more server.
func arenasOf(before, dev verbs.Device) (verbs.Device, error) {
	switch {
	case before == nil, before == dev, takesAnyArena(before):
		return dev, nil
	case takesAnyArena(dev):
		return before, nil
	}
	return nil, fmt.Errorf("it offers %q, others %q: a client has arenas of one of them", dev.Provider(), before.Provider())
}

// takesAnyArena reports whether queue pairs of a device take arenas of every other one.
func takesAnyArena(d verbs.Device) bool {
	_, any := d.(verbs.AnyArena)
	return any
}

func deviceFor(provider string, devices []verbs.Device) verbs.Device {
	for _, d := range devices {
		if d.Provider() == provider {
			return d
		}
	}
	return nil
}

// Env is the world the pool runs in.
func (p *Pool) Env() env.Env { return p.env }

// Client is the number of this client, which no other client of the index ever has. Its lower 16
// bits are its id: what its locks hold.
func (p *Pool) Client() uint32 { return p.number }

// Identity of the index.
func (p *Pool) Identity() string { return p.identity }

// servers are the memory servers that this client is connected to, the home first. Others may have
// joined when it is called again; none goes.
func (p *Pool) servers() []*server { return *p.list.Load() }

// Servers are the ids of the memory servers, the home first: by now, since others may join.
func (p *Pool) Servers() []uint16 {
	ids := make([]uint16, len(p.servers()))
	for i, s := range p.servers() {
		ids[i] = s.id
	}
	return ids
}

// NumServers is how many memory servers there are.
func (p *Pool) NumServers() int { return len(p.servers()) }

// ChunkBytes is the size of a chunk. The smallest of the servers' counts.
func (p *Pool) ChunkBytes() uint64 {
	size := p.servers()[0].grant.ChunkBytes
	for _, s := range p.servers()[1:] {
		size = min(size, s.grant.ChunkBytes)
	}
	return size
}

// Counters sums what all sessions posted, those that are closed included; recent, not exact.
func (p *Pool) Counters() verbs.Counters { return p.sessions.counters() }

// Locks is how often a global lock was found held by another client, and how often a session passed
// one on to another session of this client.
func (p *Pool) Locks() (conflicts, handovers uint64) { return p.sessions.locks() }

// Combined is how many changes sessions carried out for others that waited for their lock.
func (p *Pool) Combined() uint64 { return p.sessions.combined() }

// errParted is why a client that was closed is not alive.
var errParted = fmt.Errorf("this client was closed: %w", ErrFenced)

// Close ends this client: it cuts the connections and fences itself on every server, so that a lock
// which is still its own can be repaired and keys that it held taken over at once. When it returns
// without an error, nothing of this client takes effect any more. Sessions must be closed before.
// Where a server cannot be reached, the lease there runs out instead. A second call does nothing.
func (p *Pool) Close() error {
	p.closing.Lock()
	defer p.closing.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.keeper != nil {
		p.keeper.stop(partingLimit)
	}
	if p.alloc != nil && p.condemned.Load() == nil {
		p.alloc.fetcher.group.Wait(partingLimit) // of what is fetched for no session any more
		// Of what sessions freed last no epoch had news. What is not given back now is adopted
		// later, and seems to be in use.
		p.alloc.reap(partingLimit)
		p.alloc.leaveImages()
	}
	p.condemned.CompareAndSwap(nil, &errParted) // from here on it answers nothing: part says so
	err := p.closeConnections()
	if p.keeper != nil {
		p.keeper.unfollowAll()
	}
	return errors.Join(err, p.fenceItself())
}

// serverOf finds the dense number of the server that an address is on.
func (p *Pool) serverOf(a Addr) (int, bool) {
	if a.Swizzled() {
		return 0, false
	}
	i := p.dense[a.Server()].Load() - 1
	return int(i), i >= 0
}
