package computepool

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/controllers/internal/operatortest"
)

func TestDecideComputePool(t *testing.T) {
	pod := func(id int) podView {
		return podView{id: id, ready: true, readySince: operatortest.Noon.Add(-time.Hour), identity: "uid", template: "t", image: "i"}
	}
	with := func(p podView, change func(*podView)) podView { change(&p); return p }
	old := func(id int) podView {
		return with(pod(id), func(p *podView) { p.template = "old" })
	}
	gone := func(p *podView) { p.leaving = true }
	f := func(name string, replicas int, want string, pods ...podView) {
		t.Helper()
		a := decide(view{replicas: replicas, identity: "uid", template: "t", now: operatortest.Noon, pods: pods})
		got := fmt.Sprintf("create %d leave %v remove %v", a.create, a.leave, a.remove)
		if a.former > 0 {
			got += fmt.Sprint(" former ", a.former)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	f("new", 2, "create 2 leave [] remove []")
	f("settled", 2, "create 0 leave [] remove []", pod(0), pod(1))
	f("up", 3, "create 1 leave [] remove []", pod(0), pod(1))
	f("down", 1, "create 0 leave [2 1] remove []", pod(0), pod(1), pod(2))
	f("down, on its way", 1, "create 0 leave [] remove []", pod(0), with(pod(1), gone))
	f("down and up again", 2, "create 1 leave [] remove []", pod(0), with(pod(1), gone))
	f("deleted", 2, "create 1 leave [] remove []", pod(0), with(pod(1), func(p *podView) { p.going = true }))
	f("ended", 2, "create 1 leave [] remove [1]", pod(0), with(pod(1), func(p *podView) { p.ended = true }))
	f("made anew", 2, "create 2 leave [] remove [0 1]",
		with(pod(0), func(p *podView) { p.identity = "" }), with(pod(1), func(p *podView) { p.identity = "uid/0" }))
	f("new template", 2, "create 1 leave [] remove []", old(0), old(1))
	f("new template, not ready", 2, "create 0 leave [] remove []", old(0), old(1), with(pod(2), func(p *podView) { p.ready = false }))
	f("new template, ready", 2, "create 0 leave [1] remove []", old(0), old(1), pod(2))
	f("new template, one leaves", 2, "create 1 leave [] remove []", old(0), with(old(1), gone), pod(2))
	f("new template, last", 2, "create 0 leave [0] remove []", old(0), pod(2), pod(3))
	starting := func(p *podView) { p.ready, p.neverRan = false, true }
	f("new template, not ready, and one is lost", 2, "create 1 leave [] remove [] former 1", old(0), with(pod(2), starting))
	f("new template, and one is lost", 2, "create 2 leave [] remove [] former 1", old(0))
	f("new template, the one instead starts", 2, "create 0 leave [] remove []", old(0), with(pod(2), starting), with(old(3), starting))
	f("new template, ready, the one instead starts", 2, "create 1 leave [] remove [3]", old(0), pod(2), with(old(3), starting))
	f("new template, ready, and one is lost", 2, "create 1 leave [] remove []", old(0), pod(2))
	f("new template, not ready, and up", 4, "create 2 leave [] remove [] former 2", old(0), old(1), with(pod(2), starting))
	paused := func(name, want string, pods ...podView) {
		t.Helper()
		a := decide(view{replicas: 2, identity: "uid", template: "t", paused: true, now: operatortest.Noon, pods: pods})
		if got := fmt.Sprintf("create %d leave %v remove %v", a.create, a.leave, a.remove); got != want {
			t.Errorf("paused: %s: %s, want %s", name, got, want)
		}
	}
	paused("new template", "create 0 leave [] remove []", old(0), old(1))
	paused("new template, another is ready", "create 0 leave [] remove []", old(0), old(1), pod(2))
	paused("deleted", "create 1 leave [] remove []", old(0), with(old(1), func(p *podView) { p.going = true }))
	paused("ended", "create 1 leave [] remove [1]", old(0), with(old(1), func(p *podView) { p.ended = true }))
	typo := func(id int) podView {
		return with(old(id), func(p *podView) { p.template, p.image, p.ready, p.neverRan = "typo", "typo", false, true })
	}
	unready := func(p *podView) { p.ready, p.readySince = false, operatortest.Noon.Add(-time.Minute) }
	f("template mistyped, put right", 2, "create 0 leave [] remove [2]", pod(0), pod(1), typo(2))
	f("template mistyped, another one", 2, "create 1 leave [] remove [2]", old(0), old(1), typo(2))
	f("template mistyped from the beginning", 2, "create 2 leave [] remove [0 1]", typo(0), typo(1))
	f("the one more runs and is not ready", 2, "create 0 leave [2] remove []", pod(0), pod(1), with(old(2), unready))
	f("the one more runs and is not ready, another one", 2, "create 0 leave [2] remove []", old(0), old(1), with(old(2), unready))
	f("the one more is not ready yet", 2, "create 0 leave [] remove []", pod(0), pod(1), with(old(2), func(p *podView) { p.ready, p.readySince = false, operatortest.Noon }))
	f("none is ready", 2, "create 1 leave [] remove []", with(old(0), unready), with(old(1), unready))
	f("none is ready, one more neither", 2, "create 0 leave [] remove []", with(old(0), unready), with(old(1), unready), with(pod(2), unready))
	f("none is ready, and the one more cannot run", 2, "create 0 leave [] remove []", with(old(0), unready), with(old(1), unready),
		with(pod(2), func(p *podView) { p.ready, p.neverRan = false, true }))
	f("none is ready but the one more", 2, "create 0 leave [1] remove []", with(old(0), unready), with(old(1), unready), pod(2))
	f("new template and down", 1, "create 0 leave [2] remove []", old(0), old(1), old(2))
}
