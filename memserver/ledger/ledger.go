// Package ledger keeps the accounts of a memory server: which indexes were admitted, with which
// quota, superblock slot and slice of the lock table, who owns each chunk, which clients are known
// and which of them are fenced, the partition map of each index and which of its clients holds
// which range of keys.
//
// It is a pure state machine: no I/O, no time, no goroutines. A [Ledger] belongs to one goroutine
// at a time; its owner stores [Ledger.Append] before it answers anybody, and goes back to the
// stored bytes by [Decode] when it could not store them.
//
// What holds at any time (Check):
//
//   - The quotas sum to no more than there are chunks, no index owns more chunks than its quota,
//     and a chunk has one owner.
//   - Each index has a superblock slot and a slice of the lock table of its own; the slices do not
//     overlap.
//   - What one index gave back is dirty until the server has zeroed it, and nobody gets it before.
//     Dirty chunks count as free in the quotas, so an Admit or Allocate may find that it must wait
//     for zeroing (ErrCleaning), never that there is none.
//   - A client id is never 0, never NoClient, and never handed out while the index still knows a
//     client that has it: fenced ones are known until they are forgotten (forget.go).
//   - A client that is fenced stays fenced, also when it is forgotten: no call of the ledger makes
//     a client live again. A later client with its id has another number.
//   - A chunk goes from one client to another only by Adopt, once the fence of the first is
//     complete, and keeps its size of nodes. When the first is forgotten before that, the chunk is
//     NoClient's until it is adopted.
//   - A key has one holder at most. It goes from one to another only by Release, or once the fence
//     of the first is complete; then with the name of the log of the first, which stays until
//     Settle. Each grant has an epoch above all before it.
package ledger

import (
	"fmt"
)

// Limits of every ledger.
const (
	MaxChunks     = 1 << 24   // chunks of one server
	MaxSlots      = 64        // indexes of one server
	MaxMap        = 1 << 20   // bytes of an encoded partition map
	MaxIdentity   = 128       // bytes of an index's identity
	MaxClientName = 64        // bytes of a client's name; longer ones are refused
	MaxClients    = 1<<16 - 2 // client ids of one index: those of fenced clients included
	MaxLive       = 1 << 12   // clients of one index that are not fenced
	MaxLease      = 1 << 32   // milliseconds
	LockAlign     = 4         // slices of the lock table are whole 8-byte words of 16-bit locks

	// NoClient is an id that no client has: in a lock it says that the holder was fenced, of a
	// chunk that its owner was forgotten.
	NoClient = 1<<16 - 1
)

// Shape is what there is to hand out. It never changes while a ledger lives.
type Shape struct {
	Incarnation uint64 // of the region that the ledger describes
	ChunkBytes  uint64 // size of a chunk; for the record
	Chunks      uint32 // chunks are numbered 1 to Chunks
	Slots       int    // superblock slots, numbered from 0
	Locks       uint64 // 16-bit locks in the lock table
	Clients     uint16 // ids for clients of each index, 1 to Clients; 0 = MaxClients
}

// ids is the highest id of a client.
func (s Shape) ids() uint16 {
	if s.Clients == 0 {
		return MaxClients
	}
	return s.Clients
}

func (s Shape) check() error {
	switch {
	case s.Chunks == 0 || s.Chunks > MaxChunks:
		return fmt.Errorf("%w: %d chunks; 1 to %d are possible", ErrInvalid, s.Chunks, MaxChunks)
	case s.Slots < 1 || s.Slots > MaxSlots:
		return fmt.Errorf("%w: %d superblock slots; 1 to %d are possible", ErrInvalid, s.Slots, MaxSlots)
	case s.Locks == 0 || s.Locks%LockAlign != 0 || s.Locks > 1<<40:
		return fmt.Errorf("%w: %d locks; a positive multiple of %d is needed", ErrInvalid, s.Locks, LockAlign)
	case s.Clients > MaxClients:
		return fmt.Errorf("%w: %d client ids; at most %d are possible", ErrInvalid, s.Clients, MaxClients)
	}
	return nil
}

// Ledger is the state. Make it with New or Decode.
type Ledger struct {
	shape    Shape
	draining bool
	// the longest, in milliseconds, that a client may hold from this server; see SetLease
	lease     uint64
	chunks    []chunk // by number; the first is unused
	places    []place // by superblock slot
	used      uint64  // chunks that are owned
	dirty     uint64  // chunks that wait for zeroing
	cursor    uint32  // where the search for a free chunk goes on
	dirtyFrom uint32  // where the search for a dirty chunk goes on
	most      int     // holdings of each index; 0 = MaxHoldings
}

// chunk is who owns a chunk. The zero value is free and zeroed.
type chunk struct {
	owner  uint8  // chunkFree, chunkDirty or the owner's slot + 1
	client uint16 // who allocated or adopted it; NoClient = one that is forgotten; 0 unless owned
	node   uint32 // bytes of the nodes that it is for; 0 if that was not said, and unless owned
}

const (
	chunkFree  = 0
	chunkDirty = MaxSlots + 1
)

// place is a superblock slot with the slice of the lock table and the accounts of the index that
// has it.
type place struct {
	state      placeState
	firstLock  uint64 // held and dirty
	locks      uint64 // held and dirty
	identity   string // held, as all below
	quota      uint64
	used       uint64
	clients    []client       // sorted by id; see clients.go
	alive      int            // how many of them are not fenced
	forgotten  int            // and how many are forgotten
	offered    uint16         // the id up to which Forgettable went last; not stored
	lastClient uint16         // the id that was handed out last
	generation uint64         // of the map; 0 = there is none
	partition  []byte         // the map
	holdings   []Holding      // in the order of keys; see holdings.go
	epoch      uint64         // of the last grant
	joined     []JoinedServer // by id; see joined.go
	joins      uint64         // changes of joined
}

type placeState uint8

const (
	placeFree placeState = iota
	placeHeld
	placeDirty
)

// New is the ledger of a server that has handed out nothing and whose memory is all zero.
func New(shape Shape) (*Ledger, error) {
	if err := shape.check(); err != nil {
		return nil, err
	}
	return &Ledger{shape: shape, chunks: make([]chunk, shape.Chunks+1), places: make([]place, shape.Slots)}, nil
}

// Shape is what the ledger was made with.
func (l *Ledger) Shape() Shape { return l.shape }

// Admit gives an index a place: a superblock slot, a slice of the lock table and a quota of chunks.
// locks = 0 asks for the default, an eighth of the largest free slice, so that every slot gets
// some. An index that is admitted already keeps its place and gets the new quota; locks must then
// be 0 or what it has.
//
// Errors: ErrInvalid, ErrExhausted, ErrInUse (the quota is below what the index owns; other locks),
// ErrDraining (a new index, or more quota), ErrCleaning.
func (l *Ledger) Admit(identity string, quota, locks uint64) (existed bool, err error) {
	return l.AdmitIn(identity, quota, locks, Part{0, l.shape.Locks})
}

// Part of the lock table: locks First to End - 1.
type Part struct{ First, End uint64 }

// AdmitIn is Admit with the slice of a new index within one of these parts of the lock table: the
// first that has room. ErrInvalid too: a part goes beyond the table.
func (l *Ledger) AdmitIn(identity string, quota, locks uint64, parts ...Part) (existed bool, err error) {
	if identity == "" || len(identity) > MaxIdentity {
		return false, fmt.Errorf("%w: identity of %d bytes; 1 to %d are possible", ErrInvalid, len(identity), MaxIdentity)
	}
	if locks%LockAlign != 0 {
		return false, fmt.Errorf("%w: %d locks are not a multiple of %d", ErrInvalid, locks, LockAlign)
	}
	p, _ := l.find(identity)
	var old uint64
	if p != nil {
		existed, old = true, p.quota
	}
	if l.draining && (!existed || quota > old) {
		return existed, fmt.Errorf("%w: index %s is not admitted to it, nor gets more quota", ErrDraining, identity)
	}
	if left := uint64(l.shape.Chunks) - (l.granted() - old); quota > left {
		return existed, fmt.Errorf("%w: index %s asks for %d chunks of %d bytes, %d of %d are not granted to others: %d are missing",
			ErrExhausted, identity, quota, l.shape.ChunkBytes, left, l.shape.Chunks, quota-left)
	}
	if existed {
		if quota < p.used {
			return true, fmt.Errorf("%w: index %s owns %d chunks, its quota cannot become %d; free chunks first", ErrInUse, identity, p.used, quota)
		}
		if locks != 0 && locks != p.locks {
			return true, fmt.Errorf("%w: index %s has %d locks, which cannot become %d while it is admitted", ErrInUse, identity, p.locks, locks)
		}
		p.quota = quota
		return true, nil
	}
	slot, err := l.freeSlot()
	if err != nil {
		return false, err
	}
	first, locks, err := l.freeLocks(locks, parts)
	if err != nil {
		return false, err
	}
	l.places[slot] = place{state: placeHeld, identity: identity, quota: quota, firstLock: first, locks: locks}
	return false, nil
}

// Evict takes everything from an index and says how many chunks that were. All of it is dirty then.
// An index that is not admitted owns nothing: 0.
func (l *Ledger) Evict(identity string) (freed uint64) {
	p, owner := l.find(identity)
	if p == nil {
		return 0
	}
	for n := range l.chunks {
		if l.chunks[n].owner == owner {
			l.chunks[n] = chunk{owner: chunkDirty}
			freed++
		}
	}
	l.used -= freed
	l.dirty += freed
	*p = place{state: placeDirty, firstLock: p.firstLock, locks: p.locks}
	return freed
}

// Allocate gives a client a chunk of its index's quota, for nodes of so many bytes (0: not said),
// and returns the chunk's number. The client need not be registered here: ids are handed out by the
// index's home server. Errors: ErrUnknownIndex, ErrInvalid, ErrFenced, ErrDraining, ErrExhausted,
// ErrCleaning.
func (l *Ledger) Allocate(identity string, client, node uint32) (number uint32, err error) {
	p, owner, err := l.mayAllocate(identity, client, node)
	if err != nil {
		return 0, err
	}
	if p.used >= p.quota {
		return 0, fmt.Errorf("%w: index %s uses all %d chunks of its quota", ErrExhausted, identity, p.quota)
	}
	for range l.shape.Chunks {
		if l.cursor++; l.cursor > l.shape.Chunks {
			l.cursor = 1
		}
		if c := &l.chunks[l.cursor]; c.owner == chunkFree {
			*c = chunk{owner: owner, client: uint16(client), node: node}
			p.used++
			l.used++
			return l.cursor, nil
		}
	}
	return 0, fmt.Errorf("%w: %d chunks", ErrCleaning, l.dirty)
}

func (l *Ledger) mayAllocate(identity string, client, node uint32) (p *place, owner uint8, err error) {
	p, owner = l.find(identity)
	switch {
	case p == nil:
		return nil, 0, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case !isNumber(client):
		return nil, 0, invalid(client)
	case uint64(node) > l.shape.ChunkBytes:
		return nil, 0, fmt.Errorf("%w: nodes of %d bytes; a chunk has %d", ErrInvalid, node, l.shape.ChunkBytes)
	case p.isRefused(client):
		return nil, 0, fenced(identity, client)
	case l.draining:
		return nil, 0, fmt.Errorf("%w: it hands out no chunks; allocate on another server of index %s", ErrDraining, identity)
	}
	return p, owner, nil
}

// Adopt gives a client a chunk that another client of its index had for nodes of so many bytes, if
// the fence of that one is complete, or it is forgotten: nothing of it takes effect there any more.
// The quota does not
// change, nor does the content. Errors: as of Allocate; ErrExhausted: there is no such chunk.
func (l *Ledger) Adopt(identity string, client, node uint32) (number uint32, err error) {
	p, owner, err := l.mayAllocate(identity, client, node)
	if err != nil {
		return 0, err
	}
	if node == 0 {
		return 0, fmt.Errorf("%w: a chunk is adopted for nodes of a size; say which", ErrInvalid)
	}
	var dead clientSet
	p.addAdoptable(&dead)
	for n := range l.chunks {
		if c := &l.chunks[n]; c.owner == owner && c.node == node && dead.has(c.client) {
			c.client = uint16(client)
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("%w: no fenced client of index %s left a chunk for nodes of %d bytes", ErrExhausted, identity, node)
}

// Free takes a chunk back from the client that has it. Client 0 is the server itself, which may
// free any. Errors: ErrUnknownIndex, ErrInvalid, ErrFenced (its chunks are adopted), ErrNotOwned.
func (l *Ledger) Free(identity string, client, number uint32) error {
	p, owner := l.find(identity)
	if p == nil {
		return fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	if client != 0 && !isNumber(client) {
		return invalid(client)
	}
	if p.isRefused(client) {
		return fenced(identity, client)
	}
	if number == 0 || number > l.shape.Chunks || l.chunks[number].owner != owner || client != 0 && l.chunks[number].client != uint16(client) {
		return fmt.Errorf("%w: chunk %d, index %s, client %d", ErrNotOwned, number, identity, client)
	}
	l.chunks[number] = chunk{owner: chunkDirty}
	p.used--
	l.used--
	l.dirty++
	return nil
}

// SwapMap replaces the partition map of an index if its generation is still the expected one (0:
// there is none yet). The ledger keeps bytes. Errors: ErrStale, ErrInvalid (the new generation is
// not above the expected one; a map too large).
func (l *Ledger) SwapMap(identity string, expected, generation uint64, bytes []byte) error {
	p, _ := l.find(identity)
	switch {
	case p == nil:
		return fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case len(bytes) > MaxMap:
		return fmt.Errorf("%w: partition map of %d bytes; at most %d are possible: use fewer ranges", ErrInvalid, len(bytes), MaxMap)
	case generation <= expected:
		return fmt.Errorf("%w: the new generation %d is not above the expected %d", ErrInvalid, generation, expected)
	case p.generation != expected:
		return fmt.Errorf("%w: the partition map of index %s has generation %d, expected was %d; read it and plan again",
			ErrStale, identity, p.generation, expected)
	}
	p.generation, p.partition = generation, bytes
	return nil
}

// Drain starts and ends draining: while it is on, no index is admitted and no chunk is handed out.
func (l *Ledger) Drain(on bool) { l.draining = on }

// find is the place of an index and how chunks name it as their owner; nil if the index is not
// admitted.
func (l *Ledger) find(identity string) (p *place, owner uint8) {
	for i := range l.places {
		if p = &l.places[i]; p.state == placeHeld && p.identity == identity {
			return p, uint8(i + 1)
		}
	}
	return nil, 0
}

func (l *Ledger) granted() (sum uint64) {
	for i := range l.places {
		sum += l.places[i].quota
	}
	return sum
}
