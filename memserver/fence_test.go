package memserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestRepairIsNobodysID(t *testing.T) {
	if ledger.NoClient != pool.Repair {
		t.Errorf("the ledger hands out ids up to %d, locks to repair say %d", ledger.NoClient-1, pool.Repair)
	}
}

// TestFullLedger: indexes at their limits do not keep the clients of another one from coming and
// from being fenced. What would fill the ledger is refused before.
func TestFullLedger(t *testing.T) {
	c := localConfig(t)
	c.LedgerBytes = minLedgerBytes
	s, _ := start(t, c)
	m := admin(t, s.Addresses().Control, nil)
	must(m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	id := must(m.Register(t.Context(), &rpcv1.RegisterRequest{Index: "a"})).Client
	for n := 0; ; n++ {
		index := fmt.Sprint("large-", n)
		if _, err := m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: index}); err != nil || n > 26 {
			wantCode(t, "one index more", err, codes.ResourceExhausted, "the ledger is full", "evict an index")
			break
		}
		if _, err := m.SwapMap(t.Context(), &rpcv1.SwapMapRequest{Index: index, Generation: 1, Map: make([]byte, ledger.MaxMap)}); err != nil {
			t.Fatalf("map of index %d: %v", n, err)
		}
	}
	must(m.Fence(t.Context(), &rpcv1.FenceRequest{Index: "a", Clients: []uint32{id}}))
	must(m.Register(t.Context(), &rpcv1.RegisterRequest{Index: "a"}))
	must(m.Evict(t.Context(), &rpcv1.EvictRequest{Index: "large-0"}))
	must(m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "b", QuotaChunks: 1}))
}

// holder is a client with a connection that writes its id into locks.
type holder struct {
	t    *testing.T
	id   uint32
	qp   verbs.QP
	old  []byte
	from uint64 // of the index's slice
}

func newHolder(t *testing.T, c *control.Client, id uint32) *holder {
	t.Helper()
	grant := must(c.Connect(7, id, limit))
	_, qp, arena := open(t, grant)
	return &holder{t, id, qp, must(arena.Alloc(8)), grant.LockOffset}
}

// add adds to the word of lock n, which must be a multiple of 4; it returns the old value.
func (h *holder) add(n, v uint64) (uint64, error) {
	err := verbs.Post(h.qp, []verbs.Request{{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: h.from + 2*n, Local: h.old, Add: v}})
	return binary.NativeEndian.Uint64(h.old), err
}

// locks is four locks of 16 bits as one word.
func locks(a, b, c, d uint32) uint64 {
	return uint64(a) | uint64(b)<<16 | uint64(c)<<32 | uint64(d)<<48
}

// TestFence ends one of several clients: its connection, its tokens and its calls, for good, and
// its locks say REPAIR. Nobody else notices.
func TestFence(t *testing.T) {
	for _, provider := range []string{"tcp", "shm"} {
		t.Run(provider, func(t *testing.T) {
			dir := t.TempDir()
			s, stop := start(t, dirConfig(dir))
			c := client(t, s.Addresses().Control, "a", provider, nil)
			m := admin(t, s.Addresses().Control, nil)
			must(c.Admit(4, 1024, limit))
			must(m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "b", QuotaChunks: 1}))
			bad, good := newHolder(t, c, must(c.Register(limit))), newHolder(t, c, must(c.Register(limit)))
			other := newHolder(t, client(t, s.Addresses().Control, "b", provider, nil), bad.id)
			const r = pool.Repair
			want := map[uint64]uint64{}
			for n, w := range map[uint64][2]uint64{
				0:    {locks(bad.id, 0, good.id, bad.id), locks(r, 0, good.id, r)},
				8:    {locks(good.id, good.id, 0, 7), locks(good.id, good.id, 0, 7)},
				1020: {locks(0, r, 0, bad.id), locks(0, r, 0, r)},
			} {
				must(bad.add(n, w[0]))
				want[n] = w[1]
			}
			must(other.add(0, locks(0, 0, 0, bad.id)))
			token := must(c.Connect(7, bad.id, limit)).Target
			chunk := must(c.AllocateChunk(7, bad.id, 1024, false, limit))

			reply := must(m.Fence(t.Context(), &rpcv1.FenceRequest{Index: "a", Clients: []uint32{uint32(bad.id), 9}}))
			if reply.Locks != 3 {
				t.Errorf("%d locks were turned", reply.Locks)
			}
			if again := must(m.Fence(t.Context(), &rpcv1.FenceRequest{Index: "a", Clients: []uint32{uint32(bad.id)}})); again.Locks != 0 {
				t.Errorf("%d locks were turned again", again.Locks)
			}
			check := func(good, other *holder) {
				t.Helper()
				for n, v := range want {
					if got := must(good.add(n, 0)); got != v {
						t.Errorf("lock word %d is %#x, want %#x", n, got, v)
					}
				}
				if got := must(other.add(0, 0)); got != locks(0, 0, 0, bad.id) {
					t.Errorf("the lock of another index is %#x", got)
				}
			}
			check(good, other)
			if _, err := bad.add(16, 1); !errors.Is(err, verbs.ErrDisconnected) {
				t.Errorf("a fenced client posts: %v", err)
			}
			device := deviceOf(provider)
			defer device.Close()
			if _, err := device.Connect(token, limit); !errors.Is(err, verbs.ErrRefused) {
				t.Errorf("a token of a fenced client: %v", err)
			}
			refused := func(c *control.Client, id uint32) {
				t.Helper()
				_, connect := c.Connect(7, id, limit)
				_, renew := c.Renew(7, id, pool.Epochs{}, limit)
				_, allocate := c.AllocateChunk(7, id, 1024, false, limit)
				for what, err := range map[string]error{"connect": connect, "renew": renew, "allocate": allocate} {
					if !errors.Is(err, pool.ErrFenced) {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
			refused(c, bad.id)
			refused(c, 9) // fenced before it ever came
			_, err := m.FreeChunk(t.Context(), &rpcv1.FreeChunkRequest{Index: "a", Client: uint32(bad.id), Offset: chunk})
			wantCode(t, "free by a fenced client", err, codes.Aborted, "client is fenced", "1 of index a")
			_, err = m.FreeChunk(t.Context(), &rpcv1.FreeChunkRequest{Index: "a", Client: uint32(good.id), Offset: chunk})
			wantCode(t, "free of another client's chunk", err, codes.NotFound, "client 2")
			if got := must(c.AllocateChunk(7, good.id, 1024, true, limit)); got != chunk {
				t.Errorf("chunk %#x is adopted, want %#x", got, chunk)
			}
			if err := c.FreeChunk(7, good.id, chunk, limit); err != nil {
				t.Errorf("free an adopted chunk: %v", err)
			}
			must(c.Renew(7, good.id, pool.Epochs{}, limit))
			if got := clients(t, m, "a"); got != "1 fenced, 2 "+t.Name()+", 9 fenced" {
				t.Errorf("clients: %s", got)
			}

			stop()
			s, _ = start(t, dirConfig(dir))
			c = client(t, s.Addresses().Control, "a", provider, nil)
			refused(c, bad.id)
			refused(c, 9)
			check(newHolder(t, c, good.id), newHolder(t, client(t, s.Addresses().Control, "b", provider, nil), bad.id))
			if id := must(c.Register(limit)); id != 3 {
				t.Errorf("the next client is %d", id)
			}
		})
	}
}

// clients is what ListClients says.
func clients(t *testing.T, m rpcv1.MemoryClient, index string) string {
	var all []string
	for _, c := range must(m.ListClients(t.Context(), &rpcv1.ListClientsRequest{Index: index})).Clients {
		state := c.Name
		if c.Fenced {
			state += "fenced"
		}
		all = append(all, fmt.Sprint(c.Client, " ", state))
	}
	return strings.Join(all, ", ")
}

// TestBadFences sends what no program should.
func TestBadFences(t *testing.T) {
	s, _ := start(t, localConfig(t))
	m := admin(t, s.Addresses().Control, nil)
	must(m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "a", QuotaChunks: 1}))
	fence := func(index string, ids ...uint32) error {
		_, err := m.Fence(t.Context(), &rpcv1.FenceRequest{Index: index, Clients: ids})
		return err
	}
	wantCode(t, "nobody", fence("a"), codes.InvalidArgument, "1 to 256")
	wantCode(t, "too many", fence("a", slices.Repeat([]uint32{1}, 257)...), codes.InvalidArgument)
	wantCode(t, "as many as are possible", fence("a", slices.Repeat([]uint32{1}, 256)...), codes.OK)
	wantCode(t, "client 0", fence("a", 2, 0), codes.InvalidArgument)
	wantCode(t, "REPAIR", fence("a", 2, 65535), codes.InvalidArgument, "65534")
	wantCode(t, "id 0 of a later generation", fence("a", 1<<16), codes.InvalidArgument)
	wantCode(t, "REPAIR of a later generation", fence("a", 1<<16+65535), codes.InvalidArgument)
	wantCode(t, "unknown index", fence("b", 1), codes.NotFound)
	if got := clients(t, m, "a"); got != "1 fenced" {
		t.Errorf("clients: %s", got)
	}
	renew := func(id uint32) error {
		_, err := m.Renew(t.Context(), &rpcv1.RenewRequest{Index: "a", Client: id})
		return err
	}
	registered := must(m.Register(t.Context(), &rpcv1.RegisterRequest{Index: "a"})).Client
	wantCode(t, "renew without a client", renew(0), codes.InvalidArgument)
	wantCode(t, "renew by a client that is not known", renew(77), codes.NotFound, "connect first")
	wantCode(t, "renew by a client that never connected", renew(registered), codes.NotFound, "connect first")
}

// TestPredecessors: a process that starts anew finds what its former lives left behind.
func TestPredecessors(t *testing.T) {
	s, _ := start(t, localConfig(t))
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 0, limit))
	must(admin(t, s.Addresses().Control, nil).Register(t.Context(), &rpcv1.RegisterRequest{Index: "a", Name: "somebody else"}))
	first, second, third := must(c.Register(limit)), must(c.Register(limit)), must(c.Register(limit))
	if err := c.Fence(7, []uint32{second}, limit); err != nil {
		t.Fatal(err)
	}
	if got := must(c.Predecessors(third, limit)); !slices.Equal(got, []uint32{first}) {
		t.Errorf("predecessors %v", got)
	}
}

// TestLeaseExpires: who renews lives, who does not is fenced within little more than a lease, and
// all of it is counted.
func TestLeaseExpires(t *testing.T) {
	config, clock := localConfig(t), newJumping()
	config.env = clock
	s, _ := start(t, config)
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 0, limit))
	begun := clock.Now()
	grant := must(c.Connect(7, 1, limit))
	if grant.Lease != config.Lease || grant.Repair != region.RepairStart+grant.LockOffset*region.RepairBytes/2 {
		t.Errorf("grant %+v", grant)
	}
	silent, renewing := newHolder(t, c, 1), newHolder(t, c, 2)
	must(silent.add(4, locks(0, 1, 2, 0)))
	for { // until the lease loop has done its work, which the test program's end bounds
		if clock.Now()-begun < 2*config.Lease {
			clock.pass(config.Lease / 8)
		}
		if r, err := c.Renew(7, 2, pool.Epochs{}, limit); err != nil || r.Lease != config.Lease {
			t.Fatalf("renew: %v, %v", r.Lease, err)
		}
		if must(renewing.add(4, 0)) != locks(0, 1, 2, 0) {
			break
		}
		if _, err := c.Renew(7, 2, pool.Epochs{}, limit); err != nil {
			t.Fatal(err)
		}
	}
	if took := clock.Now() - begun; took < config.Lease {
		t.Errorf("fenced after %v", took)
	}
	if got := must(renewing.add(4, 0)); got != locks(0, pool.Repair, 2, 0) {
		t.Errorf("locks %#x", got)
	}
	if _, err := silent.add(8, 1); !errors.Is(err, verbs.ErrDisconnected) {
		t.Errorf("who let its lease expire posts: %v", err)
	}
	if _, err := c.Renew(7, 1, pool.Epochs{}, limit); !errors.Is(err, pool.ErrFenced) {
		t.Errorf("renew too late: %v", err)
	}
	for _, want := range []string{ // the lease loop counts when all is done
		"dmindex_memserver_expired_leases_total 1", "dmindex_memserver_repair_locks_total 1", `dmindex_memserver_index_fenced_clients{index="a"} 1`,
		`dmindex_memserver_index_clients{index="a"} 1`, "dmindex_memserver_unfinished_fences 0",
	} {
		text, end := "", time.Now().Add(limit)
		for !strings.Contains(text, want) && time.Now().Before(end) {
			_, text = get(t, s.Addresses().Metrics, "/metrics")
		}
		if !strings.Contains(text, want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
}

// TestLeaseAfterRestart: a server that starts anew gives everybody a whole lease, the longest that
// was ever promised, and then fences who does not come back.
func TestLeaseAfterRestart(t *testing.T) {
	dir := t.TempDir()
	config, clock := dirConfig(dir), newJumping()
	config.env = clock
	s, stop := start(t, config)
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(1, 0, limit))
	must(newHolder(t, c, 1).add(0, locks(1, 0, 0, 0)))
	config.Lease = longLease / 2
	stop()
	begun := clock.Now()
	s, _ = start(t, config)
	c = client(t, s.Addresses().Control, "a", "tcp", nil)
	renewing := newHolder(t, c, 2)
	for must(renewing.add(0, 0)) != locks(pool.Repair, 0, 0, 0) {
		if clock.Now()-begun < 2*longLease {
			clock.pass(longLease / 8)
		}
		must(c.Renew(7, 2, pool.Epochs{}, limit))
	}
	if took := clock.Now() - begun; took < longLease {
		t.Errorf("fenced %v after the restart", took)
	}
	for lease := uint64(0); lease != uint64(config.Lease/time.Millisecond); must(c.Renew(7, 2, pool.Epochs{}, limit)) {
		s.control.Accounts.Read(func(l *ledger.Ledger) { lease = l.Lease() })
	}
}
