package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/pkg/grant"
	"github.com/dmindex/dmindex/pkg/partition"
)

func computeServers(ids ...uint32) (servers []partition.Server, observed []partition.Observed) {
	for _, id := range ids {
		name := fmt.Sprint("c-", id)
		servers = append(servers, partition.Server{ID: id, Name: name, RPC: name + ":1", RESP: name + ":2"})
		observed = append(observed, partition.Observed{ID: id, Pod: name, Ready: true, Answered: true, Identity: "uid"})
	}
	return servers, observed
}

// TestHandoverEvents: each step of the map is one event, which says what goes where and why.
func TestHandoverEvents(t *testing.T) {
	two, _ := computeServers(0, 1)
	before, err := partition.EqualWidth("uid", two, partition.Bytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := func(ids []uint32, change func(o *partition.Observed), want string) {
		t.Helper()
		var events operatortest.Recorder
		r := &Reconciler{Base: reconciler.Base{Events: &events}}
		_, observed := computeServers(ids...)
		change(&observed[1])
		s := &scope{index: &dmv1.DMIndex{}}
		s.index.Spec.Security.ShowKeys = true
		s.view = partition.View{Index: "uid", Keys: partition.Bytes, Map: before, Servers: observed, Desired: 2, Owned: true}
		s.view.Holdings = []partition.Holding{{End: []byte("\x80"), Pod: "c-0", Settled: true}, {Start: []byte("\x80"), Pod: "c-1", Settled: true}}
		actions, err := partition.Step(s.view)
		if err != nil || actions.Swap == nil {
			t.Fatalf("%+v, %v", actions, err)
		}
		r.tellMap(s, before.Generation, actions)
		if len(events.Notes) != 1 || !strings.HasPrefix(events.Notes[0], "Handover: partition map 1 -> 2, since compute server "+want) {
			t.Errorf("%q; want %q", events.Notes, want)
		}
	}
	f([]uint32{0, 1, 2}, func(*partition.Observed) {}, "c-2 joined: keys [")
	f([]uint32{0, 1}, func(o *partition.Observed) { o.Leaving = true }, `c-1 leaves: keys ["\x80", end) go from c-1 to c-0`)
	f([]uint32{0, 1}, func(o *partition.Observed) { o.Gone = true }, `c-1 is gone: keys ["\x80", end) go from c-1 to c-0`)
}

// TestEventsAreShort: many ranges are one event, which the API server takes; designs that share
// everything hand nothing over.
func TestEventsAreShort(t *testing.T) {
	servers, observed := computeServers(0, 1)
	servers[0].Name, servers[1].Name = strings.Repeat("f", 63), strings.Repeat("t", 63)
	m, err := partition.EqualWidth("uid", servers, partition.Bytes, 0)
	if err != nil {
		t.Fatal(err)
	}
	actions := partition.Actions{Swap: m}
	long := []byte(strings.Repeat("\xff", 1024))
	for range 300 {
		actions.Moves = append(actions.Moves, partition.Move{Start: long, End: long, From: 0, To: 1})
	}
	var events operatortest.Recorder
	r := &Reconciler{Base: reconciler.Base{Events: &events}}
	s := &scope{index: &dmv1.DMIndex{}, view: partition.View{Index: "uid", Map: m, Servers: observed, Owned: true}}
	s.index.Spec.Security.ShowKeys = true
	r.tellMap(s, 1, actions)
	if len(events.Notes) != 1 || !strings.HasSuffix(events.Notes[0], "; and 298 more") {
		t.Errorf("%d events: %q", len(events.Notes), events.Notes)
	}
	note := strings.TrimPrefix(events.Notes[0], "Handover: ")
	if len(note) >= 1024 {
		t.Errorf("a note of %d bytes", len(note))
	}
	m.Generation++
	if r.tellMap(s, 1, actions); len(events.Notes) != 2 {
		t.Errorf("the next step is not told: %q", events.Keys)
	}
	s.view.Owned = false
	if r.tellMap(s, 1, actions); len(events.Notes) != 3 || !strings.HasPrefix(events.Notes[2], "MapChanged: ") {
		t.Errorf("%q", events.Notes[1:])
	}
}

// TestTakeOverEvents: each take-over is told once, all of a server at a time, with the names of
// those who died.
func TestTakeOverEvents(t *testing.T) {
	var events operatortest.Recorder
	r := &Reconciler{Base: reconciler.Base{Events: &events}}
	look := func(overs ...*rpcv1.TakeOver) {
		s := &scope{index: &dmv1.DMIndex{}, clients: map[uint32]string{3: "x-compute-1"}}
		s.index.Name, s.index.UID = "x", "uid"
		s.index.Spec.Security.ShowKeys = true
		pod := &corev1.Pod{}
		pod.Name = "x-compute-0"
		s.compute = []computeServer{{pod: pod, described: &rpcv1.DescribeComputeReply{TakeOvers: overs}}, {pod: &corev1.Pod{}}}
		r.tellTakeOvers(t.Context(), s)
	}
	old := &rpcv1.TakeOver{Start: []byte("a"), Epoch: 4, Clients: []uint32{1}, AgeMilliseconds: 61_000}
	first := &rpcv1.TakeOver{Start: []byte("a"), End: []byte("m"), Epoch: 7, Clients: []uint32{3, 4}, TookMilliseconds: 1240, AgeMilliseconds: 59_000}
	second := &rpcv1.TakeOver{Start: []byte("m"), Epoch: 7, Clients: []uint32{3}, TookMilliseconds: 10_600}
	third := &rpcv1.TakeOver{Start: []byte("m"), Epoch: 9, Clients: []uint32{5}, AgeMilliseconds: 100_000}
	look(old, first, second)
	look(old, first, second)
	look(first, second, third)
	want := []string{
		`TakeOver: x-compute-0 replayed the log of a dead server, and serves: keys ["a", "m") of x-compute-1 (client 3), client 4 after 1.2 s; keys ["m", end) of x-compute-1 (client 3) after 10.6 s`,
		`TakeOver: x-compute-0 replayed the log of a dead server, and serves: keys ["m", end) of client 5 after 0.0 s`,
	}
	if fmt.Sprint(events.Notes) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", events.Notes, want)
	}
	events.Keys = nil // those of another operator are told apart
	r.told.forget(types.NamespacedName{Name: "x"})
	if look(first, third); len(events.Notes) != 3 {
		t.Errorf("an operator that starts anew tells %q", events.Notes[2:])
	}
}

// TestNamesOfTheDead: clients keep the names that they had while they lived; those of an index that
// was made anew are others.
func TestNamesOfTheDead(t *testing.T) {
	var all told
	index := types.NamespacedName{Name: "x"}
	all.names(index, "uid", []*rpcv1.ClientUse{{Client: 1, Name: "c-0"}, {Client: 2, Name: "c-1"}})
	if got := all.names(index, "uid", []*rpcv1.ClientUse{{Client: 1, Fenced: true}, {Client: 3, Name: "c-0"}}); fmt.Sprint(got) != "map[1:c-0 2:c-1 3:c-0]" {
		t.Error(got)
	}
	if got := all.names(index, "uid/1", []*rpcv1.ClientUse{{Client: 2, Name: "c-2"}}); fmt.Sprint(got) != "map[2:c-2]" {
		t.Error(got)
	}
}

// TestGrantEvents: what the servers of a pool grant at once is one event, which names each of them.
func TestGrantEvents(t *testing.T) {
	said := &operatortest.Recorder{}
	r := &Reconciler{Base: reconciler.Base{Events: said}}
	pool := &memoryPool{pool: &dmv1.DMMemoryPool{}}
	at := &grantServer{pool: pool, described: &rpcv1.DescribeMemoryReply{ChunkBytes: 8}}
	var told grantNotes
	told.add(at, grant.Step{Server: "m-0", Chunks: 4})
	told.add(at, grant.Step{Server: "m-1", Chunks: 5})
	told.add(at, grant.Step{Server: "m-2", Chunks: 1, Had: 3})
	r.tellGrants(&scope{}, told)
	want := []string{
		"MemoryGranted: pod m-0 grants 4 chunks of 8 bytes, before 0; pod m-1 grants 5 chunks of 8 bytes, before 0",
		"MemoryTakenBack: pod m-2 takes back 2 of 3 chunks",
	}
	if !slices.Equal(said.Notes, want) {
		t.Errorf("events %q, want %q", said.Notes, want)
	}
}
