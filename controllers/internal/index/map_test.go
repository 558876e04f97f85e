package index

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/serverstest"
	"github.com/dmindex/dmindex/pkg/partition"
)

// heldBy are the holdings of servers that are through with a map.
func heldBy(m *partition.Map) (held []*rpcv1.Holding) {
	for i := range m.Ranges {
		span := m.Span(i)
		owner, _ := m.Server(span.Owner)
		held = append(held, &rpcv1.Holding{Start: span.Start, End: span.End, Name: owner.Name})
	}
	return held
}

// moving is an index of four compute servers whose map has three of them, so that keys move.
type moving struct {
	t     *testing.T
	fleet *serverstest.Fleet
	r     *Reconciler
	s     *scope
	ended chan struct{} // closed when nothing is followed any more

	mu    sync.Mutex
	held  []*rpcv1.Holding
	lists int // how often the home was asked who holds what
}

// newMoving makes one; the operator leads until ctx ends.
func newMoving(ctx context.Context, t *testing.T, older bool) *moving {
	t.Helper()
	begin := time.Now()
	m := &moving{t: t, fleet: serverstest.New(), ended: make(chan struct{})}
	m.fleet.Older = older
	m.r = &Reconciler{Base: reconciler.Base{Dialer: m.fleet, Events: &operatortest.Recorder{}, Now: time.Now}, remembered: newRemembered(begin), handovers: newHandovers(m.fleet)}
	go func() {
		defer close(m.ended)
		_ = m.r.handovers.Start(ctx) // never fails
	}()
	for led := false; !led; runtime.Gosched() {
		m.r.handovers.mu.Lock()
		led = m.r.handovers.ctx != nil
		m.r.handovers.mu.Unlock()
	}
	home := operatortest.Pod("x-memory-0", 0)
	s := &scope{index: &dmv1.DMIndex{}, gathered: begin, verdict: memoryVerdict{servers: []memoryServer{{id: build.MemoryServerID(0, 0), pod: home.Name}}}}
	s.index.Name, s.index.UID, s.index.Spec.Key.Type = "x", "uid", "Uint64"
	s.memoryPools = []memoryPool{{authority: &pki.Authority{}, pods: []*corev1.Pod{home}, described: map[int]*rpcv1.DescribeMemoryReply{0: {}}}}
	for id := range 4 {
		s.compute = append(s.compute, computeServer{pod: operatortest.Pod(fmt.Sprint("x-compute-", id), id), described: &rpcv1.DescribeComputeReply{Index: "uid", Owned: true}})
	}
	s.view.Desired, s.index.Spec.Partitioning.AtomicPrefix = 4, "}"
	if s.observe(begin); s.view.AtomicPrefix != "}" {
		t.Fatalf("maps are planned with groups up to %q", s.view.AtomicPrefix)
	}
	var members []partition.Server
	for _, o := range s.view.Servers[:3] {
		members = append(members, partition.Server{ID: o.ID, Name: o.Pod, RPC: o.RPC, RESP: o.RESP})
	}
	three, err := partition.New("uid", members, partition.Options{Keys: partition.Uint64})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := three.Marshal(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := serverpod.WithMemory(&m.r.Base, home, &pki.Authority{}, func(c servers.Memory) error {
		return errors.Join(c.Admit(ctx, "uid", 1, 1, true), c.SwapMap(ctx, "uid", 0, three.Generation, encoded))
	}); err != nil {
		t.Fatal(err)
	}
	m.held = heldBy(three)
	m.fleet.Holdings = func([]byte) []*rpcv1.Holding {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lists++
		return m.held
	}
	m.s = s
	if err := m.r.divideKeys(ctx, s); err != nil {
		t.Fatal(err)
	}
	return m
}

// hold lets the home list other holdings.
func (m *moving) hold(held []*rpcv1.Holding) {
	m.mu.Lock()
	m.held = held
	m.mu.Unlock()
	m.fleet.HoldingsChanged()
}

// asked is how often the home was asked who holds what.
func (m *moving) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists
}

// event waits until the index is put into the queue.
func (m *moving) event() {
	m.t.Helper()
	select {
	case e := <-m.r.handovers.events:
		if e.Object.Name != "x" {
			m.t.Errorf("event of %q", e.Object.Name)
		}
	case <-time.After(time.Minute):
		m.t.Fatal("nobody tells that the next stage can be made")
	}
}

// TestStagesFollowEachOther: the stages of a change follow each other as soon as the home says that
// the last one is done, and not before, without another look at the servers.
func TestStagesFollowEachOther(t *testing.T) {
	m := newMoving(t.Context(), t, false)
	for generation := uint64(2); generation < 4; generation++ {
		if is := m.s.view.Map; is.Generation != generation || len(is.Planned) == 0 || !m.s.following || m.s.waiting == "" || !m.s.moved {
			t.Fatalf("generation %d, %d moves left, followed %v, waiting for %q", is.Generation, len(is.Planned), m.s.following, m.s.waiting)
		}
		part := slices.Clone(m.held) // something changed, and no server is through yet
		part[0] = proto.CloneOf(part[0])
		part[0].Epoch += generation
		before := m.asked()
		m.hold(part)
		for m.asked() < before+3 { // it was heard of, listed, and is waited for again
			runtime.Gosched()
		}
		if m.r.handovers.claim(m.s.index, time.Now()) != nil {
			t.Fatal("the next stage is made before the last one is done")
		}
		m.hold(heldBy(m.s.view.Map))
		m.event()
		if m.s = m.r.handovers.claim(m.s.index, time.Now()); m.s == nil {
			t.Fatal("all servers are asked again")
		}
		if err := m.r.divideKeys(t.Context(), m.s); err != nil {
			t.Fatal(err)
		}
	}
	m.hold(heldBy(m.s.view.Map))
	m.event()
	m.s = m.r.handovers.claim(m.s.index, time.Now())
	if m.s.waiting = ""; m.r.divideKeys(t.Context(), m.s) != nil || m.s.view.Map.Generation != 4 || len(m.s.view.Map.Planned) > 0 || m.s.waiting != "" || m.s.following {
		t.Errorf("in the end: generation %d, %d moves left, followed %v, waiting for %q", m.s.view.Map.Generation, len(m.s.view.Map.Planned), m.s.following, m.s.waiting)
	}
}

// TestHandoverEnds: nobody waits for an index any more that ended, nor when the operator ends; what
// was gathered too long ago, or about another specification, is gathered again; a home of an older
// version is not waited for.
func TestHandoverEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := newMoving(ctx, t, false)
	cancel()
	<-m.ended
	if m.r.handovers.follow(m.s, servers.Target{}, 1, nil) {
		t.Error("an operator that does not lead follows an index")
	}

	m = newMoving(t.Context(), t, false)
	m.r.handovers.end("uid")
	m.r.handovers.all.Wait()

	m = newMoving(t.Context(), t, false)
	m.fleet.SetAway("", "x-memory-0", true)
	m.fleet.HoldingsChanged() // so that the home is asked again
	m.r.handovers.all.Wait()
	if n := len(m.r.handovers.of); n != 0 {
		t.Errorf("%d indexes are followed whose home does not answer", n)
	}

	for _, change := range []func(index *dmv1.DMIndex) time.Time{
		func(*dmv1.DMIndex) time.Time { return time.Now().Add(followed) },
		func(index *dmv1.DMIndex) time.Time { index.Generation++; return time.Now() },
	} {
		m = newMoving(t.Context(), t, false)
		m.hold(heldBy(m.s.view.Map))
		m.event()
		index := m.s.index.DeepCopy()
		if now := change(index); m.r.handovers.claim(index, now) != nil {
			t.Error("the next stage is made by what may not hold any more")
		}
	}

	if m = newMoving(t.Context(), t, true); m.s.following || m.s.waiting == "" {
		t.Errorf("an older home: followed %v, waiting for %q", m.s.following, m.s.waiting)
	}
}
