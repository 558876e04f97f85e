package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/client"
	memcontrol "github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/partition"
)

// toyVolume is a memory server with two addresses, of which one at a time has a process behind it:
// the primary. Its views are the test's.
type toyVolume struct {
	t       *testing.T
	mu      sync.Mutex
	changed chan struct{}
	view    uint64
	primary int // whose address the view names
	fronts  [2]*front
	process *exec.Cmd
	dir     string
}

// front is the control port of one copy: it answers for the view, and passes all else on.
type front struct {
	rpcv1.UnimplementedVolumeServer
	volume  *toyVolume
	number  int
	address string
	to      *grpc.ClientConn // nil = there is no process
}

func newToyVolume(t *testing.T) *toyVolume {
	v := &toyVolume{t: t, changed: make(chan struct{})}
	for i := range v.fronts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f := &front{volume: v, number: i, address: l.Addr().String()}
		s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(f.pass))
		rpcv1.RegisterVolumeServer(s, f)
		go s.Serve(l)
		t.Cleanup(s.Stop)
		v.fronts[i] = f
	}
	t.Cleanup(func() { v.kill() })
	return v
}

func (v *toyVolume) kill() {
	if v.process != nil {
		_, _ = v.process.Process.Kill(), v.process.Wait() // it may be dead
	}
}

// open starts a process with the content of dir behind the address of a copy, and names it in the
// next view once it serves.
func (v *toyVolume) open(copy int, dir string) (told time.Time) {
	v.t.Helper()
	control := freeAddress(v.t)
	v.dir = dir
	v.process = exec.Command(os.Args[0], "memserver", "--id=1", "--data-dir="+dir, "--memory=32Mi", "--chunk-size=1Mi", "--insecure",
		"--control="+control, "--fabric="+freeAddress(v.t), "--metrics=", "--lease=2m")
	v.process.Env = append(os.Environ(), childEnv+"=yes")
	v.process.Stderr = v.t.Output()
	if err := v.process.Start(); err != nil {
		v.t.Fatal(err)
	}
	conn, err := memcontrol.Dial(control, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	if _, err := rpcv1.NewMemoryClient(conn).Describe(ctx, &rpcv1.DescribeMemoryRequest{}, grpc.WaitForReady(true)); err != nil {
		v.t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fronts[1-copy].to, v.fronts[copy].to = nil, conn
	v.view, v.primary = v.view+1, copy
	close(v.changed)
	v.changed = make(chan struct{})
	return time.Now()
}

// AwaitView implements rpcv1.VolumeServer.
func (f *front) AwaitView(ctx context.Context, r *rpcv1.AwaitViewRequest) (*rpcv1.AwaitViewReply, error) {
	over := time.After(time.Duration(r.WaitMilliseconds) * time.Millisecond)
	for v := f.volume; ; {
		v.mu.Lock()
		changed, reply := v.changed, &rpcv1.AwaitViewReply{Serves: v.primary == f.number}
		reply.View = &rpcv1.VolumeView{Number: v.view, Primary: &rpcv1.VolumeProcess{Pod: fmt.Sprint("pod-", v.primary), Process: 1}}
		for _, f := range v.fronts {
			reply.Copies = append(reply.Copies, &rpcv1.VolumeCopy{Pod: fmt.Sprint("pod-", f.number), Control: f.address})
		}
		v.mu.Unlock()
		if reply.View.Number > r.After {
			return reply, nil
		}
		select {
		case <-over:
			return reply, nil
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pass passes a call on to the process behind f.
func (f *front) pass(_ any, stream grpc.ServerStream) error {
	var request, reply []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	f.volume.mu.Lock()
	to := f.to
	f.volume.mu.Unlock()
	if to == nil {
		return grpcstatus.Error(codes.Unavailable, "this process is not the primary of its volume")
	}
	method, _ := grpc.MethodFromServerStream(stream)
	if err := to.Invoke(stream.Context(), method, &request, &reply, grpc.ForceCodec(rawCodec{})); err != nil {
		return err
	}
	return stream.SendMsg(&reply)
}

// rawCodec leaves messages that are passed on as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(m any) ([]byte, error) {
	if raw, ok := m.(*[]byte); ok {
		return *raw, nil
	}
	return proto.Marshal(m.(proto.Message))
}
func (rawCodec) Unmarshal(b []byte, m any) error {
	if raw, ok := m.(*[]byte); ok {
		*raw = append([]byte(nil), b...)
		return nil
	}
	return proto.Unmarshal(b, m.(proto.Message))
}

// stop makes a process that this one started stand still, and returns when none of its threads
// runs: a signal alone is on its way when it is sent, and memory changes until it is there.
func stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	switch _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); {
	case err != nil:
		return fmt.Errorf("wait until process %d stands still: %w", p.Pid, err)
	case !status.Stopped():
		return fmt.Errorf("process %d ended in place of standing still: %v", p.Pid, status)
	}
	return nil
}

// TestFailOver moves a memory server under a compute server and a program: the process that answers
// is killed, and later stands still while another one takes its place. Each time the index is back
// soon after the view is there, with all that was acknowledged, though all leases and all limits of
// requests are longer.
func TestFailOver(t *testing.T) {
	const keys = 64
	v := newToyVolume(t)
	tmp, err := os.MkdirTemp("/dev/shm", "dmindex-failover")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	first, second := filepath.Join(tmp, "1"), filepath.Join(tmp, "2")
	for _, dir := range []string{first, second} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	v.open(0, first)
	ix := &config.Index{
		Identity: "moves", Name: "moves", Design: "dex", KeyType: config.KeyBytes, MaxKeyBytes: 32, MaxValueBytes: 32, Durability: "Memory", Routing: config.RoutingOwner,
		MemoryServers: []config.MemoryServer{{ID: 1, Control: v.fronts[0].address, Copies: []string{v.fronts[1].address}}},
	}
	if _, err := rpcv1.NewMemoryClient(v.fronts[0].to).Admit(t.Context(), &rpcv1.AdmitRequest{Index: ix.Identity, QuotaChunks: 24}); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	giveMap(t, ix, partition.Server{ID: 1, Name: "compute-1", RPC: address, RESP: address})
	computeProcess(t, ix, partition.Server{ID: 1, Name: "compute-1", RPC: address})()
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	c := reach(ctx, t, address)
	defer c.Close()
	key := func(n int) []byte { return fmt.Appendf(nil, "key %d", n) }
	acked, tried := make([]uint64, keys), make([]uint64, keys)
	next := uint64(0)
	put := func() error {
		next++
		n := int(next % keys)
		tried[n] = next
		try, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := c.Put(try, key(n), binary.BigEndian.AppendUint64(nil, next))
		if err == nil {
			acked[n] = next
		}
		return err
	}
	check := func(when string) {
		t.Helper()
		for n := range keys {
			b, err := c.Get(ctx, key(n))
			if err != nil {
				t.Fatalf("%s, key %d: %v", when, n, err)
			}
			if got := binary.BigEndian.Uint64(b); got < acked[n] || got > tried[n] {
				t.Errorf("%s, key %d has %d, and %d was acknowledged, %d tried last", when, n, got, acked[n], tried[n])
			}
		}
	}
	for range 4 * keys {
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	// moves runs puts while f moves the server, and says how long after the view the index is back.
	moves := func(when string, f func() (told time.Time)) {
		t.Helper()
		over := make(chan time.Time, 1)
		go func() { over <- f() }()
		var told, back time.Time
		failed := 0
		for back.IsZero() {
			begun := time.Now()
			err := put()
			switch {
			case err != nil && !errors.Is(err, client.ErrUnknown) && !errors.Is(err, client.ErrUnavailable):
				t.Fatalf("%s: %v", when, err)
			case err != nil:
				failed++
			}
			if told.IsZero() {
				select {
				case told = <-over:
				default:
				}
			}
			if err == nil && !told.IsZero() && begun.After(told) {
				back = time.Now()
			}
		}
		t.Logf("%s: back %v after the view, %d changes failed", when, back.Sub(told).Round(time.Millisecond), failed)
		// -short is of the race detector, which takes 15 times as long.
		if pause := back.Sub(told); pause > 4*time.Second && !testing.Short() {
			t.Errorf("%s: back %v after the view", when, pause)
		}
		check(when)
	}
	moves("killed", func() time.Time {
		v.kill()
		return v.open(1, first)
	})
	frozen := v.process
	moves("stands still", func() time.Time {
		if err := stop(frozen.Process); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"dmindex.region", "dmindex.locks", "dmindex.ledger"} {
			b, err := os.ReadFile(filepath.Join(first, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(second, name), b, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return v.open(0, second)
	})
	if err := frozen.Process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	for range 4 * keys {
		if err := put(); err != nil {
			t.Error(err)
		}
	}
	check("the former primary is back")
	_, _ = frozen.Process.Kill(), frozen.Wait()
}
