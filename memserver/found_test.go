package memserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestWhatIsFound opens directories in every state that a user or a crash could leave.
func TestWhatIsFound(t *testing.T) {
	write := func(name string, data string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600) }
	}
	patch := func(name string, at int64, data string) func(dir string) error {
		return func(dir string) error {
			f := must(os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0))
			defer f.Close()
			_, err := f.WriteAt([]byte(data), at)
			return err
		}
	}
	none := func(string) error { return nil }
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	const kept, renewed = "kept", "renewed"
	f := func(what string, spoil func(dir string) error, configure func(*Config), want string, also ...string) {
		t.Helper()
		dir := t.TempDir()
		first := must(New(dirConfig(dir)))
		first.control.Accounts.Note(func(l *ledger.Ledger) { must(l.Admit("a", 1, 0)) })
		incarnation := first.Incarnation()
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		c := dirConfig(dir)
		c.Logger = testLog(t)
		if configure != nil {
			configure(&c)
		}
		s, err := New(c)
		switch {
		case want != kept && want != renewed:
			for _, part := range append(also, want) {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: error %v does not say %q", what, err, part)
				}
			}
		case err != nil:
			t.Errorf("%s: %v", what, err)
		case (s.Incarnation() == incarnation) != (want == kept):
			t.Errorf("%s: the content should be %s", what, want)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	f("as it was", none, nil, kept)
	f("half a new ledger beside the old one", write(ledgerFile+".new", "dmLed"), nil, kept)
	f("no region", remove(region.DataFile), nil, renewed)
	f("empty region", write(region.DataFile, ""), nil, renewed)
	f("region whose making was not finished", patch(region.DataFile, 0, "\x00"), nil, renewed)
	f("somebody else's file", write(region.DataFile, strings.Repeat("x", 8192)), nil, renewed)
	f("machine restarted", func(dir string) error {
		f := must(os.OpenFile(filepath.Join(dir, region.DataFile), os.O_RDWR, 0))
		defer f.Close()
		page := make([]byte, region.HeaderBytes)
		must(f.ReadAt(page, 0))
		h := must(region.Decode(page))
		h.Boot[0] ^= 1
		changed := h.Encode()
		_, err := f.WriteAt(changed[:], 0)
		return err
	}, nil, renewed)
	f("another format version", patch(region.DataFile, 8, "\x07\x00\x00\x00"), nil, "format version is 7", "program has 3", "empty data directory")
	f("damaged header", patch(region.DataFile, 20, "\xff\xff"), nil, "header page is damaged")
	f("another size", none, func(c *Config) { c.MemoryBytes = 32 << 20 }, "region is 20971520", "asks for 33554432", "set it back")
	f("another chunk size", none, func(c *Config) { c.ChunkBytes = 2 << 20 }, "chunk size is 1048576", "asks for 2097152")
	f("another lock table", none, func(c *Config) { c.LockTableBytes = 8 }, "lock table is 262144", "asks for 8")
	f("region cut off", func(dir string) error { return os.Truncate(filepath.Join(dir, region.DataFile), 4<<20) }, nil, "has 4194304 bytes and should have 20971520")
	f("no lock table", remove(region.LocksFile), nil, "should have 262144")
	f("no ledger", remove(ledgerFile), nil, "its ledger is not", "empty data and state directories")
	f("broken ledger", patch(ledgerFile, 30, "\xff"), nil, "damaged ledger")
	f("ledger of another version", patch(ledgerFile, 8, "\x08"), nil, "version 8", "versions 2 to 7", "run the program that wrote it")
	f("state directory of another server", none, func(c *Config) { c.StateDir = t.TempDir() }, "its ledger is not")
	f("ledger of another region", func(dir string) error {
		other := t.TempDir()
		must(New(dirConfig(other))).Close()
		return os.WriteFile(filepath.Join(dir, ledgerFile), must(os.ReadFile(filepath.Join(other, ledgerFile))), 0o600)
	}, nil, "ledger", "is of another region")
}

// TestStateDir keeps the ledger apart.
func TestStateDir(t *testing.T) {
	c := dirConfig(t.TempDir())
	c.StateDir = filepath.Join(t.TempDir(), "made", "by", "the", "server")
	s := must(New(c))
	incarnation := s.Incarnation()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.StateDir, ledgerFile)); err != nil {
		t.Error(err)
	}
	again := must(New(c))
	defer again.Close()
	if again.Incarnation() != incarnation {
		t.Error("another incarnation")
	}
}

// TestStoreFails takes the place away where the ledger is stored: changes are refused and not made,
// reads go on, and once there is a place again all is well.
func TestStoreFails(t *testing.T) {
	dir := t.TempDir()
	s, _ := start(t, dirConfig(dir))
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(4, 0, limit))
	first := must(c.AllocateChunk(7, 1, 1024, false, limit))
	obstacle := filepath.Join(dir, ledgerFile+".new")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := c.AllocateChunk(7, 1, 1024, false, limit); !errors.Is(err, verbs.ErrDisconnected) || !strings.Contains(err.Error(), "nothing was changed") {
			t.Fatalf("allocate: %v", err)
		}
		if err := c.FreeChunk(7, 1, first, limit); !errors.Is(err, verbs.ErrDisconnected) {
			t.Fatalf("free: %v", err)
		}
	}
	d := must(admin(t, s.Addresses().Control, nil).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{}))
	if d.ChunksUsed != 1 {
		t.Errorf("%d chunks are used", d.ChunksUsed)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if chunk := must(c.AllocateChunk(7, 1, 1024, false, limit)); chunk == first {
		t.Error("a chunk was given twice")
	}
}

// TestLockTableOfPartOfAPage: what lies behind a lock table on its last page is nobody's, whether
// its slices are granted, swept or waiting to be zeroed. A table on huge pages is less than a page
// as well.
func TestLockTableOfPartOfAPage(t *testing.T) {
	config := localConfig(t)
	config.DataDir, config.LockTableBytes = t.TempDir(), 128 // 64 locks
	s, stop := start(t, config)
	m := admin(t, s.Addresses().Control, nil)
	for i := range 16 { // some meet slices that wait to be zeroed
		r, err := m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "default", QuotaChunks: 1})
		if err == nil && r.Locks != 8 {
			t.Fatalf("%d locks of 64 by default, want an eighth", r.Locks)
		}
		c := client(t, s.Addresses().Control, fmt.Sprint("all", i), "tcp", nil)
		must(m.Evict(t.Context(), &rpcv1.EvictRequest{Index: "default"}))
		must(c.Admit(7, 64, limit)) // waits for the other one's
		if grant := must(c.Connect(7, 1, limit)); grant.LockOffset != 0 || grant.Locks != 64 {
			t.Fatalf("%d locks at %d", grant.Locks, grant.LockOffset)
		}
		_, err = m.Admit(t.Context(), &rpcv1.AdmitRequest{Index: "more", QuotaChunks: 1})
		wantCode(t, "more than all", err, codes.ResourceExhausted, "of 64")
		must(m.Fence(t.Context(), &rpcv1.FenceRequest{Index: fmt.Sprint("all", i), Clients: []uint32{1}}))
		must(m.Evict(t.Context(), &rpcv1.EvictRequest{Index: fmt.Sprint("all", i)}))
	}
	stop()
	start(t, config) // finds a ledger that it understands
}

// TestEvict takes an index away from a client that is connected: it is cut, and who comes next
// finds nothing but zeros.
func TestEvict(t *testing.T) {
	for _, provider := range []string{"tcp", "shm"} {
		t.Run(provider, func(t *testing.T) {
			s, _ := start(t, localConfig(t))
			m := admin(t, s.Addresses().Control, nil)
			c := client(t, s.Addresses().Control, "first", provider, nil)
			must(c.Admit(7, 131072, limit))
			unused := must(c.Connect(7, 1, limit))
			grant := must(c.Connect(7, 1, limit))
			_, qp, arena := open(t, grant)
			buf := must(arena.Alloc(1 << 12))
			for i := range buf {
				buf[i] = 0xee
			}
			fill := func(grant pool.Grant) []verbs.Request {
				return []verbs.Request{
					{Op: verbs.Write, Remote: grant.Superblock, Local: buf},
					{Op: verbs.Write, Remote: grant.Repair, Local: buf},
					{Op: verbs.Write, Remote: grant.Repair + region.RepairBytes*grant.Locks - 4096, Local: buf},
					{Op: verbs.Write, Region: verbs.RegionLocks, Remote: grant.LockOffset + 2*grant.Locks - 4096, Local: buf},
				}
			}
			list := fill(grant)
			for range 7 {
				chunk := must(c.AllocateChunk(7, 1, 1024, false, limit))
				list = append(list, verbs.Request{Op: verbs.Write, Remote: chunk, Local: buf}, verbs.Request{Op: verbs.Write, Remote: chunk + 1<<20 - 4096, Local: buf})
			}
			if err := verbs.Post(qp, list); err != nil {
				t.Fatal(err)
			}
			if r := must(m.Evict(t.Context(), &rpcv1.EvictRequest{Index: "first"})); r.FreedChunks != 7 {
				t.Errorf("%d chunks freed", r.FreedChunks)
			}
			if r := must(m.Evict(t.Context(), &rpcv1.EvictRequest{Index: "first"})); r.FreedChunks != 0 {
				t.Errorf("again: %d chunks freed", r.FreedChunks)
			}
			if err := verbs.Post(qp, list[:1]); err == nil {
				t.Error("the client of an evicted index still writes")
			}
			if _, err := c.Connect(7, 1, limit); !errors.Is(err, verbs.ErrRefused) {
				t.Errorf("connect: %v", err)
			}
			device := deviceOf(provider)
			defer device.Close()
			if _, err := device.Connect(unused.Target, limit); !errors.Is(err, verbs.ErrRefused) {
				t.Errorf("a token from before: %v", err)
			}

			// The next index takes all there is, which waits until it is zero.
			next := client(t, s.Addresses().Control, "next", provider, nil)
			must(next.Admit(7, 131072, limit))
			grant = must(next.Connect(7, 1, limit))
			_, qp, arena = open(t, grant)
			in := must(arena.Alloc(1 << 15))
			check := func(region verbs.RegionID, at, n uint64) {
				t.Helper()
				for end := at + n; at < end; at += uint64(len(in)) {
					part := in[:min(uint64(len(in)), end-at)]
					if err := verbs.Post(qp, []verbs.Request{{Op: verbs.Read, Region: region, Remote: at, Local: part}}); err != nil {
						t.Fatal(err)
					}
					if len(bytes.Trim(part, "\x00")) != 0 {
						t.Fatalf("region %d holds content of another index at %#x", region, at)
					}
				}
			}
			check(verbs.RegionData, grant.Superblock, 4096)
			check(verbs.RegionLocks, grant.LockOffset, 2*grant.Locks)
			check(verbs.RegionData, grant.Repair, region.RepairBytes*grant.Locks)
			for range 7 {
				check(verbs.RegionData, must(next.AllocateChunk(7, 1, 1024, false, limit)), 1<<20)
			}
		})
	}
}

// TestLostMemory: a server that came back without its content is no server of the index.
func TestLostMemory(t *testing.T) {
	s, _ := start(t, localConfig(t))
	c := must(control.New(control.Config{
		Index: "a", Provider: "tcp", Servers: []control.Server{{ID: 7, Control: s.Addresses().Control, Incarnation: s.Incarnation() + 1}},
	}))
	defer c.Close()
	must(c.Admit(1, 0, limit))
	if _, err := c.Connect(7, 1, limit); !errors.Is(err, verbs.ErrLostMemory) {
		t.Error(err)
	}
}
