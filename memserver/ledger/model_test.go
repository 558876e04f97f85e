package ledger

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is the ledger written down another way: sets, and every figure counted when it is asked
// for.
type model struct {
	shape    Shape
	draining bool
	lease    uint64
	indexes  map[string]*modelIndex
	chunks   map[uint32]modelChunk
	slots    map[int]bool      // dirty ones
	dirtyOf  map[int][2]uint64 // by dirty slot
}

type modelIndex struct {
	slot         int
	first, locks uint64
	quota        uint64
	clients      map[uint32]modelClient // by number; those that were forgotten, too
	last         uint32                 // id
	generation   uint64
	bytes        string
	holdings     modelHoldings
}

type modelChunk struct {
	owner  string // identity, or dirtyMark
	client uint32
	node   uint32
}

type modelClient struct {
	name   string
	fenced bool
	open   bool // not finished
	gone   bool // forgotten
}

// count is how many clients there are, but for those that were forgotten, and how many are fenced.
func (i *modelIndex) count() (all, fenced int) {
	for _, c := range i.clients {
		if !c.gone {
			all++
		}
		if c.fenced && !c.gone {
			fenced++
		}
	}
	return all, fenced
}

// current is the number of the client that has the id of a number and is not forgotten, if there is
// one, and the generation up to which clients of that id were forgotten; -1 if none was.
func (i *modelIndex) current(number uint32) (now uint32, is bool, forgotten int) {
	forgotten = -1
	for n, c := range i.clients {
		switch {
		case uint16(n) != uint16(number):
		case c.gone:
			forgotten = max(forgotten, int(n>>16))
		default:
			now, is = n, true
		}
	}
	return now, is, forgotten
}

// isPast reports whether a client was forgotten, or is an earlier one than the one with its id.
func (i *modelIndex) isPast(number uint32) bool {
	now, is, forgotten := i.current(number)
	return int(number>>16) <= forgotten || is && number < now
}

// isEarly reports whether an earlier client with the id of a number is not forgotten.
func (i *modelIndex) isEarly(number uint32) bool {
	now, is, _ := i.current(number)
	return is && now < number
}

// isRefused reports whether a client gets nothing.
func (i *modelIndex) isRefused(number uint32) bool {
	return i.clients[number].fenced || i.isPast(number) || i.isEarly(number)
}

// owner is the number of the client that owns a chunk.
func (i *modelIndex) owner(c modelChunk) uint32 {
	now, _, _ := i.current(c.client)
	return now
}

const dirtyMark = "\x00dirty"

func (m *model) count(owner string) (n uint64) {
	for _, c := range m.chunks {
		if c.owner == owner {
			n++
		}
	}
	return n
}

func (m *model) granted(but string) (n uint64) {
	for identity, i := range m.indexes {
		if identity != but {
			n += i.quota
		}
	}
	return n
}

// longestFree is the longest run of free locks.
func (m *model) longestFree() (longest uint64) {
	used := make([]bool, m.shape.Locks)
	mark := func(first, n uint64) {
		for k := first; k < first+n; k++ {
			used[k] = true
		}
	}
	for _, i := range m.indexes {
		mark(i.first, i.locks)
	}
	for _, d := range m.dirtyOf {
		mark(d[0], d[1])
	}
	run := uint64(0)
	for _, t := range used {
		if run++; t {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// orphan reports whether a chunk is of a client of the index whose fence is complete.
func (m *model) orphan(c modelChunk, identity string) bool {
	i := m.indexes[identity]
	who := i.clients[i.owner(c)]
	return c.owner == identity && (c.client == NoClient || who.fenced && !who.open)
}

// Check is run after every step.
func (x *machine) Check(t *rapid.T) {
	if err := x.l.Check(); err != nil {
		t.Fatal(err)
	}
	m := x.m
	var used, locks uint64
	for _, view := range x.l.Indexes() {
		i := m.indexes[view.Identity]
		if i == nil {
			t.Fatalf("index %q is not in the model", view.Identity)
		}
		all, fenced := i.count()
		want := Index{view.Identity, i.slot, i.first, i.locks, i.quota, m.count(view.Identity),
			all - fenced, fenced, i.generation}
		if view != want {
			t.Fatalf("have %+v, want %+v", view, want)
		}
		if _, bytes, _ := x.l.Map(view.Identity); string(bytes) != i.bytes {
			t.Fatalf("map of %q", view.Identity)
		}
		x.checkClients(t, view.Identity, i)
		x.checkHoldings(t, view.Identity, &i.holdings)
		used += view.Used
		locks += view.Locks
	}
	if len(x.l.Indexes()) != len(m.indexes) {
		t.Fatalf("%d indexes, want %v", len(x.l.Indexes()), slices.Collect(maps.Keys(m.indexes)))
	}
	var adoptable uint64
	for _, c := range m.chunks {
		if c.owner != dirtyMark && c.node != 0 && m.orphan(c, c.owner) {
			adoptable++
		}
	}
	if got := x.l.Adoptable(); got != adoptable {
		t.Fatalf("%d chunks can be adopted, want %d", got, adoptable)
	}
	if x.l.Lease() != m.lease {
		t.Fatalf("lease %d, want %d", x.l.Lease(), m.lease)
	}
	if want := (Totals{m.granted(""), used, m.count(dirtyMark), locks, m.draining}); x.l.Totals() != want {
		t.Fatalf("totals %+v, want %+v", x.l.Totals(), want)
	}
}

func (x *machine) checkClients(t *rapid.T, identity string, i *modelIndex) {
	for _, name := range []string{"", "p-1"} {
		var want []Client
		var open []uint32
		numbers := slices.SortedFunc(maps.Keys(i.clients), func(a, b uint32) int { return int(uint16(a)) - int(uint16(b)) })
		for _, id := range numbers {
			c := i.clients[id]
			if c.gone {
				expect(t, "live", x.l.Live(identity, id), ErrFenced)
				if !x.l.Complete(identity, id) || x.l.Fenced(identity, id) {
					t.Fatalf("client %d is forgotten, and known", id)
				}
				continue
			}
			if name == "" || c.name == name {
				want = append(want, Client{id, c.name, c.fenced})
			}
			if c.open {
				open = append(open, id)
			}
			switch err := x.l.Live(identity, id); {
			case c.fenced:
				expect(t, "live", err, ErrFenced)
			default:
				expect(t, "live", err)
			}
		}
		if got, err := x.l.Clients(identity, name); err != nil || !slices.Equal(got, want) {
			t.Fatalf("clients named %q are %v, want %v; %v", name, got, want, err)
		}
		if got := x.l.Unfinished(identity); !slices.Equal(got, open) {
			t.Fatalf("unfinished are %v, want %v", got, open)
		}
	}
	if err := x.l.Live(identity, 77); !errors.Is(err, ErrUnknownClient) {
		t.Fatalf("client 77: %v", err)
	}
}

// TestModel runs random operations in random orders. rapid prints how to replay a failure.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := Shape{
			Incarnation: 1, ChunkBytes: 1 << 20, Chunks: rapid.Uint32Range(1, 12).Draw(t, "chunks"),
			Slots: rapid.IntRange(1, 4).Draw(t, "slots"), Locks: 4 * rapid.Uint64Range(1, 32).Draw(t, "words"),
		}
		l, err := New(shape)
		if err != nil {
			t.Fatal(err)
		}
		x := &machine{l, &model{
			shape: shape, indexes: map[string]*modelIndex{}, chunks: map[uint32]modelChunk{},
			slots: map[int]bool{}, dirtyOf: map[int][2]uint64{},
		}}
		for range 4 { // rapid makes short ones
			t.Repeat(rapid.StateMachineActions(x))
		}
	})
}
