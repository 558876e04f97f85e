package memorypool

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
)

func TestDecide(t *testing.T) {
	pod := func(id int) podView {
		return podView{id: id, ready: true, readySince: operatortest.Noon.Add(-time.Hour), image: "a"}
	}
	with := func(p podView, change func(*podView)) podView { change(&p); return p }
	f := func(name string, servers int, image string, want string, pods ...podView) {
		t.Helper()
		v := view{servers: servers, image: image, now: operatortest.Noon, pods: pods}
		for _, p := range pods { // where an image is proven is for TestImageIsProven
			v.probes = append(v.probes, imageProbeView{id: p.id, image: image, proven: true})
		}
		a := decide(v)
		if got := fmt.Sprintf("create %d remove %v restart %d", a.create, a.remove, a.restart); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("new", 2, "a", "create 2 remove [] restart -1")
	f("settled", 2, "a", "create 0 remove [] restart -1", pod(0), pod(1))
	f("raised", 3, "a", "create 1 remove [] restart -1", pod(0), pod(1))
	f("deleted", 2, "a", "create 1 remove [] restart -1", pod(0), with(pod(1), func(p *podView) { p.going = true }))
	f("evicted by a node", 2, "a", "create 1 remove [1] restart -1", pod(0), with(pod(1), func(p *podView) { p.ended = true; p.ready = false }))
	f("image", 2, "b", "create 0 remove [] restart 0", pod(0), pod(1))
	f("image, one is unfit", 2, "b", "create 0 remove [] restart 1", with(pod(0), func(p *podView) { p.image = "b" }),
		with(pod(1), func(p *podView) { p.ready, p.unfit = false, true }))
	f("image, one is away", 2, "b", "create 0 remove [] restart -1", pod(0), with(pod(1), func(p *podView) { p.ready = false }))
	disks := func(name string, servers int, want string, pods ...podView) {
		t.Helper()
		a := decide(view{servers: servers, returns: true, image: "a", now: operatortest.Noon, pods: pods})
		if got := fmt.Sprintf("create %d remove %v next %v", a.create, a.remove, a.next.Sub(operatortest.Noon) == 4*time.Second); got != want {
			t.Errorf("with disks: %s: %s, want %s", name, got, want)
		}
	}
	made := func(ago time.Duration, refused bool) func(*podView) {
		return func(p *podView) {
			p.ended, p.ready, p.attempt = true, false, podstate.Attempt{ID: p.id, Ended: true, Refused: refused, Created: operatortest.Noon.Add(-ago)}
		}
	}
	disks("gone", 2, "create 1 remove [] next false", pod(0))
	disks("deleted, and still there", 2, "create 0 remove [] next false", pod(0), with(pod(1), func(p *podView) { p.going = true }))
	disks("ended", 2, "create 0 remove [1] next false", pod(0), with(pod(1), made(time.Hour, false)))
	disks("refused", 2, "create 0 remove [1] next false", pod(0), with(pod(1), made(returnAfter, true)))
	disks("refused just now", 2, "create 0 remove [] next true", pod(0), with(pod(1), made(returnAfter-4*time.Second, true)))
	paused := func(name, want string, pods ...podView) {
		t.Helper()
		a := decide(view{servers: 2, image: "b", paused: true, now: operatortest.Noon, pods: pods})
		if got := fmt.Sprintf("create %d remove %v restart %d", a.create, a.remove, a.restart); got != want {
			t.Errorf("paused: %s: %s, want %s", name, got, want)
		}
	}
	paused("image", "create 0 remove [] restart -1", pod(0), pod(1))
	paused("one is unfit", "create 0 remove [] restart -1", pod(0), with(pod(1), func(p *podView) { p.ready, p.unfit = false, true }))
	paused("ended", "create 1 remove [1] restart -1", pod(0), with(pod(1), func(p *podView) { p.ended = true }))
	typo := func(p *podView) {
		p.image, p.ready, p.stuck, p.restarted = "typo", false, true, operatortest.Noon.Add(-time.Second)
	}
	f("image mistyped, put right", 2, "a", "create 0 remove [] restart 0", with(pod(0), typo), pod(1))
	f("image mistyped, another one", 2, "b", "create 0 remove [] restart 0", with(pod(0), typo), pod(1))
	f("image mistyped, and a pod is missing", 2, "a", "create 1 remove [] restart 0", with(pod(0), typo))
	f("image mistyped, still wanted", 2, "typo", "create 0 remove [] restart -1", with(pod(0), typo), pod(1))
	restarting := func(p *podView) { p.image = "b"; p.restarted = operatortest.Noon.Add(-10 * time.Second) }
	f("image, the first is not back", 2, "b", "create 0 remove [] restart -1", with(pod(0), restarting), pod(1))
	f("image, the first is back", 2, "b", "create 0 remove [] restart 1",
		with(with(pod(0), restarting), func(p *podView) { p.readySince = operatortest.Noon.Add(-time.Second) }), pod(1))
	f("image, the restart was not noticed", 2, "b", "create 0 remove [] restart 1",
		with(with(pod(0), restarting), func(p *podView) { p.restarted = operatortest.Noon.Add(-time.Hour + time.Second) }), pod(1))
}
