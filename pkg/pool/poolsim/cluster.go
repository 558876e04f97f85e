// Package poolsim is a set of memory servers in a simulated world: package pool runs unchanged on
// package verbs/sim, with a chunk ledger in place of the control service, behind simulated
// two-sided calls.
package poolsim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/audit"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Identity of the index that every cluster admits.
const Identity = "poolsim"

// repairFrom is where the repair records begin, 32 bytes for each lock: the superblock lies before
// them.
const repairFrom = 8 << 10

// intentsFrom is where the intent slots begin, behind the repair records; presenceFrom, where their
// presence words begin, behind these; chunksFrom, where chunks begin, behind these, at multiples of
// their size.
func (c *Cluster) intentsFrom() int  { return repairFrom + (32*c.Options.Locks+4095)&^4095 }
func (c *Cluster) presenceFrom() int { return c.intentsFrom() + pool.IntentBytes*c.Options.Intents }
func (c *Cluster) chunksFrom() int {
	from, size := c.presenceFrom()+pool.PresenceBytes*c.Options.Intents, c.Options.ChunkBytes
	return (from + size - 1) / size * size
}

// Options of a cluster. Zero fields have the defaults given.
type Options struct {
	Servers    int           // 2
	Chunks     int           // of each server; 8
	ChunkBytes int           // 1 MiB
	Locks      int           // of each server's table; 4096
	Intents    int           // intent slots of each server; 64
	Lease      time.Duration // of clients; 0 = there are none, and who is gone is never fenced
	RenewEvery time.Duration // see pool.Config
	// fences look at no lock words but those that intent slots name, and there are no presence
	// words, as of older servers
	NamesAlone bool
	// lock tables lie in host memory, also where Fabric has device memory: what a design's switch
	// onChip, off, asks for
	HostLocks bool
	Executor  verbs.Executor // of two-sided calls
	// stands between fences and the data region; nil = nothing does. For faults that are put in on
	// purpose
	Meddle func(pool.WordMemory) pool.WordMemory
	Fabric sim.Options
}

// Cluster is the memory servers of one index in one world.
type Cluster struct {
	Options Options
	Fabric  *sim.Fabric

	world   *simenv.World
	servers []*server
	clients uint32
	tokens  uint64

	joined  pool.JoinedList
	reached map[uint32]uint64 // by client: the version of joined that it told the home
}

type server struct {
	id      uint16
	world   *simenv.World
	half    *sim.Server
	tokens  map[verbs.Token]verbs.Peer
	owners  *verbs.Chunks // 1 of those that are handed out
	regions []verbs.Memory
	until   map[uint32]time.Duration // of the clients that have a lease: when it ends
	ledger

	words    func(ids []uint32) (turned int, err error) // turns words of ids to Repair
	epochs   *pool.EpochTables
	restarts int // of the server, when the epochs began
}

// chunk is who has a chunk; 0 = nobody.
type chunk struct {
	client uint32
	node   int // bytes
}

// New starts a cluster in w.
func New(w *simenv.World, o Options) (*Cluster, error) {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.Servers, 2)
	set(&o.Chunks, 8)
	set(&o.ChunkBytes, 1<<20)
	set(&o.Locks, 4096)
	set(&o.Intents, 64)
	if o.HostLocks {
		o.Fabric.Capabilities.DeviceMemory = 0
		if o.Fabric.Plan != nil {
			plan := *o.Fabric.Plan
			plan.Capabilities.DeviceMemory, o.Fabric.Plan = 0, &plan
		}
	}
	c := &Cluster{Options: o, Fabric: sim.New(w, o.Fabric), world: w, reached: map[uint32]uint64{}}
	for range o.Servers {
		if err := c.start(o.Chunks); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// start starts a server with a quota of so many chunks.
func (c *Cluster) start(quota int) error {
	w, o, i := c.world, c.Options, len(c.servers)
	s := &server{id: uint16(i + 1), world: w, tokens: map[verbs.Token]verbs.Peer{}, until: map[uint32]time.Duration{}, epochs: pool.NewEpochTables(),
		ledger: ledger{chunks: make([]chunk, o.Chunks), quota: quota, fenced: map[uint32]bool{}, done: map[uint32]bool{}}}
	s.regions = []verbs.Memory{
		{ID: verbs.RegionData, Bytes: make([]byte, c.chunksFrom()+o.Chunks*o.ChunkBytes)},
		{ID: verbs.RegionLocks, Bytes: make([]byte, max(4096, 2*o.Locks))},
	}
	var err error
	s.half, _, err = c.Fabric.NewServer(verbs.ServerOptions{
		Memory: s.regions, Incarnation: uint64(1000 + i), Admission: s, MaxConns: 1 << 15, Executor: o.Executor,
		Reach: s.reachOf(uint64(c.chunksFrom()), uint64(o.ChunkBytes)),
	})
	if err != nil {
		return err
	}
	c.mirror(s)
	s.words = c.sweepWords(s)
	c.servers = append(c.servers, s)
	if o.Lease > 0 {
		p := w.NewProcess(fmt.Sprint("memory server ", s.id))
		p.Go("leases", func() { c.expire(s, p) })
	}
	return nil
}

// reachOf lets clients reach what lies before the chunks, locks, and the chunks that are handed
// out, as a memory server does that checks requests.
func (s *server) reachOf(chunksFrom, chunkBytes uint64) func(verbs.Peer) *verbs.Reach {
	s.owners = verbs.NewChunks(chunksFrom, chunkBytes, len(s.chunks))
	all := verbs.NewReach(s.owners, 1, verbs.Span{Region: verbs.RegionData, End: chunksFrom},
		verbs.Span{Region: verbs.RegionLocks, End: uint64(len(s.regions[1].Bytes))})
	return func(verbs.Peer) *verbs.Reach { return all }
}

// Admit implements verbs.Admission.
func (s *server) Admit(t verbs.Token) (verbs.Peer, error) {
	peer, ok := s.tokens[t]
	if !ok {
		return peer, verbs.ErrRefused
	}
	delete(s.tokens, t)
	if s.fenced[uint32(peer.Client)] {
		return peer, verbs.ErrRefused
	}
	return peer, nil
}

// Open makes a client of the cluster in process p, which must call it.
func (c *Cluster) Open(p *simenv.Process) (*pool.Pool, error) {
	return pool.Open(pool.Config{
		Env: p, Control: c.Control(p), Devices: []verbs.Device{c.Fabric.Device(p)}, Identity: Identity, RenewEvery: c.Options.RenewEvery,
	})
}

// Memory is a region of a server as the server sees it.
func (c *Cluster) Memory(id uint16, region verbs.RegionID) []byte {
	return c.servers[id-1].regions[region].Bytes
}

// Server is the simulated half of a memory server.
func (c *Cluster) Server(id uint16) *sim.Server { return c.servers[id-1].half }

// Chunk is a chunk that is handed out.
type Chunk = audit.Chunk

// Chunks are those that are handed out.
func (c *Cluster) Chunks() (all []Chunk) {
	for _, s := range c.servers {
		for i, k := range s.chunks {
			if k.client == 0 {
				continue
			}
			off := c.chunksFrom() + i*c.Options.ChunkBytes
			all = append(all, Chunk{First: pool.NewAddr(s.id, uint64(off)), Client: k.client, Memory: s.regions[verbs.RegionData].Bytes[off:][:c.Options.ChunkBytes]})
		}
	}
	return all
}

// Left is how many chunks of a server clients have that ended, for somebody to adopt.
func (c *Cluster) Left(id uint16) (n int) {
	for _, s := range c.servers {
		for _, chunk := range s.chunks {
			if s.id == id && chunk.client != 0 && s.done[chunk.client] {
				n++
			}
		}
	}
	return n
}

// Newest is the client that registered last.
func (c *Cluster) Newest() uint32 { return c.clients }

// UsedChunks is how many chunks are handed out, on all servers.
func (c *Cluster) UsedChunks() (n int) {
	for _, s := range c.servers {
		for _, chunk := range s.chunks {
			if chunk.client != 0 {
				n++
			}
		}
	}
	return n
}

// Control is the control path of process p.
func (c *Cluster) Control(p *simenv.Process) pool.Control { return &control{c, p} }

type control struct {
	c *Cluster
	p *simenv.Process
}

// call runs do on a memory server.
func (k *control) call(id uint16, limit time.Duration, do func(s *server) error) (err error) {
	if id == 0 || int(id) > len(k.c.servers) {
		return fmt.Errorf("no memory server %d: %w", id, verbs.ErrDisconnected)
	}
	s := k.c.servers[id-1]
	if e := k.c.Fabric.Call(k.p, s.half.Address(), limit, func() { err = do(s) }); e != nil {
		return e
	}
	return err
}

func (k *control) Servers() []uint16 {
	ids := make([]uint16, k.c.Options.Servers)
	for i := range ids {
		ids[i] = uint16(i + 1)
	}
	return ids
}

func (k *control) Register(limit time.Duration) (client uint32, err error) {
	err = k.call(1, limit, func(s *server) error {
		k.c.changes(s)
		k.c.clients++
		client = k.c.clients
		return nil
	})
	return client, err
}

func (k *control) Connect(id uint16, client uint32, limit time.Duration) (g pool.Grant, err error) {
	err = k.call(id, limit, func(s *server) error {
		k.c.changes(s)
		if err := s.grant(client, k.c.Options.Lease); err != nil {
			return err
		}
		epoch, uncached := s.join(client)
		k.c.tokens++
		var token verbs.Token
		binary.LittleEndian.PutUint64(token[:], k.c.tokens)
		s.tokens[token] = verbs.Peer{Index: Identity, Client: uint16(client)}
		presence := uint64(k.c.presenceFrom())
		if k.c.Options.NamesAlone {
			presence = 0
		}
		g = pool.Grant{
			Provider:   "sim",
			Target:     verbs.Target{Address: s.half.Address(), Token: token, Incarnation: s.half.Incarnation()},
			Superblock: 4096,
			Locks:      uint64(k.c.Options.Locks),
			Repair:     repairFrom,
			Intents:    uint64(k.c.intentsFrom()), IntentSlots: k.c.Options.Intents, Presence: presence, SweepsStrips: !k.c.Options.NamesAlone,
			Lease: k.c.Options.Lease,
			Epoch: epoch, UncachedEpoch: uncached,
			ChunkBytes: uint64(k.c.Options.ChunkBytes),
		}
		return nil
	})
	return g, err
}

func (k *control) AllocateChunk(id uint16, client uint32, nodeBytes int, adopt bool, limit time.Duration) (offset uint64, err error) {
	err = k.call(id, limit, func(s *server) error {
		if s.fenced[client] {
			return pool.ErrFenced
		}
		for i, chunk := range s.chunks[:s.quota] {
			if adopt && s.done[chunk.client] && chunk.node == nodeBytes || !adopt && chunk.client == 0 {
				k.c.changes(s)
				s.chunks[i].client, s.chunks[i].node = client, nodeBytes
				s.owners.Grant(i, 1)
				offset = uint64(k.c.chunksFrom() + i*k.c.Options.ChunkBytes)
				if !adopt {
					s.zero(s.regions[verbs.RegionData].Bytes[offset:][:k.c.Options.ChunkBytes])
				}
				return nil
			}
		}
		if adopt {
			return fmt.Errorf("nobody left a chunk for nodes of %d bytes on memory server %d: %w", nodeBytes, id, pool.ErrPoolFull)
		}
		return fmt.Errorf("all %d chunks of memory server %d are in use: %w", len(s.chunks), id, pool.ErrPoolFull)
	})
	return offset, err
}

func (k *control) FreeChunk(id uint16, client uint32, offset uint64, limit time.Duration) error {
	return k.call(id, limit, func(s *server) error {
		if s.fenced[client] {
			return pool.ErrFenced
		}
		i := (offset - uint64(k.c.chunksFrom())) / uint64(k.c.Options.ChunkBytes)
		if offset < uint64(k.c.chunksFrom()) || i >= uint64(len(s.chunks)) || s.chunks[i].client != client {
			return fmt.Errorf("chunk at %#x of memory server %d is not client %d's", offset, id, client)
		}
		k.c.changes(s)
		s.chunks[i] = chunk{}
		s.owners.Grant(int(i), 0)
		return nil
	})
}
