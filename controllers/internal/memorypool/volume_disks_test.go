package memorypool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// newDisksPool is a pool whose volumes are on disks, with so many copies of each.
func newDisksPool(t *testing.T, copies int32) *movingPool {
	return newMovingPoolOf(t, interceptor.Funcs{}, func(spec *dmv1.DMMemoryPoolSpec) {
		spec.Persistence, spec.Copies = &dmv1.Persistence{Sync: dmv1.PersistenceAlways}, copies
	})
}

// deletePods deletes pods by force, with their processes.
func (m *movingPool) deletePods(names ...string) {
	m.t.Helper()
	for _, p := range m.scope().pods {
		if slices.Contains(names, p.Name) {
			m.fleet.End(string(p.UID))
			if err := m.r.Delete(m.t.Context(), p); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// claimsOf are the names of the pool's claims.
func (m *movingPool) claimNames() string {
	var names []string
	s := m.scope()
	for _, id := range s.claims.Numbers() {
		names = append(names, s.claims[id].Name)
	}
	return strings.Join(names, " ")
}

// content is the incarnation that the memory server of a pod has.
func (m *movingPool) contentOf(pod string) uint64 {
	m.t.Helper()
	s := m.scope()
	described, _ := serverpod.DescribeMemory(m.t.Context(), &m.r.Base, slices.DeleteFunc(slices.Clone(s.pods), func(p *corev1.Pod) bool { return p.Name != pod }), s.authority)
	for _, d := range described {
		return d.Incarnation
	}
	return 0
}

// TestDisksKeptTwice: where memory is on disks, and twice, all pods may go at once: they come back
// with their claims, the primary of each volume leads with what it had, and the other copy joins
// anew.
func TestDisksKeptTwice(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	before := m.contentOf("pool-0")
	claims := m.claimNames()
	if claims != "pool-0 pool-1 pool-1024 pool-1025" || before == 0 {
		t.Fatalf("claims %s, incarnation %d", claims, before)
	}
	m.settle()
	m.deletePods("pool-0", "pool-1", "pool-1024", "pool-1025")
	m.until(twice)
	m.settle()
	if now := m.contentOf("pool-0"); now != before || m.claimNames() != claims {
		t.Errorf("the primary has incarnation %d, not %d; the claims are %s", now, before, m.claimNames())
	}
	m.deletePods("pool-0")
	m.until("0:pool-1024, 1:pool-1, pool-0 backup, pool-1 primary, pool-1024 primary, pool-1025 backup")
	m.settle()
	if now := m.contentOf("pool-1024"); now != before || m.claimNames() != claims {
		t.Errorf("the other copy has incarnation %d, not %d; the claims are %s", now, before, m.claimNames())
	}
}

// TestDisksGetCopies: a pool on disks gets second copies while it is served, also where its servers
// were told no name, and loses them again, with their claims. A volume moves to another claim.
func TestDisksGetCopies(t *testing.T) {
	m := newDisksPool(t, 1)
	if s, err := m.look(); err != nil || len(s.volumes) > 0 {
		t.Fatalf("of one copy: %v, %v", s.volumes, err)
	}
	before := m.contentOf("pool-0")
	m.copies(2)
	m.until(twice)
	m.settle()
	m.copies(1)
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary")
	if claims := m.claimNames(); claims != "pool-0 pool-1" {
		t.Errorf("with one copy: claims %s", claims)
	}
	m.ask("pool-0")
	m.until("0:pool-1026, 1:pool-1, pool-1 primary, pool-1026 primary")
	m.settle()
	if claims := m.claimNames(); claims != "pool-1 pool-1026" || m.contentOf("pool-1026") != before {
		t.Errorf("after the move: claims %s, incarnation %d, which was %d", claims, m.contentOf("pool-1026"), before)
	}
	m.deletePods("pool-1026")
	m.until("0:pool-1026, 1:pool-1, pool-1 primary, pool-1026 primary")
	if now := m.contentOf("pool-1026"); now != before {
		t.Errorf("the pod that is back has incarnation %d, which was %d", now, before)
	}
}

// TestEmptyDisk: a disk that is empty in the place of that of the only copy loses nothing: neither
// claim nor pod is deleted, and no other one is made.
func TestEmptyDisk(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	m.deletePods("pool-1024", "pool-1025")
	m.copies(1)
	m.settle()
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary")
	for _, p := range m.scope().pods {
		if err := m.fleet.Wipe(string(p.UID)); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		s, err := m.look() // a process without content is told again and again
		if _, failed := outcome.Result(err); failed != nil {
			t.Fatal(failed)
		}
		if v := s.volumes[0]; v.view.Backup != nil || v.view.Primary.Pod != "pool-0" {
			t.Fatalf("view %+v", v.view)
		}
	}
	if got := m.claimNames(); got != "pool-0 pool-1" || !strings.Contains(m.state(), "pool-0 joining") {
		t.Errorf("%s; claims %s", m.state(), got)
	}
}

// TestClaimsThatGo: a claim that somebody deletes is left, and a volume is lost with its claims and
// not before.
func TestClaimsThatGo(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	m.settle()
	lose := func(names ...string) {
		m.deletePods(names...)
		for _, c := range m.scope().claims {
			if slices.Contains(names, c.Name) {
				if err := m.r.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	before := m.contentOf("pool-0")
	lose("pool-0")
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup")
	if now := m.contentOf("pool-1024"); now != before {
		t.Errorf("the other copy has incarnation %d, not %d", now, before)
	}
	m.settle()
	if on := m.scope().volumesOnDisks(); len(on) != 2 {
		t.Errorf("volumes are on disks: %v", on)
	}
	lose("pool-1024", "pool-1026")
	if on := m.scope().volumesOnDisks(); len(on) != 1 || !on[1] {
		t.Errorf("volumes are on disks: %v", on)
	}
}

// TestPodWithoutItsClaim: a pod that waits for a claim which is gone goes, of a volume that has a
// view: another copy takes its place. A claim that the cache does not have is there.
func TestPodWithoutItsClaim(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	s := m.settle()
	c := s.claims[0]
	delete(s.claims, 0)
	if err := m.r.keepDisks(t.Context(), s); err != nil || len(m.scope().pods) != 4 {
		t.Fatalf("pods %v, %v", m.scope().pods, err)
	}
	if err := m.r.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s, err := m.look()
	if _, failed := outcome.Result(err); failed != nil {
		t.Fatal(failed)
	}
	if err := m.r.keepDisks(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.scope().pods {
		if p.Name == "pool-0" {
			t.Errorf("pod %s is there still", p.Name)
		}
	}
	m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup")
}

// TestPrimaryDiskIsWaitedFor: all pods went, and the disk of a primary does not come back. The
// other copy has nothing that counts: it does not lead, and nothing is deleted, until the disk is
// back.
func TestPrimaryDiskIsWaitedFor(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	m.settle()
	before, claims := m.contentOf("pool-0"), m.claimNames()
	m.away("pool-0", true)
	m.deletePods("pool-0", "pool-1024")
	for range 20 { // 10 s
		if s, err := m.look(); err != nil || s.record.Views[0].Primary.Pod != "pool-0" {
			t.Fatalf("%s, %v", s.record, err)
		}
	}
	s := m.scope()
	if got := m.state(); m.claimNames() != claims || !strings.Contains(got, "pool-1024 joining") {
		t.Fatalf("%s, claims %s, record %s", got, m.claimNames(), s.record)
	}
	m.away("pool-0", false)
	m.until(twice)
	if now := m.contentOf("pool-0"); now != before {
		t.Errorf("the primary has incarnation %d, not %d", now, before)
	}
}

// TestDiskOfTheEarlierPrimary: the disk of a primary is empty, so that its server, which was told
// that it has been used, does not open it. Once the other copy serves, the disk may be begun anew.
func TestDiskOfTheEarlierPrimary(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	m.settle()
	m.fleet.HoldBack(true)
	for _, p := range m.scope().pods {
		if p.Name == "pool-0" {
			if err := m.fleet.Wipe(string(p.UID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	used := func(s *scope) (names []string) {
		t.Helper()
		s.recorded = volume.IDs{0: true}
		if err := m.r.keepDisks(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.scope().pods {
			if p.Annotations[dmv1.AnnotationUsed] != "" {
				names = append(names, p.Name)
			}
		}
		return names
	}
	m.until("0:pool-1024, 1:pool-1, pool-0 joining, pool-1 primary, pool-1024 primary, pool-1025 backup")
	s, err := m.look()
	if _, failed := outcome.Result(err); failed != nil || s.record.Views[0].Earlier == nil {
		t.Fatalf("%v, %+v", err, s.record.Views[0])
	}
	reports := s.volumes[0].reports
	s.volumes[0].reports = nil // as long as the other copy is not seen to serve
	if got := used(s); !slices.Equal(got, []string{"pool-0", "pool-1024"}) {
		t.Errorf("before it serves these are told: %v", got)
	}
	s = m.scope()
	s.volumes = []*volumeScope{{number: 0, view: s.record.Views[0], reports: reports}}
	if got := used(s); !slices.Equal(got, []string{"pool-1024"}) {
		t.Errorf("once it serves these are told: %v", got)
	}
}

// TestClaimWithoutLabels: a claim that a view names and that lost its labels counts where servers
// are made: no other one is made in its place.
func TestClaimWithoutLabels(t *testing.T) {
	m := newDisksPool(t, 2)
	m.until(twice)
	m.copies(1)
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary")
	c := m.settle().claims[0]
	c.Labels = nil
	if err := m.r.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s, err := m.look()
	if err != nil {
		t.Fatal(err)
	}
	s.size = 3
	if err := m.r.act(t.Context(), s, "tls"); err != nil {
		t.Fatal(err)
	}
	if got := m.claimNames(); got != "pool-1 pool-2" {
		t.Errorf("claims with labels: %s", got)
	}
}

// TestClaimThatCannotGrow: where a claim cannot become larger it is kept for its indexes all the
// same, and a loss that was accepted is noted.
func TestClaimThatCannotGrow(t *testing.T) {
	hooks := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
		if data, err := patch.Data(o); err == nil && strings.Contains(string(data), `"storage"`) {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("the storage class cannot"))
		}
		return c.Patch(ctx, o, patch, options...)
	}}
	m := newMovingPoolOf(t, hooks, func(spec *dmv1.DMMemoryPoolSpec) {
		spec.Persistence = &dmv1.Persistence{Sync: dmv1.PersistenceAlways}
	})
	for _, c := range m.scope().claims {
		c.Status.Phase = corev1.ClaimBound
		if err := m.r.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	s := m.scope()
	larger := resource.MustParse("1Ti")
	s.pool.Spec.Persistence.Size, s.use.KeptFor = &larger, map[int][]string{0: {"demo"}}
	if err := m.r.keepClaims(t.Context(), s); err == nil || !strings.Contains(err.Error(), "change claim pool-0") {
		t.Errorf("it is not told that the claim cannot grow: %v", err)
	}
	if kept := m.scope().claims[0].Annotations[dmv1.AnnotationKeptFor]; kept != "demo" {
		t.Errorf("the claim is kept for %q", kept)
	}
}

// TestPrimaryDiskIsLost: all pods of a volume went, and the disk of its primary with one of them.
// Once its claim is gone, or somebody says that it is lost, the other copy leads with what its own
// disk has.
func TestPrimaryDiskIsLost(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		m := newDisksPool(t, 2)
		m.until(twice)
		m.settle()
		before := m.contentOf("pool-0")
		m.away("pool-0", true)
		m.deletePods("pool-0", "pool-1024")
		for i := range 10 {
			if s, err := m.look(); err != nil || s.record.Views[0].Primary.Pod != "pool-0" || s.record.Views[0].Backup == nil {
				t.Fatalf("%s, %v", s.record, err)
			} else if i == 0 && accepted {
				if err := m.r.Annotate(t.Context(), s.pool, map[string]string{dmv1.AnnotationAcceptCopy: "pool-1024"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if accepted { // which counts later, and the process of pool-0 has ended then
			m.now = m.now.Add(time.Minute)
			m.until("0:pool-1024, 1:pool-1, pool-0 primary, pool-1 primary, pool-1024 primary, pool-1025 backup")
			m.away("pool-0", false)
			m.until("0:pool-1024, 1:pool-1, pool-0 backup, pool-1 primary, pool-1024 primary, pool-1025 backup")
			if now := m.contentOf("pool-1024"); now != before {
				t.Errorf("accepted, it has incarnation %d, not %d", now, before)
			}
			continue
		}
		m.now = m.now.Add(time.Minute)
		s, err := m.look()
		if err != nil {
			t.Fatal(err)
		}
		s.showVolumes()
		c := apimeta.FindStatusCondition(s.pool.Status.Conditions, dmv1.ConditionDegraded)
		if c == nil || c.Reason != dmv1.ReasonDecisionPending || !strings.Contains(c.Message, "delete the claim and the pod that are lost, or annotate the pool with "+dmv1.AnnotationAcceptCopy+"=pool-1024") {
			t.Fatalf("condition %+v", c)
		}
		m.deletePods("pool-0")
		if err := m.r.Delete(t.Context(), s.claims[0]); err != nil {
			t.Fatal(err)
		}
		m.until("0:pool-1024, 1:pool-1, pool-1 primary, pool-1024 primary, pool-1025 backup, pool-1026 backup")
		if now := m.contentOf("pool-1024"); now != before {
			t.Errorf("the other copy has incarnation %d, not %d", now, before)
		}
	}
}
