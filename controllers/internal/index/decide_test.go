package index

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

func TestJudgeMemory(t *testing.T) {
	observed := func(id uint16, incarnation uint64) memoryObserved {
		return memoryObserved{id: id, pod: fmt.Sprint("p", id), answered: true, incarnation: incarnation}
	}
	ordinal := func(id uint16) int { return int(id-1) / 1024 }
	podName := func(id uint16) string { return fmt.Sprint("p", id) }
	f := func(name string, recorded map[uint16]uint64, wanted []int, want string, seen ...memoryObserved) {
		t.Helper()
		v := judgeMemory(recorded, wanted, seen, ordinal, podName)
		got := ""
		for _, s := range v.servers {
			got += fmt.Sprintf("%d %s %d %s%s; ", s.id, s.pod, s.incarnation, s.state, s.why)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("nothing yet", nil, []int{2}, "")
	f("one starting", nil, []int{2}, "1 p1 7 Ready; 2 p2 0 Starting; ", observed(1, 7), memoryObserved{id: 2, pod: "p2"})
	f("the lowest ones are taken", nil, []int{1, 1}, "2 p2 7 Ready; 1025 p1025 9 Ready; ",
		observed(1025, 9), observed(3, 8), observed(2, 7), memoryObserved{id: 1, pod: "p1", gone: true})
	recorded := map[uint16]uint64{1: 7, 2: 8}
	f("well", recorded, []int{2}, "1 p1 7 Ready; 2 p2 8 Ready; ", observed(2, 8), observed(1, 7), observed(3, 9))
	f("away", recorded, []int{2}, "1 p1 7 Ready; 2 p2 8 Unreachable; ", observed(1, 7), memoryObserved{id: 2, pod: "p2"})
	f("empty", recorded, []int{2}, "1 p1 7 Ready; 2 p2 8 Lostit came back without its content; ", observed(1, 7), observed(2, 9))
	f("no pod", recorded, []int{2}, "1 p1 7 Ready; 2 p2 8 Lostits pod is gone; ", observed(1, 7), observed(3, 9))
	f("being deleted", recorded, []int{2}, "1 p1 7 Lostits pod is gone; 2 p2 8 Ready; ",
		memoryObserved{id: 1, pod: "p1", gone: true, answered: true, incarnation: 7}, observed(2, 8))
}

func TestSuspectClients(t *testing.T) {
	client := func(id uint32, name string) *rpcv1.ClientUse { return &rpcv1.ClientUse{Client: id, Name: name} }
	fenced := func(id uint32, name string) *rpcv1.ClientUse {
		return &rpcv1.ClientUse{Client: id, Name: name, Fenced: true}
	}
	f := func(name, want string, there []string, listed ...*rpcv1.ClientUse) {
		t.Helper()
		alive := map[string]bool{}
		for _, pod := range there {
			alive[pod] = true
		}
		var got []uint32
		suspects, more := suspectClients(listed, []string{"demo-fast", "demo"}, alive)
		for _, c := range suspects {
			got = append(got, c.Client)
		}
		if more != 0 {
			t.Errorf("%s: %d more", name, more)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	f("none", "[]", nil)
	f("there", "[]", []string{"demo-0", "demo-fast-0"}, client(1, "demo-0"), client(2, "demo-fast-0"))
	f("gone", "[1 3]", []string{"demo-1"}, client(1, "demo-0"), client(2, "demo-1"), client(3, "demo-fast-7"))
	f("two clients of one pod", "[1 2]", nil, client(1, "demo-0"), client(2, "demo-0"))
	f("fenced already", "[2]", nil, fenced(1, "demo-0"), client(2, "demo-0"))
	f("the former process of a pod that is there", "[]", []string{"demo-0"}, client(1, "demo-0"), client(2, "demo-0"))
	f("nobody's pod", "[]", nil, client(1, ""), client(2, "me"), client(3, "demo"), client(4, "demo-"), client(5, "demo-x"), client(6, "demo-slow-0"), client(7, "demo-00"), client(8, "demo--1"))
}

// TestServersThatListWithoutEnd: a server may say what it likes. What the operator does and keeps
// because of it is bounded, and the API server takes what the status has of it.
func TestServersThatListWithoutEnd(t *testing.T) {
	const many = 6306
	var listed []*rpcv1.ClientUse
	for i := range many {
		listed = append(listed, &rpcv1.ClientUse{Client: uint32(i), Name: fmt.Sprintf("demo-%d", i)})
	}
	suspects, more := suspectClients(listed, []string{"demo"}, nil)
	if len(suspects) != mostSuspects || more != many-mostSuspects || suspects[0] != listed[0] {
		t.Errorf("%d clients are looked at, %d more", len(suspects), more)
	}
	names := (&told{}).names(types.NamespacedName{}, "uid", listed)
	if len(names) > mostNames || names[many-1] != "demo-6305" {
		t.Errorf("%d names are known", len(names))
	}
	long := strings.Repeat("x", 10_000)
	if paths := pathsOf([]*rpcv1.MemoryPath{{Device: long}, {Device: long}}); len(paths) != 1 || len(paths[0].Device) > report.LongestDevice {
		t.Errorf("%d paths", len(paths))
	}
	described := map[int]*rpcv1.DescribeMemoryReply{0: {Transports: []*rpcv1.Transport{{Device: long}}}}
	i := &scope{index: &dmv1.DMIndex{}, memoryPools: []memoryPool{{pods: []*corev1.Pod{operatortest.Pod("pool-0", 0)}, described: described}}}
	if m := i.memoryState(memoryServer{id: 1, pod: "pool-0"}, nil); len(m.Device) != report.LongestDevice {
		t.Errorf("a device of %d bytes", len(m.Device))
	}
}

func TestAlive(t *testing.T) {
	pod := func(phase corev1.PodPhase, dies time.Duration) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		if dies != 0 {
			p.DeletionTimestamp = &metav1.Time{Time: operatortest.Noon.Add(dies)}
		}
		return p
	}
	f := func(name string, want bool, p *corev1.Pod) {
		t.Helper()
		if got := alive(p, operatortest.Noon); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("running", true, pod(corev1.PodRunning, 0))
	f("pending", true, pod(corev1.PodPending, 0))
	f("failed", false, pod(corev1.PodFailed, 0))
	f("succeeded", false, pod(corev1.PodSucceeded, 0))
	f("has its grace period", true, pod(corev1.PodRunning, time.Minute))
	f("a little over it", true, pod(corev1.PodRunning, -afterGrace+time.Second))
	f("its node is lost", false, pod(corev1.PodRunning, -afterGrace-time.Second))
}

// TestAgain: while ranges move the operator looks often, and then less and less so.
func TestAgain(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, 100 * time.Millisecond: 50 * time.Millisecond, 2 * time.Second: 500 * time.Millisecond, 8 * time.Second: outcome.RequeueSoon, time.Hour: outcome.RequeueSoon,
	} {
		if got := again(age); got != want {
			t.Errorf("a map of %v: again after %v, want %v", age, got, want)
		}
	}
}
