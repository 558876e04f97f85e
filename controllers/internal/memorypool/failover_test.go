package memorypool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// copies lets the pool have so many copies of each volume.
func (m *movingPool) copies(n int32) {
	m.t.Helper()
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Copies = n })
}

func (m *movingPool) change(do func(*dmv1.DMMemoryPoolSpec)) {
	m.t.Helper()
	s := m.scope()
	do(&s.pool.Spec)
	if err := m.r.Update(m.t.Context(), s.pool); err != nil {
		m.t.Fatal(err)
	}
}

// away makes the server of a pod silent.
func (m *movingPool) away(pod string, away bool) { m.fleet.SetAway("ns", pod, away) }

const twice = "0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary, pool-1024 backup, pool-1025 backup"

// TestFailOver: a backup takes the place of a primary that nobody hears, whose process restarted or
// whose pod is gone, with its content; then another copy joins. A settled pool is watched, and
// nothing is decided about it.
func TestFailOver(t *testing.T) {
	for name, fail := range map[string]struct {
		do   func(*movingPool, *corev1.Pod) error
		want string
	}{
		"restarted": {func(m *movingPool, p *corev1.Pod) error { return m.fleet.Restart(string(p.UID)) },
			"0:pool-1024, 1:pool-1, pool-0 backup, pool-1 primary, pool-1024 primary, pool-1025 backup"},
		"gone": {func(m *movingPool, p *corev1.Pod) error { return m.r.Delete(t.Context(), p) },
			"0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup"},
	} {
		m := newMovingPool(t, interceptor.Funcs{})
		m.copies(2)
		m.until(twice)
		before := m.settle().record
		s, err := m.look()
		if err != nil || s.volumesAgain != 0 || s.record.String() != before.String() || len(m.r.watch.look(t.Context())) > 0 {
			t.Errorf("%s: a settled pool: %v, look again after %v, record %s", name, err, s.volumesAgain, s.record)
		}
		pod := s.record.Views[0].Primary.Among(s.pods, s.claims)
		if err := fail.do(m, pod); err != nil {
			t.Fatal(err)
		}
		m.until(fail.want)
		if status := m.scope().record.Views[0]; status.Primary.Pod != "pool-1024" {
			t.Errorf("%s: %+v", name, status)
		}
	}
}

// TestWatchTellsOnce: the first answer that is another one, or does not come, wakes the pool's
// reconciler, once.
func TestWatchTellsOnce(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.settle()
	for i, want := range []int{0, 1, 0} {
		if i == 1 {
			m.away("pool-1025", true)
		}
		if changed := m.r.watch.look(t.Context()); len(changed) != want {
			t.Errorf("look %d: %d pools to be looked at, want %d", i, len(changed), want)
		}
	}
	since := m.now
	m.now = m.now.Add(time.Minute)
	s, err := m.look()
	if err != nil {
		t.Fatal(err)
	}
	uid := s.volumes[1].view.Backup.UID
	if silences := m.r.watch.silences(s.pool.UID); len(silences) != 1 || !silences[uid].Equal(since) || !s.volumes[1].memory.IsSilent(uid) {
		t.Errorf("pod pool-1025 has been silent since %v; kept is %v", since, silences)
	}
	m.away("pool-1025", false)
	if s, err := m.look(); err != nil || s.volumesAgain != 0 || len(m.r.watch.pools) != 1 || len(m.r.watch.silent) != 0 {
		t.Errorf("it is not watched again: %v", err)
	}
}

// TestShownVolumes: what the status says of volumes, and that a pool without any says nothing.
func TestShownVolumes(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	if got := m.shown(); got != "" {
		t.Errorf("of a pool whose volumes have one pod each: %s", got)
	}
	m.fleet.HoldBack(true)
	m.copies(2)
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary, pool-1024 joining, pool-1025 joining")
	if got, want := m.shown(), "True CopyMissing volume 0: pod pool-1024 gets its copy; volume 1: pod pool-1025 gets its copy; 0 view 1 pool-0  Copying 50%; 1 view 1 pool-1  Copying 50%"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	m.fleet.HoldBack(false)
	m.until(twice)
	m.settle()
	if got, want := m.shown(), "False VolumesInSync ; 0 view 2 pool-0 pool-1024 InSync; 1 view 2 pool-1 pool-1025 InSync"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	m.away("pool-0", true)
	if got := m.shown(); !strings.HasPrefix(got, "True DecisionPending volume 0: pod pool-0 does not answer") {
		t.Errorf("while a server does not answer: %s", got)
	}
}

// TestImageOfCopies: pods with another image than the wanted one are left, a backup before its
// primary, one volume after the other. A paused pool keeps its images.
func TestImageOfCopies(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.settle()
	m.image = "server:2"
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Paused = true })
	if m.settle(); m.state() != twice {
		t.Errorf("while it is paused: %s", m.state())
	}
	m.change(func(spec *dmv1.DMMemoryPoolSpec) { spec.Paused = false })
	var left []string
	for range 60 {
		s, err := m.look()
		if err != nil {
			t.Fatal(err)
		}
		if s.volumesAgain == 0 {
			break
		}
		leaving := 0
		for _, v := range s.volumes {
			for uid := range v.moves {
				if leaving++; !slices.Contains(left, v.podOf(uid).Name) {
					left = append(left, v.podOf(uid).Name)
				}
			}
		}
		if leaving > 1 {
			t.Errorf("%d pods are to be left at once", leaving)
		}
	}
	if got, want := m.state(), "0:pool-1026, 1:pool-1028, pool-1026 primary, pool-1027 backup, pool-1028 primary, pool-1029 backup"; got != want || fmt.Sprint(left) != "[pool-1024 pool-0 pool-1025 pool-1]" {
		t.Errorf("%s, want %s; left %v", got, want, left)
	}
	for _, p := range m.scope().pods {
		if podstate.Asked(p) != m.image {
			t.Errorf("pod %s has image %s", p.Name, podstate.Asked(p))
		}
	}
}

// TestCopiesThatEnd: pods of copies that end are deleted, and others are made, no faster than one
// every 10 s. One of a volume that is lost goes if it has nothing, and no other is made.
func TestCopiesThatEnd(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.settle()
	made := func() (n int) {
		for _, p := range m.scope().pods {
			if podstate.ID(p) >= 1024 {
				n++
			}
		}
		return n
	}
	end := func() {
		for _, p := range m.scope().pods {
			if podstate.ID(p) < 1024 || podstate.Ended(p) {
				continue
			}
			p.CreationTimestamp = metav1.NewTime(m.now)
			if err := m.r.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			p.Status.Phase = corev1.PodFailed
			if err := m.r.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	end()
	for range 10 { // 5 s
		if _, err := m.look(); err != nil {
			t.Fatal(err)
		}
	}
	if n, next := made(), m.scope().record.Next; n != 2 || next != 1026 {
		t.Errorf("%d pods of copies, the next number is %d: others were made at once", n, next)
	}
	m.until(strings.ReplaceAll(strings.ReplaceAll(twice, "1025", "1027"), "1024", "1026"))

	m.fleet.HoldBack(true)
	end()
	m.now = m.now.Add(joinBackoff)
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary, pool-1028 joining, pool-1029 joining")
	s := m.scope()
	if err := m.r.Delete(t.Context(), s.record.Views[0].Primary.Among(s.pods, s.claims)); err != nil {
		t.Fatal(err)
	}
	m.until("0:pool-0, 1:pool-1, pool-1 primary, pool-1029 joining")
}

// TestServersThatAreTold: a server that does not take what it is told is told again soon, however
// often that goes on.
func TestServersThatAreTold(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	m.settle()
	s := m.scope()
	s.authority = &pki.Authority{}
	s.image = ""
	s.volumes = s.volumesToKeep()
	v := s.volumes[0]
	v.actions.Tell = []string{v.view.Backup.UID}
	v.view.Number-- // it has heard of a higher one
	for range 3 {
		after, err := outcome.Result(m.r.tellVolume(t.Context(), s, v))
		if err != nil || after.RequeueAfter != volumeLook {
			t.Errorf("it is told again after %v, %v; want %v", after.RequeueAfter, err, volumeLook)
		}
	}
}

// TestRefusedCopies: a quota that refuses the pods of copies is told, is asked again every 10 s,
// and keeps no volume from being looked at soon.
func TestRefusedCopies(t *testing.T) {
	full, tries := true, 0
	m := newMovingPool(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if strings.HasPrefix(o.GetName(), "pool-10") && full {
			tries++
			return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("exceeded quota"))
		}
		return c.Create(ctx, o, options...)
	}})
	m.copies(2)
	for range 12 { // 6 s
		s, err := m.look()
		after, failed := outcome.Result(err)
		if failed != nil || s.volumesAgain != volumeLook || after.RequeueAfter > outcome.Recheck {
			t.Errorf("a look while pods are refused: %v, again after %v", failed, s.volumesAgain)
		}
		if s.showVolumes(); tries > 0 {
			c := apimeta.FindStatusCondition(s.pool.Status.Conditions, dmv1.ConditionDegraded)
			if c == nil || c.Reason != dmv1.ReasonCopyMissing || !strings.Contains(c.Message, "exceeded quota") {
				t.Errorf("it is shown as %+v", c)
			}
		}
	}
	if tries != 1 {
		t.Errorf("%d pods were tried within 6 s, want 1", tries)
	}
	full = false
	m.now = m.now.Add(joinBackoff)
	m.until(twice)
}

// TestAcceptCopy: where nothing but a copy is left that was cut off, it is kept, and serves once
// somebody asks for that, and not before.
func TestAcceptCopy(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.indexed()
	m.copies(2)
	m.until(twice)
	m.fleet.HoldBack(true) // no other copy gets in sync
	m.away("pool-1024", true)
	s := m.scope()
	alone := s.record.Views[0]
	alone.Number, alone.Backup = alone.Number+1, nil
	s.record.Views[0] = alone // as an operator writes it down that finds the copy away
	if err := m.r.Annotate(t.Context(), s.pool, map[string]string{dmv1.AnnotationVolumes: s.record.String()}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the primary hears of it
		if _, err := m.look(); err != nil {
			t.Fatal(err)
		}
	}
	keptFor := func() string {
		s := m.scope()
		if err := m.r.protect(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == "pool-1024" })
		return s.pods[i].Annotations[dmv1.AnnotationKeptFor]
	}
	if got := keptFor(); got != "" {
		t.Errorf("the copy is kept for %s while the primary is there", got)
	}
	s = m.scope()
	p := s.record.Views[0].Primary.Among(s.pods, s.claims)
	if err := m.r.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := keptFor(); got != "demo" {
		t.Errorf("the copy that is left is kept for %q", got)
	}
	m.away("pool-1024", false)
	for range 10 {
		var err error
		if s, err = m.look(); err != nil {
			t.Fatal(err)
		}
	}
	s.showVolumes()
	c := apimeta.FindStatusCondition(s.pool.Status.Conditions, dmv1.ConditionDegraded)
	if c == nil || c.Reason != dmv1.ReasonCopyMayLack || !strings.Contains(c.Message, dmv1.AnnotationAcceptCopy+"=pool-1024 ") || s.record.Views[0].Primary.Pod != "pool-0" {
		t.Fatalf("nothing else is left: %v, record %s", c, s.record)
	}
	if err := m.r.Annotate(t.Context(), s.pool, map[string]string{dmv1.AnnotationAcceptCopy: "pool-1024"}); err != nil {
		t.Fatal(err)
	}
	m.fleet.HoldBack(false)
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup")
}

// TestAcceptCopyBesideSilence: whoever accepts a copy is told which pods may have more.
func TestAcceptCopyBesideSilence(t *testing.T) {
	v := &volumeScope{reports: map[string]servers.VolumeReport{"u1": {Report: volumes.Report{Role: volumes.Backup}}}}
	told := func() string {
		v.acceptCopy(nil)
		return v.actions.Waiting
	}
	for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, corev1.PodRunning} {
		p := &corev1.Pod{}
		p.Name, p.UID, p.Status.Phase = fmt.Sprint("pool-", 1024+i), types.UID(fmt.Sprint("u", i+1)), phase
		v.copies = append(v.copies, copyOf(p, nil))
		if got := told(); !strings.Contains(got, dmv1.AnnotationAcceptCopy+"=pool-1024 ") || strings.Contains(got, "what pool-1026 may have") != (i == 2) || strings.Contains(got, "pool-1025") {
			t.Errorf("with %d pods: %s", i+1, got)
		}
	}
}

// TestEmptyVolume: where all processes of a volume are there and have nothing, as after a power
// cut, their pods go, so that its indexes hear that it is lost. As long as one is silent none goes.
func TestEmptyVolume(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.copies(2)
	m.until(twice)
	s := m.scope()
	for _, named := range s.record.Views[0].Named() {
		if err := m.fleet.Wipe(named.UID); err != nil {
			t.Fatal(err)
		}
	}
	m.away("pool-1024", true)
	for range 10 {
		if _, err := m.look(); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.state(); !strings.Contains(got, "pool-0 joining") {
		t.Errorf("one is silent: %s", got)
	}
	m.away("pool-1024", false)
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1025 backup")
}
