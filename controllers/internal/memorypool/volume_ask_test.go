package memorypool

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// hasty is a dialer to servers of which one needs a time for its reports, or refuses.
type hasty struct {
	servers.Dialer
	pod     string
	needs   time.Duration
	refuses bool
	asked   *int
}

type hastyVolume struct {
	servers.Volume
	d hasty
}

func (d hasty) Volume(t servers.Target) (servers.Volume, error) {
	v, err := d.Dialer.Volume(t)
	if err != nil || t.Pod != d.pod {
		return v, err
	}
	return hastyVolume{v, d}, nil
}

func (v hastyVolume) Report(ctx context.Context, volume int, pod string) (servers.VolumeReport, error) {
	*v.d.asked++
	if v.d.refuses {
		return servers.VolumeReport{}, fmt.Errorf("dial: %w", servers.ErrRefused)
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) < v.d.needs {
		return servers.VolumeReport{}, context.DeadlineExceeded
	}
	return v.Volume.Report(ctx, volume, pod)
}

// TestSlowReports: a server that was silent, and that no other copy misses, has the whole time for
// its report, however often that goes on. One whose address refuses is asked once in a look.
func TestSlowReports(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.settle()
	asked := 0
	for i, x := range []struct {
		needs           time.Duration
		refuses, silent bool
		asked           int
	}{
		{time.Hour, false, true, 1},
		{time.Hour, false, true, 2},
		{reportLimit / 2, false, false, 2},
		{0, true, true, 1},
		{0, true, true, 1},
		{0, false, false, 1},
	} {
		asked = 0
		m.r.Dialer = hasty{m.fleet, "pool-1", x.needs, x.refuses, &asked}
		s, err := m.look()
		if err != nil {
			t.Fatal(err)
		}
		v := s.volumes[1]
		uid := v.view.Primary.UID
		if _, answered := v.reports[uid]; answered == x.silent || asked != x.asked || v.refuses[uid] != x.refuses || v.memory.IsSilent(uid) != x.silent {
			t.Errorf("look %d: answered %v, asked %d times, refuses %v, remembered as silent %v", i, answered, asked, v.refuses[uid], v.memory.IsSilent(uid))
		}
	}
}

// TestSparesInAHurry: a pod that no view names and that is silent has the whole time for its
// report, but not while another volume has a copy that misses one.
func TestSparesInAHurry(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.settle()
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.SuspectAfterSeconds = 1 })
	m.away("pool-1025", true)
	for s := m.scope(); s.record.Views[1].Backup != nil; s = m.scope() {
		if _, err := m.look(); err != nil {
			t.Fatal(err)
		}
	}
	asked, hurried := 0, false
	m.r.Dialer = hasty{m.fleet, "pool-1025", time.Hour, false, &asked}
	for !hurried && m.scope().record.Views[0].Primary.Pod == "pool-0" {
		asked = 0
		s, err := m.look()
		if err != nil {
			t.Fatal(err)
		}
		hurries, want := s.volumes[0].misses() >= volumeLook, 2
		if hurried = hurried || hurries; hurries {
			want = 1
		}
		if asked != want {
			t.Errorf("it was asked %d times, want %d: the copy of volume 0 misses its primary for %v", asked, want, s.volumes[0].misses())
		}
		m.away("pool-0", true)
	}
	if !hurried {
		t.Error("no look was in a hurry")
	}
}

// TestNoLookBetween: a view is told by the look that records it, and a primary that stops is
// followed by another one within that look. So at the end of each somebody answers for a volume.
func TestNoLookBetween(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	pod := m.settle().record.Views[0].Primary
	if err := m.fleet.Restart(pod.UID); err != nil {
		t.Fatal(err)
	}
	m.ask("pool-1")
	const want = "0:pool-1024, 1:pool-1025"
	for range 30 {
		s, err := m.look()
		if err != nil {
			t.Fatal(err)
		}
		state := m.stateOf(s)
		for volume, view := range s.record.Views {
			if role := m.fleet.RoleOf(view.Primary.UID); role != "primary" {
				t.Errorf("at the end of a look pod %s answers for volume %d, and is %s", view.Primary.Pod, volume, role)
			}
		}
		if strings.HasPrefix(state, want) {
			return
		}
	}
	t.Errorf("after 30 looks: %s, want %s", m.state(), want)
}

// TestPodsAreMadeOnce: a look in which a primary stops asks all servers twice, and makes each pod
// once.
func TestPodsAreMadeOnce(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	s := m.settle()
	if err := m.r.Delete(t.Context(), s.record.Views[1].Backup.Among(s.pods, s.claims)); err != nil {
		t.Fatal(err)
	}
	if s, err := m.look(); err != nil || s.record.Views[1].Backup != nil {
		t.Fatalf("%v, record %s", err, s.record)
	}
	before := m.scope().record.Next
	m.ask("pool-0")
	if _, err := m.look(); err != nil {
		t.Fatal(err)
	}
	s = m.scope()
	if primary, made := s.record.Views[0].Primary.Pod, s.record.Next-before; primary != "pool-1024" || made > 2 || made < 1 {
		t.Errorf("pod %s answers for volume 0, and %d pods were made for two volumes: %s", primary, made, m.stateOf(s))
	}
}

// TestUndecidedVolume: while a copy that a view names does not answer, the pool is looked at again
// soon, and no longer than until the other copy would have taken its place.
func TestUndecidedVolume(t *testing.T) {
	for _, pod := range []string{"pool-0", "pool-1024"} {
		m := newMovingPool(t, interceptor.Funcs{})
		m.copies(2)
		m.until(twice)
		m.settle()
		m.away(pod, true)
		m.fleet.HoldBack(true) // the other one does not miss it
		began := m.now
		for m.now.Sub(began) < 2*(suspectAfter+volumeHurries) {
			silent := m.now.Sub(began)
			s, err := m.look()
			want := volumeSoon
			if silent >= suspectAfter+volumeHurries {
				want = volumeLook
			}
			if err != nil || s.volumesAgain != want {
				t.Errorf("%s has been silent for %v: the next look comes after %v, want %v; %v", pod, silent, s.volumesAgain, want, err)
			}
		}
	}
}
