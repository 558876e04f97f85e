package memorypool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/serverstest"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// movingPool is a memory pool with a volume each in pods pool-0 and pool-1.
type movingPool struct {
	t     *testing.T
	fleet *serverstest.Fleet
	r     *Reconciler
	pool  types.NamespacedName
	uids  int
	now   time.Time
	image string // that is wanted
}

func newMovingPool(t *testing.T, hooks interceptor.Funcs) *movingPool {
	return newMovingPoolOf(t, hooks, func(*dmv1.DMMemoryPoolSpec) {})
}

// newMovingPoolOf is a pool with another spec.
func newMovingPoolOf(t *testing.T, hooks interceptor.Funcs, change func(*dmv1.DMMemoryPoolSpec)) *movingPool {
	m := &movingPool{t: t, fleet: serverstest.New(), now: operatortest.Noon, image: "server:1"}
	create := hooks.Create
	hooks.Create = func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		m.uids++
		o.SetUID(types.UID(fmt.Sprint("uid-", m.uids)))
		if create != nil {
			return create(ctx, c, o, options...)
		}
		return c.Create(ctx, o, options...)
	}
	r, pool := poolOf(t, hooks, &m.now)
	r.Dialer, r.Logged, r.watch = m.fleet, report.NewLogged(), newVolumeWatch(m.fleet, func() time.Time { return m.now })
	r.nodes, r.volumeEvents = newNodes(), &volumeEvents{}
	m.r, m.pool = r, client.ObjectKeyFromObject(pool)
	if err := r.Get(t.Context(), m.pool, pool); err != nil {
		t.Fatal(err)
	}
	if change(&pool.Spec); r.Update(t.Context(), pool) != nil {
		t.Fatal("the pool cannot be changed")
	}
	m.restart()
	own, err := pki.NewAuthority("pool", operatortest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseAuthority(own)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(build.MemoryLeaf(pool, true), operatortest.Noon)
	if err != nil {
		t.Fatal(err)
	}
	tls, err := build.TLSSecret(pool.Name, pool.Namespace, dmv1.ComponentMemory, leaf, build.OperatorSpeaks(ca))
	if err != nil {
		t.Fatal(err)
	}
	tls.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, kube.KindOf(pool))}
	if err := r.Create(t.Context(), tls); err != nil {
		t.Fatal(err)
	}
	for id := range 2 {
		if volume.IsPersistent(pool) {
			if err := r.makeClaim(t.Context(), &scope{pool: pool, claims: volume.Disks{}}, id, id); err != nil {
				t.Fatal(err)
			}
		}
		p := build.MemoryPod(pool, id, "server:1")
		if p.Annotations[dmv1.AnnotationTemplate], err = templateOf(pool); err != nil {
			t.Fatal(err)
		}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, kube.KindOf(pool))}
		if err := r.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// restart is another operator, which remembers nothing.
func (m *movingPool) restart() {
	m.r.remembered, m.r.Spare = newRemembered(m.now), reconciler.NewSpareIDs()
}

// scope is what the pool's reconciler gathers.
func (m *movingPool) scope() *scope {
	m.t.Helper()
	s := &scope{pool: &dmv1.DMMemoryPool{}, image: m.image, size: 2, authority: &pki.Authority{}}
	if err := m.r.Get(m.t.Context(), m.pool, s.pool); err != nil {
		m.t.Fatal(err)
	}
	if err := m.r.gatherUse(m.t.Context(), s); err != nil {
		m.t.Fatal(err)
	}
	for _, p := range s.pods { // as kubelets do
		if c := s.claims[podstate.ID(p)]; c != nil {
			m.fleet.Mount(string(p.UID), string(c.UID))
		}
		if p.Status.PodIP == "" {
			p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1"
			if err := m.r.Status().Update(m.t.Context(), p); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	return s
}

// look is one look of the operator at the pool.
func (m *movingPool) look() (*scope, error) {
	m.t.Helper()
	s := m.scope()
	err := m.r.Keep(m.t.Context(), s.pool)
	if err == nil {
		err = m.r.keepVolumes(m.t.Context(), s)
	}
	m.now = m.now.Add(volumeLook)
	return s, err
}

func (m *movingPool) ask(pods string) {
	m.t.Helper()
	pool := &dmv1.DMMemoryPool{}
	if err := m.r.Get(m.t.Context(), m.pool, pool); err != nil {
		m.t.Fatal(err)
	}
	if err := m.r.Annotate(m.t.Context(), pool, map[string]string{dmv1.AnnotationMove: pods}); err != nil {
		m.t.Fatal(err)
	}
}

// state is the pods with what their processes are, and the primaries that the record has.
func (m *movingPool) state() string {
	m.t.Helper()
	return m.stateOf(m.scope())
}

// stateOf is the state with the pods and the record that a look has seen.
func (m *movingPool) stateOf(s *scope) string {
	var list []string
	for _, p := range s.pods {
		list = append(list, p.Name+" "+m.fleet.RoleOf(string(p.UID)))
	}
	for number, v := range s.record.Views {
		list = append(list, fmt.Sprintf("%d:%s", number, v.Primary.Pod))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

const moved = "0:pool-1024, pool-1 none, pool-1024 primary"

// until looks until the state is as wanted.
func (m *movingPool) until(want string) {
	m.t.Helper()
	for range 30 {
		if m.state() == want {
			return
		}
		if _, err := m.look(); err != nil && !errors.Is(err, errCut) {
			m.t.Fatal(err)
		}
	}
	m.t.Errorf("after 30 looks: %s, want %s", m.state(), want)
}

// settle looks until nothing is waited for.
func (m *movingPool) settle() *scope {
	m.t.Helper()
	for range 30 {
		if s, err := m.look(); err != nil {
			m.t.Fatal(err)
		} else if s.volumesAgain == 0 {
			return s
		}
	}
	m.t.Fatal("after 30 looks something is still waited for")
	return nil
}

var errCut = errors.New("the operator is cut off")

// mortal is a dialer of an operator that may be dead.
type mortal struct {
	servers.Dialer
	dead *bool
}

func (d mortal) Volume(t servers.Target) (servers.Volume, error) {
	if *d.dead {
		return nil, errCut
	}
	return d.Dialer.Volume(t)
}

// TestMoveCutOff: an operator that dies at any of its writes leaves a move that the next one
// finishes, with the content that there was. At each write one dies before it is done, and the one
// that does it next dies before it hears of that. A dead one writes nothing more and calls nobody.
// A number that was taken stays unused, and a pod whose creation was cut off may be there beside
// another one: either may get the volume.
func TestMoveCutOff(t *testing.T) {
	another := strings.NewReplacer("1025", "1024", "1026", "1024")
	for at := 1; ; at++ {
		writes, dead := math.MinInt, false // those before the move are not counted
		cut := func(write func() error) error {
			if dead {
				return errCut
			}
			writes++
			if dead = writes == at || writes == at+1; writes == at {
				return errCut
			}
			if err := write(); !dead {
				return err
			}
			return errCut
		}
		m := newMovingPool(t, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				return cut(func() error { return c.Create(ctx, o, options...) })
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				return cut(func() error { return c.Patch(ctx, o, patch, options...) })
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				return cut(func() error { return c.Delete(ctx, o, options...) })
			},
		})
		m.r.Dialer = mortal{m.fleet, &dead}
		m.ask("pool-0")
		writes = 0
		got := ""
		for range 30 {
			s, err := m.look()
			if dead {
				dead = false
				m.restart()
			} else if err != nil {
				t.Fatalf("cut off at write %d: %v", at, err)
			}
			if got = another.Replace(m.stateOf(s)); got == moved {
				break
			}
		}
		if got != moved {
			t.Errorf("cut off at write %d: %s, want %s", at, got, moved)
		}
		if writes < at {
			return
		}
	}
}

// TestMoveBehindTheRecord: pods that a view names get another version each time, so that nobody
// deletes them who looked before; and a pod that changed since it was looked at is not deleted.
func TestMoveBehindTheRecord(t *testing.T) {
	deletes := 0
	var before func()
	m := newMovingPool(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		if deletes++; before != nil {
			before()
			before = nil
		}
		return c.Delete(ctx, o, options...)
	}})
	m.ask("pool-0")
	if _, err := m.look(); err != nil {
		t.Fatal(err)
	}
	mark := func() string {
		pod := &corev1.Pod{}
		if err := m.r.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pool-0"}, pod); err != nil {
			t.Fatal(err)
		}
		return pod.Annotations[annotationNamed]
	}
	first := mark()
	if !strings.HasPrefix(first, "1-") {
		t.Fatalf("pod pool-0 is marked %q in view 1", first)
	}
	s := m.scope()
	s.record, s.image = volume.Record{}, ""
	s.volumes = s.volumesToKeep()
	m.r.askVolumes(t.Context(), s)
	v := s.volumes[0]
	v.view, v.actions.Record = volume.View{}, nil
	v.decide(0, s.pool, s.copies(), v.actions.Memory)
	next, changed := nextRecord(volume.Record{}, s.volumes)
	for range changed {
		// as an operator writes it that read nothing newer
		_ = m.r.recordViews(t.Context(), s, next, changed)
	}
	if len(changed) > 0 && mark() == first {
		t.Errorf("the same view was about to name pod pool-0 again, and its mark is still %s", first)
	}
	before = func() {
		pod := &corev1.Pod{}
		if err := m.r.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pool-0"}, pod); err != nil {
			t.Fatal(err)
		}
		if err := m.r.Annotate(t.Context(), pod, map[string]string{annotationNamed: "9-x"}); err != nil {
			t.Fatal(err)
		}
	}
	m.until(moved)
	if deletes != 2 {
		t.Errorf("%d deletions of a pod that was marked before the first one, want 2", deletes)
	}
}

// TestNoViewWithoutARecord: where the record cannot be made no view is in force, and no server is
// told of one.
func TestNoViewWithoutARecord(t *testing.T) {
	full := true
	m := newMovingPool(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if _, is := o.(*corev1.ConfigMap); is && full {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), o.GetName(), errors.New("exceeded quota"))
		}
		return c.Create(ctx, o, options...)
	}})
	m.ask("pool-0")
	for range 3 {
		if _, err := m.look(); !errors.Is(err, decision.ErrNoRecord) && !strings.Contains(fmt.Sprint(err), "its record") {
			t.Errorf("a look: %v", err)
		}
	}
	if calls := m.fleet.Changes(); len(calls) > 0 {
		t.Errorf("servers were told: %v", calls)
	}
	full = false
	m.until(moved)
}

// TestServersThatCannotMove: what older servers have is left as it is, whatever is asked. Nothing
// is remembered of it once it is not asked any more.
func TestServersThatCannotMove(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.fleet.Older = true
	m.ask("pool-0, pool-1")
	for range 3 {
		if _, err := m.look(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := m.state(), "pool-0 none, pool-1 none"; got != want || len(m.fleet.Changes()) > 0 {
		t.Errorf("%s, calls %v, want %s", got, m.fleet.Changes(), want)
	}
	m.ask("")
	if _, err := m.look(); err != nil || len(m.r.remembered.volumes) > 0 {
		t.Errorf("of a pool without volumes to be kept is remembered: %v, %v", m.r.remembered.volumes, err)
	}
}

// TestMoveThatIsLost: the pod that is to get the volume goes before it has it, or the former one
// after that. Neither loses the volume.
func TestMoveThatIsLost(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	m.fleet.HoldBack(true)
	m.ask("pool-0")
	m.until("0:pool-0, pool-0 primary, pool-1 none, pool-1024 joining")
	pod := &corev1.Pod{}
	if err := m.r.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "pool-1024"}, pod); err != nil {
		t.Fatal(err)
	}
	if err := m.r.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	m.fleet.HoldBack(false)
	m.until(strings.ReplaceAll(moved, "1024", "1025"))
}
