package controllers

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
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

func TestDecideMemoryPool(t *testing.T) {
	pod := func(id int) memoryPodView {
		return memoryPodView{id: id, ready: true, readySince: operatortest.Noon.Add(-time.Hour), image: "a"}
	}
	with := func(p memoryPodView, change func(*memoryPodView)) memoryPodView { change(&p); return p }
	f := func(name string, servers int, image string, want string, pods ...memoryPodView) {
		t.Helper()
		v := memoryPoolView{servers: servers, image: image, now: operatortest.Noon, pods: pods}
		for _, p := range pods { // where an image is proven is for TestImageIsProven
			v.probes = append(v.probes, imageProbeView{id: p.id, image: image, proven: true})
		}
		a := decideMemoryPool(v)
		if got := fmt.Sprintf("create %d remove %v restart %d", a.create, a.remove, a.restart); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("new", 2, "a", "create 2 remove [] restart -1")
	f("settled", 2, "a", "create 0 remove [] restart -1", pod(0), pod(1))
	f("raised", 3, "a", "create 1 remove [] restart -1", pod(0), pod(1))
	f("deleted", 2, "a", "create 1 remove [] restart -1", pod(0), with(pod(1), func(p *memoryPodView) { p.going = true }))
	f("evicted by a node", 2, "a", "create 1 remove [1] restart -1", pod(0), with(pod(1), func(p *memoryPodView) { p.ended = true; p.ready = false }))
	f("image", 2, "b", "create 0 remove [] restart 0", pod(0), pod(1))
	f("image, one is unfit", 2, "b", "create 0 remove [] restart 1", with(pod(0), func(p *memoryPodView) { p.image = "b" }),
		with(pod(1), func(p *memoryPodView) { p.ready, p.unfit = false, true }))
	f("image, one is away", 2, "b", "create 0 remove [] restart -1", pod(0), with(pod(1), func(p *memoryPodView) { p.ready = false }))
	disks := func(name string, servers int, want string, pods ...memoryPodView) {
		t.Helper()
		a := decideMemoryPool(memoryPoolView{servers: servers, returns: true, image: "a", now: operatortest.Noon, pods: pods})
		if got := fmt.Sprintf("create %d remove %v next %v", a.create, a.remove, a.next.Sub(operatortest.Noon) == 4*time.Second); got != want {
			t.Errorf("with disks: %s: %s, want %s", name, got, want)
		}
	}
	made := func(ago time.Duration, refused bool) func(*memoryPodView) {
		return func(p *memoryPodView) {
			p.ended, p.ready, p.attempt = true, false, podstate.Attempt{ID: p.id, Ended: true, Refused: refused, Created: operatortest.Noon.Add(-ago)}
		}
	}
	disks("gone", 2, "create 1 remove [] next false", pod(0))
	disks("deleted, and still there", 2, "create 0 remove [] next false", pod(0), with(pod(1), func(p *memoryPodView) { p.going = true }))
	disks("ended", 2, "create 0 remove [1] next false", pod(0), with(pod(1), made(time.Hour, false)))
	disks("refused", 2, "create 0 remove [1] next false", pod(0), with(pod(1), made(returnAfter, true)))
	disks("refused just now", 2, "create 0 remove [] next true", pod(0), with(pod(1), made(returnAfter-4*time.Second, true)))
	paused := func(name, want string, pods ...memoryPodView) {
		t.Helper()
		a := decideMemoryPool(memoryPoolView{servers: 2, image: "b", paused: true, now: operatortest.Noon, pods: pods})
		if got := fmt.Sprintf("create %d remove %v restart %d", a.create, a.remove, a.restart); got != want {
			t.Errorf("paused: %s: %s, want %s", name, got, want)
		}
	}
	paused("image", "create 0 remove [] restart -1", pod(0), pod(1))
	paused("one is unfit", "create 0 remove [] restart -1", pod(0), with(pod(1), func(p *memoryPodView) { p.ready, p.unfit = false, true }))
	paused("ended", "create 1 remove [1] restart -1", pod(0), with(pod(1), func(p *memoryPodView) { p.ended = true }))
	typo := func(p *memoryPodView) {
		p.image, p.ready, p.stuck, p.restarted = "typo", false, true, operatortest.Noon.Add(-time.Second)
	}
	f("image mistyped, put right", 2, "a", "create 0 remove [] restart 0", with(pod(0), typo), pod(1))
	f("image mistyped, another one", 2, "b", "create 0 remove [] restart 0", with(pod(0), typo), pod(1))
	f("image mistyped, and a pod is missing", 2, "a", "create 1 remove [] restart 0", with(pod(0), typo))
	f("image mistyped, still wanted", 2, "typo", "create 0 remove [] restart -1", with(pod(0), typo), pod(1))
	restarting := func(p *memoryPodView) { p.image = "b"; p.restarted = operatortest.Noon.Add(-10 * time.Second) }
	f("image, the first is not back", 2, "b", "create 0 remove [] restart -1", with(pod(0), restarting), pod(1))
	f("image, the first is back", 2, "b", "create 0 remove [] restart 1",
		with(with(pod(0), restarting), func(p *memoryPodView) { p.readySince = operatortest.Noon.Add(-time.Second) }), pod(1))
	f("image, the restart was not noticed", 2, "b", "create 0 remove [] restart 1",
		with(with(pod(0), restarting), func(p *memoryPodView) { p.restarted = operatortest.Noon.Add(-time.Hour + time.Second) }), pod(1))
}

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
	if paths := pathsOf([]*rpcv1.MemoryPath{{Device: long}, {Device: long}}); len(paths) != 1 || len(paths[0].Device) > longestDevice {
		t.Errorf("%d paths", len(paths))
	}
	s := &memoryPoolScope{pool: &dmv1.DMMemoryPool{}, answering: []*corev1.Pod{operatortest.Pod("pool-0", 0)}, described: map[int]*rpcv1.DescribeMemoryReply{}}
	d := &rpcv1.DescribeMemoryReply{Transports: []*rpcv1.Transport{{Device: long}}}
	s.use.KeptFor = map[int][]string{}
	for i := range many {
		d.Indexes = append(d.Indexes, &rpcv1.IndexUse{Index: fmt.Sprint(long, i)}, &rpcv1.IndexUse{Index: fmt.Sprint(i)})
		s.use.KeptFor[0] = append(s.use.KeptFor[0], fmt.Sprint(i))
	}
	s.described[0] = d
	s.account()
	server, grants := s.pool.Status.Servers[0], s.pool.Status.Grants
	if len(server.Device) > longestDevice || len(server.KeptFor) > dmv1.MaxShownKeptFor || len(grants) != dmv1.MaxShownGrants || len(grants[0].Identity) > dmv1.MaxShownIdentity {
		t.Errorf("device %d bytes, kept for %d, %d grants", len(server.Device), len(server.KeptFor), len(grants))
	}
	i := &indexScope{index: &dmv1.DMIndex{}, memoryPools: []memoryPoolOfIndex{{pods: s.answering, described: s.described}}}
	if m := i.memoryState(memoryServer{id: 1, pod: "pool-0"}, nil); len(m.Device) != longestDevice {
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

func TestSpareIDs(t *testing.T) {
	s := reconciler.NewSpareIDs()
	f := func(want string, n int) {
		t.Helper()
		if got := fmt.Sprint(s.Take("pool", n)); got != want {
			t.Errorf("took %s, want %s", got, want)
		}
	}
	f("[]", 2)
	s.Put("pool", []int{7, 8})
	s.Put("pool", []int{3})
	s.Put("other", []int{1})
	f("[3 7]", 2)
	f("[8]", 2)
	f("[]", 2)
	if got := fmt.Sprint(s.Pick("pool", []int{1, 2, 3}, 2)); got != "[1 2]" {
		t.Errorf("picked %s", got)
	}
	s.Avoid("pool", 1)
	if got := fmt.Sprint(s.Pick("pool", []int{1, 2, 3}, 2)); got != "[2 3]" {
		t.Errorf("picked %s beside a number whose name is taken", got)
	}
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
