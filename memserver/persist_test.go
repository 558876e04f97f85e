package memserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	apiconfig "github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// persistPrefix makes a child keep its memory in a directory.
const persistPrefix = "persist:"

func persistConfig(dir string, sync persist.Sync) Config {
	return Config{
		ID: 7, PersistDir: dir, PersistSync: sync, MemoryBytes: 20 << 20, ChunkBytes: 1 << 20, Control: "127.0.0.1:0", Fabric: "127.0.0.1:0",
		Insecure: true, Lease: longLease, checkpoint: 200_000,
	}
}

// killsEnv is how many lives TestPersistKilled has, in place of a few.
const killsEnv = "DMINDEX_TEST_KILLS"

// TestPersistKilled kills a server with SIGKILL while clients write, again and again: what was
// acknowledged is there, in memory and in the ledger, and so is nothing that nobody wrote.
func TestPersistKilled(t *testing.T) {
	lives := 4
	if n := os.Getenv(killsEnv); n != "" {
		lives = must(strconv.Atoi(n))
	}
	dir := t.TempDir()
	const writers, words = 4, 40
	var began, acked [writers * words]uint64 // values of words
	var incarnation, chunk uint64
	live := func(t *testing.T, life int) {
		cmd, a, err := child(t, persistPrefix+dir)
		if err != nil {
			t.Fatal(err)
		}
		c := client(t, a.Control, "a", "tcp", nil)
		if life == 0 {
			incarnation = must(c.Admit(8, 0, limit))[0]
		}
		first := must(c.Register(limit))
		if life == 0 {
			chunk = must(func() (uint64, error) {
				must(c.Connect(7, first, limit))
				return c.AllocateChunk(7, first, 1024, false, limit)
			}())
		}
		var working sync.WaitGroup
		var work []func()
		var answers atomic.Int64
		until := int64(rand.IntN(150))
		for w := range writers {
			id := first
			if w > 0 {
				id = must(c.Register(limit))
			}
			if want := uint32(life*writers + w + 1); id != want {
				t.Fatalf("client %d registers in life %d, want %d", id, life, want)
			}
			grant := must(c.Connect(7, id, limit))
			if grant.Target.Incarnation != incarnation {
				t.Fatalf("life %d has incarnation %x, was %x", life, grant.Target.Incarnation, incarnation)
			}
			_, qp, arena := open(t, grant)
			buf := must(arena.Alloc(1024))
			at := func(word int) uint64 { return chunk + uint64(w*words+word)*4096 }
			for i := range words {
				if err := verbs.Post(qp, []verbs.Request{{Op: verbs.Read, Remote: at(i), Local: buf[:8]}}); err != nil {
					t.Fatal(err)
				}
				n := w*words + i
				if got := binary.LittleEndian.Uint64(buf); got < acked[n] || got > began[n] {
					t.Fatalf("life %d: word %d is %d; %d was acknowledged, %d begun", life, n, got, acked[n], began[n])
				} else {
					acked[n], began[n] = got, got
				}
			}
			work = append(work, func() {
				for i := 0; ; i = (i + 1) % words {
					n := w*words + i
					began[n]++
					binary.LittleEndian.PutUint64(buf, began[n])
					if verbs.Post(qp, []verbs.Request{{Op: verbs.Write, Remote: at(i), Local: buf}}) != nil {
						return
					}
					acked[n] = began[n]
					if answers.Add(1) == until {
						_ = cmd.Process.Signal(syscall.SIGKILL)
					}
				}
			})
		}
		for _, f := range work {
			working.Go(f)
		}
		if until == 0 {
			_ = cmd.Process.Signal(syscall.SIGKILL)
		}
		working.Wait()
		cmd.Wait()
	}
	for life := range lives {
		if !t.Run(strconv.Itoa(life), func(t *testing.T) { live(t, life) }) {
			return
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "checkpoint.0000000000000000")); err == nil && lives > 100 {
		t.Error("there never was a checkpoint")
	}
}

// TestPersist: an orderly end, and another start, of the directory's own volume only.
func TestPersist(t *testing.T) {
	dir := t.TempDir()
	var incarnation uint64
	for life := range 3 {
		c := persistConfig(dir, persist.Sync(life))
		c.Metrics = "127.0.0.1:0"
		s := must(New(c))
		if life == 0 {
			incarnation = s.Incarnation()
		} else if s.Incarnation() != incarnation {
			t.Errorf("life %d has another incarnation", life)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		a := client(t, s.Addresses().Control, "a", "tcp", nil)
		if life == 0 {
			must(a.Admit(8, 0, limit))
		}
		if id := must(a.Register(limit)); int(id) != life+1 {
			t.Errorf("client %d in life %d", id, life)
		}
		if _, m := get(t, s.Addresses().Metrics, "/metrics"); !strings.Contains(m, "dmindex_memserver_persist_waiting 0") || !strings.Contains(m, "dmindex_memserver_persist_sync_seconds_count") || !strings.Contains(m, "dmindex_memserver_persist_log_bytes") {
			t.Error("it has no metrics of its files")
		}
		second := persistConfig(dir, persist.Always)
		second.lockLimit = 1
		if _, err := New(second); !errors.Is(err, persist.ErrInUse) {
			t.Errorf("a second server: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	for what, change := range map[string]func(*Config){
		"id":     func(c *Config) { c.ID++ },
		"memory": func(c *Config) { c.MemoryBytes += 1 << 20 },
		"locks":  func(c *Config) { c.LockTableBytes = 128 << 10 },
	} {
		c := persistConfig(dir, persist.Always)
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), "of another volume") {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "volume")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(persistConfig(dir, persist.Always)); err == nil || !strings.Contains(err.Error(), "put its files back") {
		t.Errorf("without its volume file: %v", err)
	}
}

// stopped makes the end of the log of a directory one of another run of the machine, which does not
// say that it is whole.
func stopped(t *testing.T, dir string, boot [16]byte) {
	t.Helper()
	log := must(filepath.Glob(filepath.Join(dir, "log.*")))
	f := must(os.OpenFile(log[len(log)-1], os.O_RDWR, 0))
	head := make([]byte, 96)
	must(f.ReadAt(head, 0))
	if !bytes.Equal(head[48:64], boot[:]) {
		t.Fatal("the log is of no run of the machine")
	}
	head[48]++ // its sum, over all but itself
	binary.LittleEndian.PutUint32(head[12:], crc32.Update(crc32.Checksum(head[:12], castagnoli), castagnoli, head[16:]))
	must(f.WriteAt(head, 0))
	// without the last frame
	if err := errors.Join(f.Truncate(must(f.Stat()).Size()-32), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPersistAcceptLoss: a log that does not say that it is whole, of another run of the machine,
// is opened only by who accepts that, and no client of before goes on.
func TestPersistAcceptLoss(t *testing.T) {
	config := persistConfig(t.TempDir(), persist.Soon)
	s := must(New(config))
	boot := s.region.Boot
	ended := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(8, 0, limit))
	id := must(c.Register(limit))
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	stopped(t, config.PersistDir, boot)
	if _, err := New(config); !errors.Is(err, persist.ErrMayLack) || !strings.Contains(err.Error(), apiconfig.PersistMayLack) {
		t.Fatalf("it opens: %v", err)
	}
	config.PersistAcceptLoss = true
	s = must(New(config))
	defer s.Close()
	s.control.Accounts.Read(func(l *ledger.Ledger) {
		if !l.Fenced("a", id) {
			t.Error("a client of before is not fenced")
		}
	})
}

// TestPersistExisting: a server that is to find a directory which another one has used makes none
// in its place, whether nothing is there or an empty directory, as that of another disk.
func TestPersistExisting(t *testing.T) {
	config := persistConfig(filepath.Join(t.TempDir(), "memory"), persist.Always)
	config.PersistExisting = true
	refused := func(what string) {
		t.Helper()
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), "no server has used") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("nothing is there")
	if _, err := os.Stat(config.PersistDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	if err := os.Mkdir(config.PersistDir, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("the directory is empty")
	refused("the second attempt")
	config.PersistExisting = false
	s := must(New(config))
	incarnation, ended := s.Incarnation(), make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	must(client(t, s.Addresses().Control, "a", "tcp", nil).Admit(8, 0, limit))
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	config.PersistExisting = true
	s = must(New(config))
	defer s.Close()
	if s.Incarnation() != incarnation {
		t.Error("it has another incarnation")
	}
}

// TestPersistFeedGivenUp: where a change was made and cannot be recorded, nothing is acknowledged
// any more, and the server ends: the next process has what is in the directory.
func TestPersistFeedGivenUp(t *testing.T) {
	s := must(New(persistConfig(t.TempDir(), persist.Always)))
	ended := make(chan error)
	go func() { ended <- s.Run(t.Context()) }()
	c := client(t, s.Addresses().Control, "a", "tcp", nil)
	must(c.Admit(8, 0, limit))
	s.region.Journal.Break(errors.New("a change of the ledger was lost"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "start the server again") {
		t.Errorf("the server ended: %v", err)
	}
	s.control.Accounts.Read(func(l *ledger.Ledger) {
		if len(l.Indexes()) != 1 {
			t.Error("the index is not there")
		}
	})
}
