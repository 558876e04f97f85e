package computeserver

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Compute servers over real connections, of a design whose ranges have owners: memindex behind a
// guard who knows what each client took, and a home memory server without a network.

// ownedStore is what the clients share.
type ownedStore struct {
	t     testing.TB
	store *memindex.Store
	home  *memservertest.Bare
	full  *atomic.Bool // there is no memory to divide a range
}

// owners makes servers hold ranges.
func owners(t testing.TB) func(*Config) { return ownersOf(t, memindex.New(env.Real(), 512, 2048)) }

// ownersOf is owners of a given store.
func ownersOf(t testing.TB, store *memindex.Store) func(*Config) {
	return ownersIn(t, store, &atomic.Bool{})
}

// ownersFull is owners of an index whose pool is full at times.
func ownersFull(t testing.TB, full *atomic.Bool) func(*Config) {
	return ownersIn(t, memindex.New(env.Real(), 512, 2048), full)
}

func ownersIn(t testing.TB, store *memindex.Store, full *atomic.Bool) func(*Config) {
	home, err := memservertest.NewBare(env.Real(), memservertest.BareOptions{
		Locks: make([]byte, 64), Shape: ledger.Shape{ChunkBytes: 1 << 20, Chunks: 1, Slots: 1, Locks: 32},
		Save: func([]byte) error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = home.Admit(computeservertest.Index, 1, 4)
	}
	if err == nil {
		err = home.SwapMap(computeservertest.Index, 0, 1, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := &ownedStore{t, store, home, full}
	return func(cfg *Config) {
		cfg.SharesAll = false
		cfg.Open = func() (ownership.Opened, error) {
			id, err := home.Register(computeservertest.Index, fmt.Sprint("pod-", cfg.ID))
			return &ownedIndex{Index: o.store.Open(), o: o, client: id, inUse: map[string]int{}}, err
		}
	}
}

// ownedIndex is a client of it. It implements Owner.
type ownedIndex struct {
	*memindex.Index
	o      *ownedStore
	client uint32

	mu    sync.Mutex
	taken []pool.Holding
	inUse map[string]int // keys, by sessions
}

func (x *ownedIndex) Log() []byte                        { return nil }
func (x *ownedIndex) Client() uint32                     { return x.client }
func (x *ownedIndex) Servers() []uint16                  { return []uint16{1} }
func (x *ownedIndex) FenceOthers(uint16, []uint32) error { return nil }
func (x *ownedIndex) Others() ([]uint16, error)          { return x.Servers()[1:], nil }
func (x *ownedIndex) Holdings() ([]pool.Held, error) {
	return x.o.home.Holdings(computeservertest.Index)
}
func (x *ownedIndex) Settle(s, e []byte, n uint64) error {
	return x.o.home.Settle(computeservertest.Index, x.client, s, e, n)
}
func (x *ownedIndex) Release(s, e []byte, n uint64) error {
	return x.o.home.Release(computeservertest.Index, x.client, s, e, n)
}

// Acquire claims by whatever map the home has: maps come from elsewhere in these tests.
func (x *ownedIndex) Acquire(c pool.Claim) (pool.Acquired, error) {
	c.Client, c.Generation = x.client, 1
	return x.o.home.Acquire(computeservertest.Index, c)
}

func (x *ownedIndex) Take(r pool.Holding) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = append(x.taken, r)
	return nil
}

func (x *ownedIndex) Give(start, end []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, n := range x.inUse {
		if _, _, in := keyrange.Intersect(start, end, []byte(key), append([]byte(key), 0)); in && n > 0 {
			x.o.t.Errorf("client %d gives [%q, %q) while %q is in use", x.client, start, end, key)
		}
	}
	if x.o.full.Load() {
		return 0, index.ErrPoolFull
	}
	var kept []pool.Holding
	for _, h := range x.taken {
		if from, to, ok := keyrange.Intersect(h.Start, h.End, nil, start); ok && len(start) > 0 {
			kept = append(kept, pool.Holding{Start: from, End: to})
		}
		if from, to, ok := keyrange.Intersect(h.Start, h.End, end, nil); ok && len(end) > 0 {
			kept = append(kept, pool.Holding{Start: from, End: to})
		}
	}
	x.taken = kept
	return 0, nil
}

// has reports whether all keys right behind, or right below, a place were taken. Called under mu.
func (x *ownedIndex) has(key []byte, below bool) bool {
	for _, h := range x.taken {
		switch {
		case !below && bytes.Compare(h.Start, key) <= 0 && (len(h.End) == 0 || bytes.Compare(key, h.End) < 0):
			return true
		case below && len(key) == 0 && len(h.End) == 0:
			return true
		case below && len(key) > 0 && bytes.Compare(h.Start, key) < 0 && (len(h.End) == 0 || bytes.Compare(key, h.End) <= 0):
			return true
		}
	}
	return false
}

func (x *ownedIndex) Session() (index.Session, error) {
	s, err := x.Index.Session()
	return &ownedSession{s, x}, err
}

type ownedSession struct {
	index.Session
	x *ownedIndex
}

// use runs an operation on a key that must have been taken.
func (s *ownedSession) use(key []byte, f func() error) error {
	x := s.x
	x.mu.Lock()
	if !x.has(key, false) {
		x.mu.Unlock()
		x.o.t.Errorf("client %d is asked for %q, which it has not taken", x.client, key)
		return index.ErrNotOwner
	}
	x.inUse[string(key)]++
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.inUse[string(key)]--
	}()
	return f()
}

func (s *ownedSession) Lookup(key, dst []byte) (out []byte, err error) {
	err = s.use(key, func() error { out, err = s.Session.Lookup(key, dst); return err })
	return out, err
}

func (s *ownedSession) Insert(key, value []byte) error {
	return s.use(key, func() error { return s.Session.Insert(key, value) })
}

func (s *ownedSession) Update(key, value []byte) error {
	return s.use(key, func() error { return s.Session.Update(key, value) })
}

func (s *ownedSession) Upsert(key, value []byte) error {
	return s.use(key, func() error { return s.Session.Upsert(key, value) })
}

func (s *ownedSession) Delete(key []byte) error {
	return s.use(key, func() error { return s.Session.Delete(key) })
}

func (s *ownedSession) Modify(key []byte, change index.Change) error {
	return s.use(key, func() error { return s.Session.Modify(key, change) })
}

func (s *ownedSession) LookupBatch(keys [][]byte, visit func(i int, value []byte, err error)) error {
	for _, key := range keys {
		if err := s.use(key, func() error { return nil }); err != nil {
			return err
		}
	}
	return s.Session.LookupBatch(keys, visit)
}

// Prepare leaves out what this client does not own.
func (s *ownedSession) Prepare(_, _ [][]byte) error { return nil }

// Scan ends where what was taken without a gap ends.
func (s *ownedSession) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	x := s.x
	x.mu.Lock()
	ok, at := x.has(start, reverse), append([]byte{}, start...)
	for going := ok; going && at != nil; { // at is how far it reaches; nil = the end of all keys
		going = false
		for _, h := range x.taken {
			if at == nil {
				break
			}
			switch {
			case !reverse && bytes.Compare(h.Start, at) <= 0 && bytes.Compare(at, h.End) < 0:
				at, going = h.End, true
			case reverse && len(h.Start) > 0 && (len(at) == 0 && len(h.End) == 0 || bytes.Compare(h.Start, at) < 0 && (len(h.End) == 0 || bytes.Compare(at, h.End) <= 0)):
				at, going = h.Start, true
			case len(h.End) == 0 && !reverse && bytes.Compare(h.Start, at) <= 0, reverse && len(h.Start) == 0 && (len(h.End) == 0 || bytes.Compare(at, h.End) <= 0):
				at = nil
			}
		}
	}
	x.mu.Unlock()
	if !ok {
		x.o.t.Errorf("client %d is asked to scan from %q (reverse %v), which it has not taken", x.client, start, reverse)
		return index.ErrNotOwner
	}
	return s.Session.Scan(start, limit, reverse, func(key, value []byte) bool {
		if len(at) > 0 && (!reverse && bytes.Compare(key, at) >= 0 || reverse && bytes.Compare(key, at) < 0) {
			return false
		}
		return visit(key, value)
	})
}

// TestOwnersChangeUnderLoad: ranges change hands between three servers and a fourth under load,
// over real connections. No request may fail, and no server uses what it has not taken.
func TestOwnersChangeUnderLoad(t *testing.T) { mapsChangeUnderLoad(t, owners(t), config.RoutingOwner) }

func TestOwnersScansAgainstAModel(t *testing.T) {
	scansAgainstAModel(t, owners(t), config.RoutingOwner)
}

// TestOwnersOverRESP: a pipeline of commands for keys here, there and not yet taken over is
// answered in order.
func TestOwnersOverRESP(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, owners(t), 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	for round := range 3 {
		v := fmt.Sprint(round)
		r.Send(computeservertest.Command("SET", "a", v) + computeservertest.Command("SET", "x", v) + computeservertest.Command("GET", "a") + computeservertest.Command("GET", "x") + computeservertest.Command("MGET", "a", "x") + computeservertest.Command("PING", v))
		r.Expect("+OK\r\n+OK\r\n$1\r\n" + v + "\r\n$1\r\n" + v + "\r\n*2\r\n$1\r\n" + v + "\r\n$1\r\n" + v + "\r\n$1\r\n" + v + "\r\n")
		m := *c.servers[1].core.View.Current()
		m.Generation++
		m.Ranges = append(m.Ranges[:0:0], m.Ranges...)
		// they change places
		m.Ranges[0].Owner, m.Ranges[1].Owner = m.Ranges[1].Owner, m.Ranges[0].Owner
		c.publish(&m)
	}
	_, body := c.servers[1].get(t, "/metrics")
	if want := "dmindex_compute_ranges{state="; !bytes.Contains([]byte(body), []byte(want)) {
		t.Errorf("metrics do not say %s", want)
	}
}
