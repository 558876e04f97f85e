package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/attach"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/pkg/partition"
	"github.com/dmindex/dmindex/test/exercise/sets"
)

// TestSetsKilled kills compute servers with SIGKILL, one after the other, and moves ranges, while
// programs change one sorted set that lies on all of them, counters, and accounts: nothing that was
// acknowledged is lost, nothing is counted twice, and the set is whole in the end.
func TestSetsKilled(t *testing.T) {
	kills, late, calm := 3, time.Second, int64(200)
	if n := os.Getenv(killsEnv); n != "" {
		var err error
		if kills, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		late, calm = 6*time.Second, 1000
	}
	k := newKilledSets(t, 3)
	l := sets.New(sets.Options{Dial: k.dial, Limit: 20 * time.Second, Workers: 8, Members: 50, Shared: 20, Late: late})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(kills)*10*time.Second)
	defer cancel()
	if err := l.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.Run(running)
	}()
	l.Await(ctx, 2*calm)
	k.divide()
	for range kills {
		l.Await(ctx, calm)
		k.kill()
		if rand.IntN(2) == 0 {
			k.move()
		}
	}
	l.Await(ctx, calm)
	stop()
	<-over
	if err := l.Check(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("%d servers killed, %d moves: %s; parts of the set are with servers %v", kills, k.moves, l, k.spread())
}

// killedSets is an index whose compute servers are processes.
type killedSets struct {
	t       *testing.T
	servers []partition.Server
	start   []func() *exec.Cmd
	running []*exec.Cmd
	memory  *attach.Memory
	inner   [][]byte // some keys of what the set consists of, in order
	moves   int
}

func newKilledSets(t *testing.T, servers int) *killedSets {
	m, err := memory.Start(memory.Config{Servers: 2, Bytes: 128 << 20, ChunkBytes: 1 << 20, Transport: "tcp", Lease: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	m.Run(func(err error) { t.Error(err) })
	ix := &config.Index{
		Identity: "sets", Name: "sets", Design: "dex", KeyType: config.KeyBytes, MaxKeyBytes: 64, MaxValueBytes: 64, Durability: "Memory", Expiry: config.ExpiryEnabled,
		Routing: config.RoutingOwner, MemoryServers: m.Members(),
	}
	if err := m.Admit(t.Context(), ix.Identity); err != nil {
		t.Fatal(err)
	}
	k := &killedSets{t: t}
	for n := range servers {
		s := partition.Server{ID: uint32(n + 1), Name: fmt.Sprint("compute-", n+1), RPC: freeAddress(t), RESP: freeAddress(t)}
		k.servers = append(k.servers, s)
		k.start = append(k.start, computeProcess(t, ix, s))
	}
	if k.memory, err = attach.New(ix, "", attach.Fabric{Provider: "tcp"}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.memory.Close() })
	first, err := partition.ByBoundaries(ix.Identity, k.servers, [][]byte{{0x55}, {0xaa}})
	if err != nil {
		t.Fatal(err)
	}
	k.swap(0, first)
	for _, start := range k.start {
		k.running = append(k.running, start())
	}
	return k
}

// dial connects to some server.
func (k *killedSets) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", k.servers[rand.IntN(len(k.servers))].RESP)
}

// kill ends a server, and starts it again.
func (k *killedSets) kill() {
	n := rand.IntN(len(k.running))
	if err := k.running[n].Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
	_ = k.running[n].Wait() // it was killed
	k.running[n] = k.start[n]()
}

// divide reads the keys of what the set consists of, and gives each server several parts of them.
func (k *killedSets) divide() {
	conn, err := grpc.NewClient(k.servers[2].RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	defer conn.Close()
	scan, err := rpcv1.NewComputeClient(conn).Scan(k.t.Context(), &rpcv1.ScanRequest{Start: []byte(sortedset.Prefix), Forwarded: true, KeysOnly: true})
	if err != nil {
		k.t.Fatal(err)
	}
	for {
		reply, err := scan.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && reply.Error != nil {
			err = errors.New(reply.Error.Message)
		}
		if err != nil {
			k.t.Fatal(err)
		}
		for _, p := range reply.Pairs {
			if bytes.HasPrefix(p.Key, []byte(sortedset.Prefix)) {
				k.inner = append(k.inner, p.Key)
			}
		}
	}
	if len(k.inner) < 40 {
		k.t.Fatalf("the set consists of %d pairs", len(k.inner))
	}
	for i := range 8 {
		at := len(k.inner) * i / 8
		end := k.inner[min(at+len(k.inner)/8, len(k.inner)-1)]
		k.give(partition.Planned{Start: k.inner[at], End: end, To: k.servers[i%len(k.servers)].ID})
	}
}

// move gives some keys of the set to some server.
func (k *killedSets) move() {
	a, b := rand.IntN(len(k.inner)), rand.IntN(len(k.inner))
	if a != b {
		k.give(partition.Planned{Start: k.inner[min(a, b)], End: k.inner[max(a, b)], To: k.servers[rand.IntN(len(k.servers))].ID})
	}
}

func (k *killedSets) give(p partition.Planned) {
	m := k.current()
	changed := *m
	changed.Planned = []partition.Planned{p}
	k.swap(m.Generation, changed.Final())
	k.moves++
}

func (k *killedSets) current() *partition.Map {
	_, encoded, err := k.memory.Control.Map(0, 0, time.Minute)
	if err != nil {
		k.t.Fatal(err)
	}
	m, err := partition.Unmarshal(encoded)
	if err != nil {
		k.t.Fatal(err)
	}
	return m
}

func (k *killedSets) swap(before uint64, m *partition.Map) {
	encoded, err := m.Marshal(nil)
	if err == nil {
		err = k.memory.Control.SwapMap(before, m.Generation, encoded, time.Minute)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// spread are the servers of the parts of the set, in order.
func (k *killedSets) spread() (owners []uint32) {
	m := k.current()
	for _, key := range k.inner {
		if owner := m.Owner(key); len(owners) == 0 || owners[len(owners)-1] != owner {
			owners = append(owners, owner)
		}
	}
	if each := slices.Compact(slices.Sorted(slices.Values(owners))); len(each) < 2 {
		k.t.Errorf("the set lies on servers %v only", each)
	}
	return owners
}
