package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// Index is what the ledger knows of one index.
type Index struct {
	Identity   string
	Slot       int    // its superblock slot
	FirstLock  uint64 // its slice of the lock table starts there
	Locks      uint64 // and has so many 16-bit locks
	Quota      uint64 // chunks
	Used       uint64 // chunks
	Clients    int    // known, and not fenced
	Fenced     int    // clients that are fenced, and not forgotten
	Generation uint64 // of the partition map; 0 = there is none
}

// Totals are the sums over all indexes.
type Totals struct {
	Granted      uint64 // chunks: sum of the quotas
	Used         uint64 // chunks that are owned
	Dirty        uint64 // chunks that wait for zeroing
	LocksGranted uint64
	Draining     bool
}

// Index finds an index.
func (l *Ledger) Index(identity string) (Index, error) {
	p, owner := l.find(identity)
	if p == nil {
		return Index{}, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	return view(int(owner)-1, p), nil
}

func view(slot int, p *place) Index {
	live := p.liveClients()
	return Index{
		Identity: p.identity, Slot: slot, FirstLock: p.firstLock, Locks: p.locks, Quota: p.quota, Used: p.used,
		Clients: live, Fenced: len(p.clients) - live - p.forgotten, Generation: p.generation,
	}
}

// Has reports whether an index has a chunk.
func (l *Ledger) Has(identity string, number uint32) bool {
	_, owner := l.find(identity)
	return owner != 0 && int(number) < len(l.chunks) && l.chunks[number].owner == owner
}

// Chunks are those that an index has.
func (l *Ledger) Chunks(identity string) (numbers []uint32) {
	_, owner := l.find(identity)
	for number := range l.chunks {
		if owner != 0 && l.chunks[number].owner == owner {
			numbers = append(numbers, uint32(number))
		}
	}
	return numbers
}

// Owner is the superblock slot + 1 of the index that has a chunk; 0 if none has it.
func (l *Ledger) Owner(number uint32) int {
	if o := l.chunks[number].owner; o != chunkDirty {
		return int(o)
	}
	return chunkFree
}

// Indexes are all that are admitted, sorted by identity.
func (l *Ledger) Indexes() (all []Index) {
	for i := range l.places {
		if p := &l.places[i]; p.state == placeHeld {
			all = append(all, view(i, p))
		}
	}
	slices.SortFunc(all, func(a, b Index) int { return strings.Compare(a.Identity, b.Identity) })
	return all
}

// Map is the partition map of an index; generation 0 if there is none. The caller must not change
// it.
func (l *Ledger) Map(identity string) (generation uint64, bytes []byte, err error) {
	p, _ := l.find(identity)
	if p == nil {
		return 0, nil, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	return p.generation, p.partition, nil
}

// Totals sums up.
func (l *Ledger) Totals() Totals {
	t := Totals{Granted: l.granted(), Used: l.used, Dirty: l.dirty, Draining: l.draining}
	for i := range l.places {
		if l.places[i].state == placeHeld {
			t.LocksGranted += l.places[i].locks
		}
	}
	return t
}

// Adoptable is how many chunks, of all indexes and sizes of nodes, wait for a client to adopt them.
func (l *Ledger) Adoptable() (n uint64) {
	dead := make([]clientSet, len(l.places))
	for i := range l.places {
		l.places[i].addAdoptable(&dead[i])
	}
	for _, c := range l.chunks {
		if c.owner != chunkFree && c.owner != chunkDirty && c.node > 0 && dead[c.owner-1].has(c.client) {
			n++
		}
	}
	return n
}

// DirtyChunk is a chunk that waits for zeroing, if there is one. Until CleanedChunk nobody else
// gets it.
func (l *Ledger) DirtyChunk() (number uint32, ok bool) {
	if l.dirty == 0 {
		return 0, false
	}
	for l.chunks[l.dirtyFrom].owner != chunkDirty {
		if l.dirtyFrom++; l.dirtyFrom > l.shape.Chunks {
			l.dirtyFrom = 1
		}
	}
	return l.dirtyFrom, true
}

// CleanedChunk says that a dirty chunk is zero. It need not be stored at once: a chunk may be
// zeroed twice.
func (l *Ledger) CleanedChunk(number uint32) {
	if l.chunks[number].owner != chunkDirty {
		panic(fmt.Sprintf("ledger: chunk %d was zeroed, but it is not dirty", number))
	}
	l.chunks[number] = chunk{}
	l.dirty--
}

// DirtyPlace is a superblock slot with a slice of the lock table that wait for zeroing, if there is
// one.
func (l *Ledger) DirtyPlace() (slot int, firstLock, locks uint64, ok bool) {
	for i := range l.places {
		if p := &l.places[i]; p.state == placeDirty {
			return i, p.firstLock, p.locks, true
		}
	}
	return 0, 0, 0, false
}

// CleanedPlace says that a dirty slot and its slice of the lock table are zero.
func (l *Ledger) CleanedPlace(slot int) {
	if l.places[slot].state != placeDirty {
		panic(fmt.Sprintf("ledger: superblock slot %d was zeroed, but it is not dirty", slot))
	}
	l.places[slot] = place{}
}

// Check says which invariant is broken, if one is.
func (l *Ledger) Check() error {
	if l.lease > MaxLease {
		return fmt.Errorf("lease of %d ms", l.lease)
	}
	var used, dirty uint64
	perSlot := make([]uint64, len(l.places))
	for n, c := range l.chunks {
		switch {
		case c.owner == chunkFree || c.owner == chunkDirty:
			if c.client != 0 || c.node != 0 {
				return fmt.Errorf("chunk %d has no owner but client %d and nodes of %d bytes", n, c.client, c.node)
			}
			if c.owner == chunkDirty {
				dirty++
			}
		case int(c.owner) > len(l.places) || l.places[c.owner-1].state != placeHeld:
			return fmt.Errorf("chunk %d is owned by slot %d, where no index is", n, c.owner-1)
		case c.client == 0:
			return fmt.Errorf("chunk %d was allocated by client 0", n)
		case uint64(c.node) > l.shape.ChunkBytes:
			return fmt.Errorf("chunk %d of %d bytes is for nodes of %d", n, l.shape.ChunkBytes, c.node)
		default:
			used++
			perSlot[c.owner-1]++
		}
	}
	if l.chunks[0] != (chunk{}) {
		return fmt.Errorf("chunk 0 is not there, but is marked")
	}
	if used != l.used || dirty != l.dirty {
		return fmt.Errorf("%d chunks are owned and %d dirty, counted are %d and %d", used, dirty, l.used, l.dirty)
	}
	if g := l.granted(); g > uint64(l.shape.Chunks) {
		return fmt.Errorf("%d chunks are granted, there are %d", g, l.shape.Chunks)
	}
	for i := range l.places {
		if err := l.checkPlace(i, perSlot[i]); err != nil {
			return fmt.Errorf("superblock slot %d: %w", i, err)
		}
	}
	return nil
}

func (l *Ledger) checkPlace(i int, owned uint64) error {
	p := &l.places[i]
	if p.state == placeFree {
		if p.locks != 0 || p.identity != "" || p.quota != 0 || len(p.clients) != 0 {
			return fmt.Errorf("it is free but has content")
		}
		return nil
	}
	if p.locks == 0 || p.firstLock%LockAlign != 0 || p.locks%LockAlign != 0 || p.locks > l.shape.Locks || p.firstLock > l.shape.Locks-p.locks {
		return fmt.Errorf("locks %d+%d are not within the table of %d", p.firstLock, p.locks, l.shape.Locks)
	}
	for j := range l.places[:i] {
		o := &l.places[j]
		if o.state != placeFree && p.firstLock < o.firstLock+o.locks && o.firstLock < p.firstLock+p.locks {
			return fmt.Errorf("locks %d+%d overlap those of slot %d", p.firstLock, p.locks, j)
		}
		if p.state == placeHeld && o.state == placeHeld && p.identity == o.identity {
			return fmt.Errorf("index %q also has slot %d", p.identity, j)
		}
	}
	if p.state == placeDirty {
		if p.identity != "" || p.quota != 0 || len(p.clients) != 0 {
			return fmt.Errorf("it is dirty but has an index")
		}
		return nil
	}
	switch {
	case p.identity == "" || len(p.identity) > MaxIdentity:
		return fmt.Errorf("identity of %d bytes", len(p.identity))
	case p.used != owned || p.used > p.quota:
		return fmt.Errorf("owns %d chunks, counted are %d, quota is %d", owned, p.used, p.quota)
	case len(p.partition) > MaxMap || p.generation == 0 && len(p.partition) > 0:
		return fmt.Errorf("map of %d bytes and generation %d", len(p.partition), p.generation)
	}
	if err := p.checkJoined(); err != nil {
		return err
	}
	if err := p.checkClients(); err != nil {
		return err
	}
	return p.checkHoldings()
}
