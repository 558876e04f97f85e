package ledger

import (
	"errors"

	"pgregory.net/rapid"
)

// step is a random operation on ledger and model, with the check that they agree on the outcome.
type machine struct {
	l *Ledger
	m *model
}

var identities = []string{"a", "a", "a", "a", "b", "c/2", "d", "e"}

func anIndex(t *rapid.T) string { return rapid.SampledFrom(identities).Draw(t, "index") }

func expect(t *rapid.T, what string, got error, want ...error) {
	t.Helper()
	if len(want) == 0 && got == nil {
		return
	}
	for _, w := range want {
		if w == nil && got == nil || w != nil && errors.Is(got, w) {
			return
		}
	}
	t.Fatalf("%s: got %v, want one of %v", what, got, want)
}

func (x *machine) Admit(t *rapid.T) {
	identity := anIndex(t)
	quota := rapid.Uint64Range(0, uint64(x.m.shape.Chunks)+2).Draw(t, "quota")
	locks := rapid.SampledFrom([]uint64{0, 0, 4, 8, 3, 40, 128}).Draw(t, "locks")
	existed, err := x.l.Admit(identity, quota, locks)
	m, i := x.m, x.m.indexes[identity]
	switch {
	case locks%LockAlign != 0:
		expect(t, "odd locks", err, ErrInvalid)
	case m.draining && (i == nil || quota > i.quota):
		expect(t, "draining", err, ErrDraining)
	case m.granted(identity)+quota > uint64(m.shape.Chunks):
		expect(t, "too much", err, ErrExhausted)
	case i != nil && quota < m.count(identity):
		expect(t, "less than used", err, ErrInUse)
	case i != nil && locks != 0 && locks != i.locks:
		expect(t, "other locks", err, ErrInUse)
	case i != nil:
		expect(t, "quota", err)
		if !existed {
			t.Fatal("a known index is new")
		}
		i.quota = quota
	case len(m.indexes)+len(m.slots) == m.shape.Slots:
		want := ErrExhausted
		if len(m.slots) > 0 {
			want = ErrCleaning
		}
		expect(t, "no slot", err, want)
	case err != nil: // no room in the lock table: the model only knows whether there can be
		want := ErrExhausted
		if len(m.dirtyOf) > 0 {
			want = ErrCleaning
		}
		expect(t, "no locks", err, want)
		if longest := m.longestFree(); longest >= max(locks, LockAlign) {
			t.Fatalf("%d locks refused, %d are free in a row", locks, longest)
		}
	default:
		view, err := x.l.Index(identity)
		expect(t, "view", err)
		longest := m.longestFree()
		if locks != 0 && view.Locks != locks || locks == 0 && view.Locks != max(LockAlign, longest/8/LockAlign*LockAlign) {
			t.Fatalf("%d locks granted, %d asked, %d were free in a row", view.Locks, locks, longest)
		}
		m.indexes[identity] = &modelIndex{slot: view.Slot, first: view.FirstLock, locks: view.Locks, quota: quota, clients: map[uint32]modelClient{}}
	}
}

func (x *machine) Evict(t *rapid.T) {
	identity := anIndex(t)
	freed := x.l.Evict(identity)
	if want := x.m.count(identity); freed != want {
		t.Fatalf("%d chunks freed, want %d", freed, want)
	}
	for n, c := range x.m.chunks {
		if c.owner == identity {
			x.m.chunks[n] = modelChunk{owner: dirtyMark}
		}
	}
	if i := x.m.indexes[identity]; i != nil {
		x.m.slots[i.slot] = true
		x.m.dirtyOf[i.slot] = [2]uint64{i.first, i.locks}
		delete(x.m.indexes, identity)
	}
}

func (x *machine) Allocate(t *rapid.T) {
	identity, client, node := anIndex(t), anOwner(t), aNode(t)
	n, err := x.l.Allocate(identity, client, node)
	m, i := x.m, x.m.indexes[identity]
	switch {
	case i == nil:
		expect(t, "unknown", err, ErrUnknownIndex)
	case !isNumber(client):
		expect(t, "nobody", err, ErrInvalid)
	case uint64(node) > m.shape.ChunkBytes:
		expect(t, "too large", err, ErrInvalid)
	case i.isRefused(client):
		expect(t, "fenced", err, ErrFenced)
	case m.draining:
		expect(t, "draining", err, ErrDraining)
	case m.count(identity) >= i.quota:
		expect(t, "quota", err, ErrExhausted)
	case len(m.chunks) == int(m.shape.Chunks): // the quotas fit, so some of these are dirty
		expect(t, "cleaning", err, ErrCleaning)
	default:
		expect(t, "allocate", err)
		if n == 0 || n > m.shape.Chunks || m.chunks[n] != (modelChunk{}) {
			t.Fatalf("chunk %d was handed out, it is %+v", n, m.chunks[n])
		}
		m.chunks[n] = modelChunk{identity, client, node}
	}
}

// anOwner is mostly a client that may have chunks.
func anOwner(t *rapid.T) uint32 {
	return rapid.SampledFrom([]uint32{1, 2, 300, 65533, 3, 0, NoClient, Number(1, 1), Number(1, 2), Number(2, 1)}).Draw(t, "client")
}

// aNode is a size of nodes; mostly one that a chunk can have, and not always said.
func aNode(t *rapid.T) uint32 {
	return rapid.SampledFrom([]uint32{1024, 1024, 1024, 64, 64, 0, 1 << 20, 1<<20 + 1}).Draw(t, "node bytes")
}

func (x *machine) Adopt(t *rapid.T) {
	identity, client, node := anIndex(t), anOwner(t), aNode(t)
	n, err := x.l.Adopt(identity, client, node)
	m, i := x.m, x.m.indexes[identity]
	switch {
	case i == nil:
		expect(t, "unknown", err, ErrUnknownIndex)
	case !isNumber(client) || uint64(node) > m.shape.ChunkBytes:
		expect(t, "nobody, or too large", err, ErrInvalid)
	case i.isRefused(client):
		expect(t, "fenced", err, ErrFenced)
	case m.draining:
		expect(t, "draining", err, ErrDraining)
	case node == 0:
		expect(t, "no size", err, ErrInvalid)
	case err != nil:
		expect(t, "adopt", err, ErrExhausted)
		for n, c := range m.chunks {
			if c.node == node && m.orphan(c, identity) {
				t.Fatalf("chunk %d is there: %+v; %v", n, c, err)
			}
		}
	default:
		if c := m.chunks[n]; c.node != node || !m.orphan(c, identity) {
			t.Fatalf("chunk %d was adopted by %d for nodes of %d bytes, it is %+v of %+v", n, client, node, c, i.clients[c.client])
		}
		m.chunks[n] = modelChunk{identity, client, node}
	}
}

func (x *machine) Free(t *rapid.T) {
	identity, n := anIndex(t), rapid.Uint32Range(0, x.m.shape.Chunks+1).Draw(t, "chunk")
	client := uint32(rapid.IntRange(0, 5).Draw(t, "client"))
	if rapid.IntRange(0, 3).Draw(t, "its own") > 0 {
		client = x.m.chunks[n].client
	}
	err := x.l.Free(identity, client, n)
	switch i := x.m.indexes[identity]; {
	case i == nil:
		expect(t, "unknown", err, ErrUnknownIndex)
	case client == NoClient:
		expect(t, "nobody", err, ErrInvalid)
	case i.isRefused(client):
		expect(t, "fenced", err, ErrFenced)
	case x.m.chunks[n].owner != identity || client != 0 && uint16(client) != uint16(x.m.chunks[n].client):
		expect(t, "not its own", err, ErrNotOwned)
	default:
		expect(t, "free", err)
		x.m.chunks[n] = modelChunk{owner: dirtyMark}
	}
}

func (x *machine) Register(t *rapid.T) {
	identity := anIndex(t)
	name := rapid.OneOf(rapid.SampledFrom([]string{"", "p-1", "p-2"}), rapid.StringN(0, 100, -1)).Draw(t, "name")
	id, err := x.l.Register(identity, name)
	i := x.m.indexes[identity]
	if i == nil {
		expect(t, "unknown", err, ErrUnknownIndex)
		return
	}
	if len(name) > MaxClientName {
		expect(t, "register with a long name", err, ErrInvalid)
		return
	}
	want, ids := i.last, uint32(x.m.shape.ids())
	for range ids {
		if want++; want > ids {
			want = 1
		}
		if _, is, forgotten := i.current(want); !is {
			i.clients[Number(uint16(forgotten+1), uint16(want))], i.last = modelClient{name: name}, want
			expect(t, "register", err)
			if id != Number(uint16(forgotten+1), uint16(want)) {
				t.Fatalf("client %d, want id %d after generation %d", id, want, forgotten)
			}
			return
		}
	}
	expect(t, "register though no id is free", err, ErrExhausted)
}

// aClient is mostly one that somebody may have, at times one that nobody has.
func aClient(t *rapid.T) uint32 {
	return rapid.SampledFrom([]uint32{0, 1, 1, 2, 2, 3, 4, 5, 9, 300, 65533, 65534, 65535, Number(1, 1), Number(1, 2), Number(2, 1), Number(1, 0)}).Draw(t, "client")
}

func (x *machine) Meet(t *rapid.T) {
	identity, id := anIndex(t), aClient(t)
	err := x.l.Meet(identity, id)
	switch i := x.m.indexes[identity]; {
	case i == nil:
		expect(t, "unknown", err, ErrUnknownIndex)
	case uint16(id) == 0 || uint16(id) == NoClient:
		expect(t, "nobody", err, ErrInvalid)
	case i.isEarly(id):
		expect(t, "early", err, ErrUnknownClient)
	case i.isRefused(id):
		expect(t, "fenced", err, ErrFenced)
	default:
		expect(t, "meet", err)
		if _, known := i.clients[id]; !known { // else it keeps its name
			i.clients[id] = modelClient{}
		}
	}
}

func (x *machine) Fence(t *rapid.T) {
	identity, id := anIndex(t), aClient(t)
	if i := x.m.indexes[identity]; i != nil && i.isEarly(id) && x.leaves(identity, id) {
		return // TestFenceOfALaterClient
	}
	news, err := x.l.Fence(identity, id)
	switch i := x.m.indexes[identity]; {
	case i == nil:
		expect(t, "unknown", err, ErrUnknownIndex)
	case uint16(id) == 0 || uint16(id) == NoClient:
		expect(t, "nobody", err, ErrInvalid)
	default:
		expect(t, "fence", err)
		if news == (i.clients[id].fenced || i.isPast(id)) {
			t.Fatalf("client %d is %+v, and fencing it is news: %v", id, i.clients[id], news)
		}
		if news {
			if now, is, _ := i.current(id); is {
				delete(i.clients, now) // an earlier one is fenced with it
			}
			i.clients[id] = modelClient{fenced: true, open: true}
		}
	}
}

func (x *machine) Finished(t *rapid.T) {
	identity, id := anIndex(t), aClient(t)
	i := x.m.indexes[identity]
	before := x.l.Complete(identity, id)
	if want := i != nil && (i.clients[id].fenced && !i.clients[id].open || i.isPast(id)); before != want {
		t.Fatalf("the fence of %d is complete before: %v, want %v", id, before, want)
	}
	complete := x.l.Finished(identity, id)
	if complete && !x.l.Complete(identity, id) {
		t.Fatalf("the fence of %d is complete: %v, and then not", id, complete)
	}
	if want := i != nil && i.clients[id].fenced && !i.isPast(id); complete != want {
		t.Fatalf("the fence of %d is complete: %v, want %v", id, complete, want)
	}
	if complete {
		i.clients[id] = modelClient{fenced: true}
	}
}

func (x *machine) SetLease(t *rapid.T) {
	lease := rapid.SampledFrom([]uint64{0, 1, 10_000, MaxLease, MaxLease + 1}).Draw(t, "lease")
	err := x.l.SetLease(lease)
	if lease > MaxLease {
		expect(t, "too long", err, ErrInvalid)
		return
	}
	expect(t, "lease", err)
	x.m.lease = lease
}

func (x *machine) SwapMap(t *rapid.T) {
	identity := anIndex(t)
	expected, generation := rapid.Uint64Range(0, 3).Draw(t, "expected"), rapid.Uint64Range(0, 4).Draw(t, "generation")
	bytes := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "map")
	err := x.l.SwapMap(identity, expected, generation, bytes)
	switch i := x.m.indexes[identity]; {
	case i == nil:
		expect(t, "unknown", err, ErrUnknownIndex)
	case generation <= expected:
		expect(t, "not above", err, ErrInvalid)
	case i.generation != expected:
		expect(t, "stale", err, ErrStale)
	default:
		expect(t, "swap", err)
		i.generation, i.bytes = generation, string(bytes)
	}
}

func (x *machine) Drain(t *rapid.T) {
	x.m.draining = rapid.IntRange(0, 3).Draw(t, "on") == 0
	x.l.Drain(x.m.draining)
}

func (x *machine) CleanChunk(t *rapid.T) {
	n, ok := x.l.DirtyChunk()
	if ok != (x.m.count(dirtyMark) > 0) || ok && x.m.chunks[n].owner != dirtyMark {
		t.Fatalf("chunk %d is to be zeroed: %v; it is %+v", n, ok, x.m.chunks[n])
	}
	if ok {
		x.l.CleanedChunk(n)
		delete(x.m.chunks, n)
	}
}

func (x *machine) CleanPlace(t *rapid.T) {
	slot, first, locks, ok := x.l.DirtyPlace()
	if ok != (len(x.m.slots) > 0) || ok && x.m.dirtyOf[slot] != [2]uint64{first, locks} {
		t.Fatalf("slot %d is to be zeroed: %v", slot, ok)
	}
	if ok {
		x.l.CleanedPlace(slot)
		delete(x.m.slots, slot)
		delete(x.m.dirtyOf, slot)
	}
}

// Restart goes through the stored form.
func (x *machine) Restart(t *rapid.T) {
	stored := x.l.Append(nil)
	l, err := Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	if string(l.Append(nil)) != string(stored) {
		t.Fatal("what was read is stored differently")
	}
	x.l = l
}
