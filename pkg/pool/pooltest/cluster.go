// Package pooltest is a set of memory servers inside a test: real providers over real mappings,
// with a chunk ledger in place of the control service.
package pooltest

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Identity of the index that every cluster admits.
const Identity = "pooltest"

// superblocks is where the repair records begin, 32 bytes for each lock: the slots lie before them.
const superblocks = 64 << 10

// intents is how many intent slots each server has.
const intents = 224

// intentsFrom is where intent slots begin, behind the repair records; presenceFrom, where their
// presence words begin, behind these; chunks, where chunks begin, behind these, at multiples of
// their size.
func (c *Cluster) intentsFrom() uint64  { return superblocks + uint64(32*c.Options.Locks+4095)&^4095 }
func (c *Cluster) presenceFrom() uint64 { return c.intentsFrom() + intents*pool.IntentBytes }
func (c *Cluster) chunks() uint64 {
	from, size := c.presenceFrom()+pool.PresenceBytes*intents, uint64(c.Options.ChunkBytes)
	return (from + size - 1) / size * size
}

// Options of a cluster. Zero fields have the defaults given.
type Options struct {
	Provider   string // one of Providers; "shm"
	Servers    int    // 2
	Chunks     int    // of each server; 8
	ChunkBytes int    // 1 MiB
	Locks      int    // of each server's table; 4096
	FirstID    uint16 // of the servers; 1

	RenewEvery time.Duration // see pool.Config

	NoPresence bool // servers have no presence words, as those with small chunks

	Executor verbs.Executor // of two-sided calls, where the provider has them
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Provider == "" {
		o.Provider = "shm"
	}
	if o.FirstID == 0 {
		o.FirstID = 1
	}
	set(&o.Servers, 2)
	set(&o.Chunks, 8)
	set(&o.ChunkBytes, 1<<20)
	set(&o.Locks, 4096)
	return o
}

// Cluster is the memory servers of one index. Safe for concurrent use.
type Cluster struct {
	Options Options
	device  verbs.Device

	mu       sync.Mutex
	servers  []*server
	clients  uint16
	cut      bool
	refusals map[uint16]error
	pools    []*pool.Pool
	joined   pool.JoinedList
	ends     []func()          // of the servers that joined
	reached  map[uint16]uint64 // by client: the version of joined that it told
}

type server struct {
	id      uint16
	memory  []verbs.Memory
	half    verbs.Server
	address string
	tokens  map[verbs.Token]verbs.Peer
	mu      *sync.Mutex // the cluster's
	chunks  []chunk
	quota   int // of these
	fenced  map[uint16]bool
	done    map[uint16]bool // whose fence is complete
	epochs  *pool.EpochTables
	served  chan error
}

// chunk is who has a chunk; 0 = nobody.
type chunk struct {
	client uint16
	node   int // bytes
}

// New starts a cluster that ends with the test.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{Options: o.withDefaults(), refusals: map[uint16]error{}, reached: map[uint16]uint64{}}
	p, err := find(c.Options.Provider)
	if err == nil {
		c.device, err = p.device()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	for i := range c.Options.Servers {
		s, err := c.start(t, c.Options.FirstID+uint16(i))
		if err != nil {
			t.Fatal(err)
		}
		c.servers = append(c.servers, s)
	}
	return c
}

func (c *Cluster) start(t testing.TB, id uint16) (*server, error) {
	o := c.Options
	s := &server{id: id, tokens: map[verbs.Token]verbs.Peer{}, mu: &c.mu, chunks: make([]chunk, o.Chunks), quota: o.Chunks,
		fenced: map[uint16]bool{}, done: map[uint16]bool{}, epochs: pool.NewEpochTables(), served: make(chan error, 1)}
	for _, r := range []struct {
		id    verbs.RegionID
		bytes int
	}{{verbs.RegionData, int(c.chunks()) + o.Chunks*o.ChunkBytes}, {verbs.RegionLocks, max(4096, o.Locks*2)}} {
		m, err := mapRegion(t, r.id, r.bytes)
		if err != nil {
			return nil, err
		}
		s.memory = append(s.memory, m)
	}
	options := verbs.ServerOptions{Memory: s.memory, Incarnation: uint64(id) + 1000, Admission: s, Executor: o.Executor,
		HandshakeLimit: time.Minute}
	p, err := find(o.Provider)
	if err != nil {
		return nil, err
	}
	if s.half, err = p.server(options); err != nil {
		return nil, err
	}
	address := "127.0.0.1:0"
	if p.network == "unix" {
		// A path of its own: a test's name may be longer than a Unix address can be.
		dir, err := os.MkdirTemp("", "pool")
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	listener, err := net.Listen(p.network, address)
	if err != nil {
		return nil, err
	}
	s.address = listener.Addr().String()
	go func() { s.served <- s.half.Serve(listener) }()
	t.Cleanup(func() {
		s.half.Close()
		if err := <-s.served; err != nil {
			t.Errorf("pooltest: server %d: %v", id, err)
		}
		for _, m := range s.memory {
			unix.Munmap(m.Bytes)
			m.File.Close()
		}
	})
	return s, nil
}

func mapRegion(t testing.TB, id verbs.RegionID, size int) (verbs.Memory, error) {
	t.Helper()
	fd, err := unix.MemfdCreate("pooltest", unix.MFD_CLOEXEC)
	if err != nil {
		return verbs.Memory{}, fmt.Errorf("memfd: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return verbs.Memory{}, fmt.Errorf("memfd of %d bytes: %w", size, err)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return verbs.Memory{}, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return verbs.Memory{ID: id, Bytes: b, File: os.NewFile(uintptr(fd), "pooltest")}, nil
}

// Admit implements verbs.Admission.
func (s *server) Admit(token verbs.Token) (verbs.Peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	peer, ok := s.tokens[token]
	if !ok || s.fenced[peer.Client] {
		return verbs.Peer{}, verbs.ErrRefused
	}
	delete(s.tokens, token)
	return peer, nil
}

// Open makes a new client of the cluster that is closed with the test.
func (c *Cluster) Open(t testing.TB) *pool.Pool {
	t.Helper()
	p, err := pool.Open(pool.Config{Env: env.Real(), Control: c.Control(), Devices: []verbs.Device{c.device}, Identity: Identity,
		RenewEvery: c.Options.RenewEvery})
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.pools = append(c.pools, p)
	c.mu.Unlock()
	t.Cleanup(func() {
		// A connection that the test cut, also by a fence, has no end that could be confirmed.
		if err := p.Close(); err != nil && !c.wasCut() {
			t.Errorf("pooltest: close the pool: %v", err)
		}
	})
	return p
}

// UsedChunks is how many chunks are handed out, on all servers.
func (c *Cluster) UsedChunks() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		for _, chunk := range s.chunks {
			if chunk.client != 0 {
				n++
			}
		}
	}
	return n
}

// Memory is the data region of a server as the server sees it, for tests that look behind the
// fabric.
func (c *Cluster) Memory(id uint16, region verbs.RegionID) []byte {
	for _, s := range c.servers {
		if s.id == id {
			return s.memory[region].Bytes
		}
	}
	panic(fmt.Sprintf("pooltest: no server %d", id))
}

func (c *Cluster) wasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// Cut disconnects every client of a server.
func (c *Cluster) Cut(id uint16) int {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	for _, s := range c.servers {
		if s.id == id {
			return s.half.Disconnect(func(verbs.Peer) bool { return true })
		}
	}
	panic(fmt.Sprintf("pooltest: no server %d", id))
}

// Refuse makes every later chunk allocation on a server fail with err; nil ends that.
func (c *Cluster) Refuse(id uint16, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals[id] = err
}

// Control is the control path of the cluster's index.
func (c *Cluster) Control() pool.Control { return control{c} }

type control struct{ *Cluster }

func (c control) Servers() []uint16 {
	ids := make([]uint16, c.Options.Servers)
	for i := range ids {
		ids[i] = c.Options.FirstID + uint16(i)
	}
	return ids
}

func (c control) Register(time.Duration) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients++
	return uint32(c.clients), nil
}

func (c control) find(id uint16) (*server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.id == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no memory server %d: %w", id, verbs.ErrDisconnected)
}

func (c control) Connect(id uint16, number uint32, _ time.Duration) (pool.Grant, error) {
	client := uint16(number) // ids are not used again here
	s, err := c.find(id)
	if err != nil {
		return pool.Grant{}, err
	}
	var token verbs.Token
	rand.Read(token[:])
	c.mu.Lock()
	fenced, epoch, uncached := s.fenced[client], uint64(0), uint64(0)
	if !fenced {
		epoch, uncached = s.epochs.Join(client)
	}
	s.tokens[token] = verbs.Peer{Index: Identity, Client: client}
	c.mu.Unlock()
	if fenced {
		return pool.Grant{}, fmt.Errorf("client %d: %w", client, pool.ErrFenced)
	}
	presence := c.presenceFrom()
	if c.Options.NoPresence {
		presence = 0
	}
	return pool.Grant{
		Provider:   c.Options.Provider,
		Target:     verbs.Target{Address: s.address, Token: token, Incarnation: uint64(id) + 1000},
		Superblock: 4096,
		LockOffset: 0,
		Locks:      uint64(c.Options.Locks),
		Repair:     superblocks,
		Intents:    c.intentsFrom(), IntentSlots: intents, Presence: presence, SweepsStrips: true,
		ChunkBytes: uint64(c.Options.ChunkBytes),
		Epoch:      epoch, UncachedEpoch: uncached,
	}, nil
}

func (c control) AllocateChunk(id uint16, number uint32, nodeBytes int, adopt bool, _ time.Duration) (uint64, error) {
	client := uint16(number) // ids are not used again here
	s, err := c.find(id)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusals[id]; err != nil {
		return 0, err
	}
	if s.fenced[client] {
		return 0, fmt.Errorf("client %d: %w", client, pool.ErrFenced)
	}
	for i, chunk := range s.chunks[:s.quota] {
		if adopt && s.done[chunk.client] && chunk.node == nodeBytes || !adopt && chunk.client == 0 {
			s.chunks[i].client, s.chunks[i].node = client, nodeBytes
			return c.chunks() + uint64(i*c.Options.ChunkBytes), nil
		}
	}
	if adopt {
		return 0, fmt.Errorf("nobody left a chunk for nodes of %d bytes on memory server %d: %w", nodeBytes, id, pool.ErrPoolFull)
	}
	return 0, fmt.Errorf("all %d chunks of memory server %d are in use: %w", len(s.chunks), id, pool.ErrPoolFull)
}

func (c control) FreeChunk(id uint16, number uint32, offset uint64, _ time.Duration) error {
	client := uint16(number) // ids are not used again here
	s, err := c.find(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := (offset - c.chunks()) / uint64(c.Options.ChunkBytes)
	if offset < c.chunks() || i >= uint64(len(s.chunks)) || s.chunks[i].client != client || s.fenced[client] {
		return fmt.Errorf("chunk at %#x of memory server %d is not client %d's", offset, id, client)
	}
	clear(s.memory[verbs.RegionData].Bytes[offset:][:c.Options.ChunkBytes])
	s.chunks[i] = chunk{}
	return nil
}
