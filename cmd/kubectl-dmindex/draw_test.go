package main

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// drawn is an index in the middle of a change: one range is on its way, one server does not answer.
func drawn() *view {
	mid, last := []byte("m"), []byte("t\x80")
	text := base64.StdEncoding.EncodeToString
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	index.Spec = dmv1.DMIndexSpec{Design: dmv1.DesignDEX, Durability: dmv1.DurabilityMemory,
		Key: dmv1.KeySpec{Type: dmv1.KeyBytes, MaxLength: ptr.To[int32](64)}, Value: dmv1.ValueSpec{MaxLength: 128}}
	index.Status = dmv1.DMIndexStatus{
		Conditions: []metav1.Condition{
			{Type: dmv1.ConditionAvailable, Status: "True", Reason: dmv1.ReasonServing, Message: "3 compute servers answer", LastTransitionTime: metav1.NewTime(now.Add(-4 * time.Minute))},
			{Type: dmv1.ConditionDegraded, Status: "True", Reason: dmv1.ReasonFencePending, Message: "keys wait for memory server 2", LastTransitionTime: metav1.NewTime(now.Add(-3 * time.Second))},
			{Type: dmv1.ConditionDataLost, Status: "False", Reason: dmv1.ReasonIntact},
		},
		MemoryServers: []dmv1.IndexMemoryServer{{ID: 1, Pod: "demo-memory-0", State: dmv1.ServerReady, Transport: dmv1.TransportRDMA, Device: "mlx5_0", QuotaChunks: 16, UsedChunks: 4, Locks: 16384, LockPlacement: dmv1.LocksOnChip}, {ID: 2, Pod: "demo-memory-1", State: dmv1.ServerUnreachable}},
		Map: &dmv1.PartitionMap{Generation: 5, RangeCount: 3, Ranges: []dmv1.PartitionRange{
			{Owner: "demo-compute-0", Epoch: 1}, {Start: text(mid), Digest: hex.EncodeToString(salted(mid)), Owner: "demo-compute-2", Epoch: 5}, {Start: text(last), Digest: hex.EncodeToString(salted(last)), Owner: "demo-compute-1", Epoch: 2},
		}},
	}
	v := &view{index: index}
	pool := &dmv1.DMMemoryPool{}
	pool.Status.Servers = []dmv1.MemoryServerState{{Pod: "demo-memory-0", Node: "node1", Ready: true, Chunks: 64, ChunksGranted: 16}}
	v.memory = []*dmv1.DMMemoryPool{pool}
	v.asked = []asked{
		{IndexComputeServer: dmv1.IndexComputeServer{ID: 1, Pod: "demo-compute-0", State: dmv1.ServerReady, Ranges: 1, Paths: []dmv1.MemoryPath{{Transport: dmv1.TransportRDMA, Device: "mlx5_1", Count: 20, MemoryServers: []int32{1, 2}}, {Transport: dmv1.TransportTCP, Count: 1, MemoryServers: []int32{1025}}}}, said: &rpcv1.DescribeComputeReply{
			MapGeneration: 5, CacheBytes: 64 << 20, Connections: 3, Forwarded: 17, Errors: 1,
			Load: &rpcv1.ComputeLoad{OperationsPerSecond: 750, HitRatio: 0.987, ReadsPerOperation: 0.0131},
			Ranges: []*rpcv1.OwnedRange{{End: salted(mid), State: "Serving", Epoch: 1, OperationsPerSecond: 700},
				{Start: salted(mid), End: salted(last), State: "Giving", Epoch: 1, Reason: "memory server 2 does not answer", OperationsPerSecond: 50}},
		}},
		{IndexComputeServer: dmv1.IndexComputeServer{ID: 2, Pod: "demo-compute-1", State: dmv1.ServerUnreachable, Ranges: 1}, err: errors.New("dial tcp: timed out")},
		{IndexComputeServer: dmv1.IndexComputeServer{ID: 3, Pod: "demo-compute-2", State: dmv1.ServerReady, Ranges: 1, Paths: []dmv1.MemoryPath{{Transport: dmv1.TransportRDMA, Device: "mlx5_0", Count: 2, MemoryServers: []int32{1, 2}}}}, said: &rpcv1.DescribeComputeReply{
			MapGeneration: 4, CacheBytes: 1 << 20, Load: &rpcv1.ComputeLoad{OperationsPerSecond: 250, HitRatio: 1}, Draining: true,
			Ranges: []*rpcv1.OwnedRange{{Start: salted(mid), End: salted(last), State: "Acquiring", Reason: "client 1: held"}},
		}},
	}
	v.events = []corev1.Event{{Reason: "Handover", Message: "partition map 4 -> 5: keys go", EventTime: metav1.NewMicroTime(now.Add(-12 * time.Second))}}
	v.notes = []string{"events is forbidden"}
	return v
}

func TestStatus(t *testing.T) {
	got := drawn().status(now)
	for _, want := range []string{
		"demo  DEX, keys of up to 64 bytes, values of up to 128, durability Memory\n",
		"  Available=True for 4m  Serving: 3 compute servers answer\n",
		"  Degraded=True for 3s  FencePending: keys wait for memory server 2\n    means: a key range is not served,",
		"\n    to do: bring the memory server back. If its node will not return, switch the machine off and delete the Node object: a pod that is only deleted stays while its node is silent. What only this server has is lost then.\n",
		"demo-memory-0  1   Ready        node1  RDMA mlx5_0  64      ███·······  25 %  16     ███·······  25 %  16384 OnChip\n",
		"demo-memory-1  2   Unreachable  -      -            0       -                 0      -                 -\n",
		"demo-compute-0  1   Ready        1       750        ████████··  75 %  98.7 %      0.01      64Mi   RDMA mlx5_1 to 1 2 and 18 more, TCP to 1025\n",
		" 1.0Mi  RDMA mlx5_0\n",
		"demo-compute-1  2   Unreachable  1       no answer\n",
		"partition map 5: 3 ranges\n",
		`""       "m"      demo-compute-0  1      700    ███████···  70 %  Serving` + "\n",
		`"m"      "t\x80"  demo-compute-2  5      -      -                 Giving at demo-compute-0` + "\n",
		`"t\x80"  end      demo-compute-1  2      -      -                 -` + "\n",
		"  demo-compute-0, range 2 of 2: Giving, waits: memory server 2 does not answer\n",
		"  demo-compute-1 does not answer: dial tcp: timed out\n",
		"  demo-compute-2 drains\n",
		"  demo-compute-2, range 1 of 1: Acquiring, waits: client 1: held\n",
		"  demo-compute-2 acts on partition map 4\n",
		"  not seen: events is forbidden\n",
		"  12s ago  Handover  partition map 4 -> 5: keys go\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, "DataLost") {
		t.Error("shows a condition that is as it should be")
	}
	if t.Failed() {
		t.Log("\n" + got)
	}
}

// salted stands for a key as compute servers show it.
func salted(key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	return rpcv1.KeyDigest([]byte("salt"), key)
}

// TestPoolFull: keys that wait for memory are told from such as are on their way.
func TestPoolFull(t *testing.T) {
	v := drawn()
	v.asked[2].said.Ranges[0] = &rpcv1.OwnedRange{Start: salted([]byte("m")), End: salted([]byte("t\x80")), State: "Taking", Epoch: 5, Reason: "3 of 9 changes find no memory", PoolFull: true}
	v.asked[0].said.Ranges = v.asked[0].said.Ranges[:1]
	got := v.status(now)
	for _, want := range []string{
		`"m"      "t\x80"  demo-compute-2  5      0      ··········   0 %  Taking (pool full)` + "\n",
		"  demo-compute-2, range 1 of 1: Taking, waits for memory: 3 of 9 changes find no memory\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// TestHiddenKeys: where the status shows no keys, ranges are known by their digests all the same.
func TestHiddenKeys(t *testing.T) {
	v, shown := drawn(), drawn()
	m := v.index.Status.Map
	for i := range m.Ranges {
		m.Ranges[i].Start = ""
	}
	var hidden, plain strings.Builder
	v.drawRanges(&hidden)
	shown.drawRanges(&plain)
	want := plain.String()
	for _, key := range []string{"m", "t\x80"} {
		want = strings.ReplaceAll(want, strconv.Quote(key), "#"+hex.EncodeToString(salted([]byte(key))))
	}
	if got := strings.Fields(hidden.String()); !slices.Equal(got, strings.Fields(want)) {
		t.Errorf("got\n%swant\n%s", hidden.String(), want)
	}
}

// TestUnwatchedNamespace: an index that no operator has looked at for long says so, with what to
// do. One that was just made, and one with a condition, do not.
func TestUnwatchedNamespace(t *testing.T) {
	f := func(age time.Duration, looked, want bool) {
		t.Helper()
		v := &view{index: &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "shop", CreationTimestamp: metav1.NewTime(now.Add(-age))}}}
		if looked {
			v.index.Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionAvailable, Status: metav1.ConditionFalse}}
		}
		got := v.status(now)
		if says := strings.Contains(got, "no operator has looked at it in the 5m since it was made: name the namespace shop in watchNamespaces"); says != want {
			t.Errorf("an index made %v ago, looked at %v:\n%s", age, looked, got)
		}
	}
	f(5*time.Minute, false, true)
	f(5*time.Minute, true, false)
	f(time.Second, false, false)
}

// TestNothingToDraw: an index that was just made can be drawn, too.
func TestNothingToDraw(t *testing.T) {
	v := &view{index: &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}
	if got := v.status(now); !strings.Contains(got, "there is no partition map yet\n") || !strings.Contains(got, "going on:\n  nothing\n") {
		t.Error(got)
	}
	// a server that says nothing of its load
	v.asked = []asked{{said: &rpcv1.DescribeComputeReply{}}}
	if got := top([]*view{v}, false); strings.Contains(got, "NaN") || !strings.Contains(got, "  -  ") {
		t.Error(got)
	}
}

func TestTop(t *testing.T) {
	got := top([]*view{drawn()}, false)
	for _, want := range []string{
		"INDEX  COMPUTE SERVER",
		"demo   demo-compute-0  Ready        750        ████████··  75 %  98.7 %      0.01      64Mi   3            17         1\n",
		"demo   demo-compute-1  Unreachable  no answer\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// TestDrawHeldAsOne: neighbours that their owner holds as one range are served, all of them; who
// holds nothing of a range holds nothing of those after it.
func TestDrawHeldAsOne(t *testing.T) {
	v := drawn()
	m := v.index.Status.Map
	m.Ranges, m.RangeCount = nil, 6
	for _, start := range []string{"", "d", "h", "m", "p", "t"} {
		m.Ranges = append(m.Ranges, dmv1.PartitionRange{Start: base64.StdEncoding.EncodeToString([]byte(start)), Digest: hex.EncodeToString(salted([]byte(start))), Owner: "demo-compute-0", Epoch: 1})
	}
	m.Ranges[3].Owner = "demo-compute-2"
	v.asked[0].said.Ranges = []*rpcv1.OwnedRange{{End: salted([]byte("h")), State: "Serving"}, {Start: salted([]byte("p")), State: "Taking"}}
	v.asked[2].said.Ranges = nil
	var b strings.Builder
	v.drawRanges(&b)
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n")[2:] {
		fields := strings.Fields(line)
		got = append(got, fields[0]+" "+strings.TrimLeft(strings.Join(fields[4:], " "), "- %·0"))
	}
	want := `"" Serving,"d" Serving, counted above,"h" ,"m" ,"p" Taking,"t" Taking, counted above`
	if strings.Join(got, ",") != want {
		t.Errorf("%s, want %s\n%s", strings.Join(got, ","), want, b.String())
	}
}

// TestAllNamespaces: who asks for all namespaces sees which one an index is of, and what is wrong
// with which means.
func TestAllNamespaces(t *testing.T) {
	v := drawn()
	v.index.Namespace = "shop"
	well := dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "well", Namespace: "bank"}}
	well.Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionAvailable, Status: "True", Reason: dmv1.ReasonServing}, {Type: dmv1.ConditionDegraded, Status: "False", Reason: dmv1.ReasonAsDesired}}
	for got, parts := range map[string][]string{
		top([]*view{v}, true): {"NAMESPACE  INDEX  COMPUTE SERVER", "shop       demo   demo-compute-0"},
		overview([]*view{v, {index: &well}, {index: &dmv1.DMIndex{}}}, true, now): {"NAMESPACE  INDEX  DESIGN", "shop       demo   DEX     True       FencePending", "bank       well           True       AsDesired",
			"\nFencePending\n  means: a key range is not served,", "\n  to do: bring the memory server back"},
		overview([]*view{{index: &well}}, false, now): {"INDEX  DESIGN", "well           True       AsDesired  -            -       -        -       -\n"},
	} {
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("lacks %q:\n%s", part, got)
			}
		}
		if strings.Contains(got, "Serving\n") || strings.Contains(got, "AsDesired\n") {
			t.Errorf("explains what is as it should be:\n%s", got)
		}
	}
	c := &cluster{namespace: metav1.NamespaceAll}
	if _, err := c.readIndex(t.Context(), "demo"); !errors.Is(err, errNoNamespace) {
		t.Error(err)
	}
	if _, err := c.gatherAll(t.Context(), []string{"demo"}); !errors.Is(err, errNoNamespace) {
		t.Error(err)
	}
}

// TestExplain: each condition and reason has a meaning, whatever case it is written in.
func TestExplain(t *testing.T) {
	if len(meanings) < 30 {
		t.Errorf("%d meanings", len(meanings))
	}
	for name, m := range meanings {
		if m.when == "" {
			t.Errorf("%s means nothing", name)
		}
	}
	cmd := explainCommand()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"poolfull"})
	if err := cmd.Execute(); err != nil || !strings.HasPrefix(out.String(), "PoolFull\n  means: the quota") || !strings.Contains(out.String(), "  to do: raise the quota") {
		t.Errorf("%v: %s", err, out.String())
	}
	cmd.SetArgs([]string{"nonsense"})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.Execute(); err == nil {
		t.Error("nonsense has a meaning")
	}
}
