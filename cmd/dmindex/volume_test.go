package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/keeper"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// volumePods are pods of a volume: processes of the program that are started again when they end,
// as a kubelet does, in directories that they keep.
type volumePods struct {
	t   *testing.T
	dir string

	mu   sync.Mutex
	pods []keeper.Pod
	runs map[string]*exec.Cmd
	over bool
	done sync.WaitGroup
}

func (v *volumePods) list() []keeper.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]keeper.Pod{}, v.pods...)
}

// make starts a pod.
func (v *volumePods) make() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := fmt.Sprint("pod-", len(v.pods)+1)
	pod := keeper.Pod{Name: name, Control: freeAddress(v.t)}
	fabric, mirror := freeAddress(v.t), freeAddress(v.t)
	v.pods = append(v.pods, pod)
	v.done.Go(func() {
		for {
			cmd := exec.Command(os.Args[0], "memserver", "--id=1", "--insecure", "--pod="+name, "--data-dir="+filepath.Join(v.dir, name), "--memory=64Mi", "--chunk-size=1Mi",
				"--control="+pod.Control, "--fabric="+fabric, "--mirror="+mirror, "--metrics=", "--lease=1s", "--log-level=warn")
			cmd.Env = append(os.Environ(), childEnv+"=yes")
			cmd.Stderr = v.t.Output()
			v.mu.Lock()
			if v.over {
				v.mu.Unlock()
				return
			}
			err := cmd.Start()
			v.runs[name] = cmd
			v.mu.Unlock()
			if err != nil {
				v.t.Error(err)
				return
			}
			_ = cmd.Wait() // it was killed, or is replaced
		}
	})
	return nil
}

// signal sends a signal to the process of a pod.
func (v *volumePods) signal(pod string, s syscall.Signal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.runs[pod].Process.Signal(s); err != nil {
		v.t.Error(err)
	}
}

func (v *volumePods) close() {
	v.mu.Lock()
	v.over = true
	for _, cmd := range v.runs {
		_ = cmd.Process.Kill() // it may be dead
	}
	v.mu.Unlock()
	v.done.Wait()
}

// move lets the copy of a pod be elsewhere, or stay.
func (v *volumePods) move(pod string, on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.pods {
		if v.pods[i].Name == pod {
			v.pods[i].Moving = on
		}
	}
}

// writer puts keys, each until it is acknowledged, whoever is primary. It opens the index anew when
// an operation fails, and when it is to check what is there.
type writer struct {
	ix     config.Index
	keeper *keeper.Keeper
	acked  atomic.Uint64         // keys below it are there
	pause  atomic.Int64          // the longest time between two acknowledged keys
	why    atomic.Pointer[error] // of the last time that it began anew
	checks chan chan error
}

func volumeKey(n uint64) []byte   { return fmt.Appendf(nil, "key %09d", n) }
func volumeValue(n uint64) []byte { return fmt.Appendf(nil, "value of %d", n) }

// open opens the index at the present primary and takes all its keys, then calls f.
func (w *writer) open(f func(index.Session) error) error {
	_, _, primary := w.keeper.View()
	ix := w.ix
	ix.MemoryServers = []config.MemoryServer{{ID: 1, Control: primary.Control, Pod: primary.Name}}
	m, err := attach.New(&ix, "writer", attach.Fabric{Provider: "tcp"}, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	i, err := m.Open(1<<20, 500*time.Millisecond)
	if err != nil {
		return err
	}
	defer i.Close()
	o := i.Opened().(ownership.Owner)
	got, err := o.Acquire(pool.Claim{Generation: 1, Log: o.Log()})
	if err == nil && len(got.Blocked) > 0 { // their holder is fenced at the only memory server
		got, err = o.Acquire(pool.Claim{Generation: 1, Log: o.Log(), Fenced: []uint32{got.Blocked[0].Client}})
	}
	if err == nil && len(got.Own) == 0 {
		err = fmt.Errorf("keys are held by %v", got.Blocked)
	}
	for _, r := range got.Own {
		if err == nil {
			err = o.Take(r)
		}
		if err == nil {
			err = o.Settle(r.Start, r.End, r.Epoch)
		}
	}
	if err != nil {
		return err
	}
	s, err := i.Session()
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

func (w *writer) run(ctx context.Context) {
	last := time.Now()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	var check chan error
	for ctx.Err() == nil {
		err := w.open(func(s index.Session) error {
			if check != nil {
				check <- w.check(s)
				check, last = nil, time.Now()
			}
			for {
				select {
				case <-ctx.Done():
					return nil
				case check = <-w.checks:
					return nil
				default:
				}
				n := w.acked.Load()
				if err := s.Upsert(volumeKey(n), volumeValue(n)); err != nil {
					return err
				}
				w.acked.Store(n + 1)
				now := time.Now()
				w.pause.Store(max(w.pause.Load(), int64(now.Sub(last))))
				last = now
			}
		})
		if err != nil {
			w.why.Store(&err)
			<-again.C
		}
	}
}

// check reads all keys that were acknowledged.
func (w *writer) check(s index.Session) error {
	keys := w.acked.Load()
	for n := range keys {
		if v, err := s.Lookup(volumeKey(n), nil); err != nil || string(v) != string(volumeValue(n)) {
			return fmt.Errorf("key %d of %d: %q, %w", n, keys, v, err)
		}
	}
	return nil
}

// TestVolumeProcesses: an index of DEX is written to while its memory server gets a copy, is
// killed, stands still, and is moved. All that was acknowledged is there.
func TestVolumeProcesses(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "dmindex-volume")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	pods := &volumePods{t: t, dir: dir, runs: map[string]*exec.Cmd{}}
	defer pods.close()
	k := keeper.New(keeper.Config{
		Volume: 1, Copies: 2, Suspect: 600 * time.Millisecond, Look: 50 * time.Millisecond, Pods: pods.list, Make: pods.make, Delete: func(string) {},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { k.Run(ctx) })
	await := func(what string, is func(v volumes.View, s volumes.Status) bool) volumes.View {
		t.Helper()
		if err := k.Await(ctx, is); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		v, _, _ := k.View()
		return v
	}
	inSync := func(above uint64) volumes.View {
		return await("in sync", func(v volumes.View, s volumes.Status) bool { return s == volumes.InSync && v.Number > above })
	}
	first := await("a first view", func(v volumes.View, _ volumes.Status) bool { return v.Number > 0 })
	none := errors.New("none")
	w := &writer{keeper: k, checks: make(chan chan error), ix: config.Index{
		Identity: "moved", Name: "moved", Design: "dex", KeyType: config.KeyBytes, MaxKeyBytes: 32, MaxValueBytes: 32, Durability: "Memory", Routing: config.RoutingAny,
	}}
	w.why.Store(&none)
	_, _, primary := k.View()
	conn, err := control.Dial(primary.Control, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for {
		if _, err = rpcv1.NewMemoryClient(conn).Admit(ctx, &rpcv1.AdmitRequest{Index: "moved", QuotaChunks: 32, Locks: 1024}); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	home := w.ix
	home.MemoryServers = []config.MemoryServer{{ID: 1, Control: primary.Control, Pod: primary.Name}}
	giveMap(t, &home, partition.Server{ID: 1, Name: "writer", RPC: "127.0.0.1:1", RESP: "127.0.0.1:1"})
	running.Go(func() { w.run(ctx) })
	v := inSync(first.Number)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	past := func(what string) {
		t.Helper()
		at := w.acked.Load()
		for w.acked.Load() < at+100 {
			if ctx.Err() != nil {
				t.Fatalf("%s: %d keys, and no more come: %v", what, at, *w.why.Load())
			}
			<-tick.C
		}
		t.Logf("%s: %d keys, longest pause %v", what, w.acked.Load(), time.Duration(w.pause.Swap(0)).Round(time.Millisecond))
		done := make(chan error, 1)
		select {
		case w.checks <- done:
			if err := <-done; err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		case <-ctx.Done():
			t.Fatalf("%s: keys are not read: %v", what, *w.why.Load())
		}
	}
	past("live copy")

	pods.signal(v.Primary.Pod, syscall.SIGKILL)
	v = inSync(v.Number + 1)
	past("primary killed")

	pods.signal(v.Primary.Pod, syscall.SIGSTOP)
	still := v.Primary.Pod
	v = await("another primary", func(n volumes.View, _ volumes.Status) bool { return n.Primary.Pod != still })
	past("primary stands still")
	pods.signal(still, syscall.SIGCONT)
	v = inSync(v.Number)
	past("it is back")

	pods.move(v.Primary.Pod, true)
	moved := v.Primary.Pod
	v = await("moved", func(n volumes.View, s volumes.Status) bool { return n.Primary.Pod != moved && n.Number > v.Number })
	pods.move(moved, false)
	past("primary moved")
}
