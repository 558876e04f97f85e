package memorypool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// TestImageIsProven: a server's image is changed only after a probe of the wanted image has ended
// well on the server's node, and probes that nobody waits for are deleted.
func TestImageIsProven(t *testing.T) {
	pods := []podView{
		{id: 0, ready: true, readySince: operatortest.Noon.Add(-time.Hour), image: "b", node: "x"},
		{id: 1, ready: true, readySince: operatortest.Noon.Add(-time.Hour), image: "a", node: "y"},
	}
	f := func(name, image, want string, probes ...imageProbeView) {
		t.Helper()
		a := decide(view{servers: 2, image: image, now: operatortest.Noon, pods: pods, probes: probes})
		if got := fmt.Sprintf("probe %d restart %d drop %v", a.probe, a.restart, a.drop); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	probe := func(change func(*imageProbeView)) imageProbeView {
		p := imageProbeView{id: 1, image: "b", node: "y", made: operatortest.Noon.Add(-time.Hour)}
		change(&p)
		return p
	}
	proven := probe(func(p *imageProbeView) { p.proven = true })
	f("none", "b", "probe 1 restart -1 drop []")
	f("it does not start", "b", "probe -1 restart -1 drop []", probe(func(*imageProbeView) {}))
	f("proven", "b", "probe -1 restart 1 drop []", proven)
	f("proven elsewhere", "b", "probe -1 restart -1 drop [0]", probe(func(p *imageProbeView) { p.proven, p.node = true, "x" }))
	f("another image is proven", "b", "probe -1 restart -1 drop [0]", probe(func(p *imageProbeView) { p.proven, p.image = true, "c" }))
	f("that goes", "b", "probe -1 restart -1 drop []", probe(func(p *imageProbeView) { p.proven, p.image, p.going = true, "c", true }))
	f("it failed just now", "b", "probe -1 restart -1 drop []", probe(func(p *imageProbeView) { p.failed, p.made = true, operatortest.Noon }))
	f("it failed a while ago", "b", "probe -1 restart -1 drop [0]", probe(func(p *imageProbeView) { p.failed = true }))
	f("of a server that has its image, or is gone", "b", "probe -1 restart 1 drop [0 2]",
		probe(func(p *imageProbeView) { p.id, p.node, p.proven = 0, "x", true }), proven, probe(func(p *imageProbeView) { p.id = 7 }))
	f("the other server goes back", "a", "probe 0 restart -1 drop [0]", proven)
	pods[0].image = "a"
	f("all is as before", "a", "probe -1 restart -1 drop [0]", proven)
}

// poolOf is a memory pool of two servers without pods, and its reconciler.
func poolOf(t *testing.T, hooks interceptor.Funcs, now *time.Time) (*Reconciler, *dmv1.DMMemoryPool) {
	t.Helper()
	pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: "ns", UID: "u"}}
	pool.Spec.Servers = 2
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, dmv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).WithStatusSubresource(&corev1.Pod{}).WithInterceptorFuncs(hooks).Build()
	return &Reconciler{Base: reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: c, Live: c}}, Events: &operatortest.LastNote{}, Spare: reconciler.NewSpareIDs(), Now: func() time.Time { return *now }}}, pool
}

// TestProbeThatCannotBeMade: where no probe can be made, lost servers are replaced all the same. A
// probe that the cache does not have is in nobody's way.
func TestProbeThatCannotBeMade(t *testing.T) {
	full, now := false, operatortest.Noon
	r, pool := poolOf(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if full && o.GetLabels()[dmv1.LabelComponent] == dmv1.ComponentProbe {
			return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("exceeded quota"))
		}
		return c.Create(ctx, o, options...)
	}}, &now)
	look := func(image string) (*scope, error) {
		t.Helper()
		s := &scope{pool: pool, image: image, size: 2, recorded: volume.IDs{}}
		if err := r.gatherUse(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for _, p := range s.pods { // the image cannot be had
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: dmv1.ComponentMemory, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
			if err := r.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		return s, r.act(t.Context(), s, "tls")
	}
	if _, err := look("typo"); err != nil {
		t.Fatal(err)
	}
	s, err := look("typo")
	if err != nil || len(s.pods) != 2 {
		t.Fatalf("%d pods: %v", len(s.pods), err)
	}
	if err := r.Delete(t.Context(), s.pods[1]); err != nil {
		t.Fatal(err)
	}
	full = true
	if _, err := look("good"); !apierrors.IsForbidden(err) {
		t.Errorf("the probe: %v", err)
	}
	full = false
	for range 2 { // the second time as a cache that is behind has it
		if s, err = look("good"); err != nil || len(s.pods) != 2 {
			t.Errorf("%d pods: %v", len(s.pods), err)
		}
		s.probes = nil
		if err := r.act(t.Context(), s, "tls"); err != nil {
			t.Errorf("a probe that is there: %v", err)
		}
	}
	if s, _ = look("good"); len(s.probes) != 1 {
		t.Errorf("%d probes", len(s.probes))
	}
}

// TestIdleServers: a server whose container runs and serves nothing gets the wanted image without
// its turn, after those that do not run; one whose node is not heard of does not.
func TestIdleServers(t *testing.T) {
	is := func(change func(*corev1.Pod)) bool {
		p := &corev1.Pod{}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(operatortest.Noon.Add(-time.Hour))},
			{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(operatortest.Noon.Add(-time.Hour))},
		}
		change(p)
		return podstate.Idle(p, operatortest.Noon)
	}
	if !is(func(*corev1.Pod) {}) ||
		is(func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionTrue }) ||
		is(func(p *corev1.Pod) {
			p.Status.Conditions[1].LastTransitionTime = metav1.NewTime(operatortest.Noon.Add(-podstate.RestartLimit))
		}) ||
		is(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }) {
		t.Error("who is idle")
	}
	pods := []podView{{id: 0, image: "b", idle: true, node: "x"}, {id: 1, image: "a", ready: true, readySince: operatortest.Noon, node: "y"}}
	if a := decide(view{servers: 2, image: "a", now: operatortest.Noon, pods: pods}); a.probe != 0 {
		t.Errorf("back to the former image: probe %d", a.probe)
	}
	if a := decide(view{servers: 2, image: "b", now: operatortest.Noon, pods: pods}); a.probe != -1 {
		t.Errorf("the new image does not serve: probe %d", a.probe)
	}
	pods[1] = podView{id: 1, image: "b", stuck: true, node: "y"}
	if a := decide(view{servers: 2, image: "a", now: operatortest.Noon, pods: pods}); a.probe != 1 {
		t.Errorf("one does not run: probe %d", a.probe)
	}
}

// TestImageOfNewServers: a new server has the wanted image if one of that is ready, or none is.
func TestImageOfNewServers(t *testing.T) {
	f := func(want string, images ...string) {
		t.Helper()
		s := &scope{pool: &dmv1.DMMemoryPool{}, image: "b"}
		for _, image := range images {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{dmv1.AnnotationImage: strings.TrimSuffix(image, "?")}}}
			p.Spec.Containers = make([]corev1.Container, 1)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if strings.HasSuffix(image, "?") {
				p.Status.Conditions = nil
			}
			s.pods = append(s.pods, p)
		}
		if got := s.imageOfNew(); got != want {
			t.Errorf("%v: %s, want %s", images, got, want)
		}
	}
	f("b")
	f("a", "a", "a", "b?")
	f("b", "a", "b", "a")
	f("b", "a?")
}

// TestProbeProblems: the status tells of a probe that does not end, and of credentials that a
// running server cannot have.
func TestProbeProblems(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-0", Annotations: map[string]string{dmv1.AnnotationImage: "i"}}}
	p.Spec.Containers = []corev1.Container{{Name: dmv1.ComponentProbe}}
	p.Labels = map[string]string{dmv1.LabelComponent: dmv1.ComponentProbe}
	pool := &dmv1.DMMemoryPool{}
	pool.Spec.Pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "new"}}
	f := func(state corev1.ContainerState, want string) {
		t.Helper()
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: dmv1.ComponentProbe, State: state}}
		s := &scope{pool: pool, image: "i", looked: operatortest.Noon, probes: []*corev1.Pod{p}}
		if got := s.imageProblem(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(operatortest.Noon.Add(-time.Minute))}}, "does not end: is i an image of dmindex?")
	f(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(operatortest.Noon)}}, "")
	f(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}, "without new: add its credentials")
}

// TestImageThatIsRewritten: where a webhook writes a mirror into pods, when they are made or
// whenever they are written, an image reaches all servers, each once, and settled pools stay.
func TestImageThatIsRewritten(t *testing.T) {
	mirror := func(image string) string {
		if strings.HasPrefix(image, "mirror/") {
			return image
		}
		return "mirror/" + image
	}
	twice := func(image string) string { return "mirror/" + image }
	same := func(image string) string { return image }
	for name, change := range map[string]func(string) string{"only new pods": same, "all writes": mirror, "all writes, whatever they have": twice} {
		ctx := t.Context()
		hooks := interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if p, is := o.(*corev1.Pod); is {
					podstate.Container(p).Image = mirror(podstate.Container(p).Image)
				}
				return c.Create(ctx, o, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				p, is := o.(*corev1.Pod)
				if is {
					was := &corev1.Pod{}
					if err := c.Get(ctx, client.ObjectKeyFromObject(o), was); err != nil {
						return err
					}
					if podstate.Container(p).Image != podstate.Container(was).Image || name == "all writes" {
						podstate.Container(p).Image = change(podstate.Container(p).Image)
					}
				}
				return c.Patch(ctx, o, patch, options...)
			},
		}
		now := operatortest.Noon
		r, pool := poolOf(t, hooks, &now)
		patched := 0
		look := func(image string) (s *scope) {
			s = &scope{pool: pool, image: image, size: 2, recorded: volume.IDs{}}
			if err := r.gatherUse(ctx, s); err != nil {
				t.Fatal(err)
			}
			for _, p := range slices.Concat(s.pods, s.probes) { // as kubelets do
				p.Spec.NodeName = cmp.Or(p.Spec.NodeName, "node-"+p.Name)
				status := corev1.ContainerStatus{Name: podstate.Container(p).Name}
				if p.Labels[dmv1.LabelComponent] == dmv1.ComponentProbe {
					status.State.Terminated = &corev1.ContainerStateTerminated{}
				}
				p.Status.ContainerStatuses = []corev1.ContainerStatus{status}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}
				now = now.Add(time.Second)
			}
			before := s.view(now)
			if err := r.act(ctx, s, "tls"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if decide(before).restart >= 0 {
				patched++
			}
			return s
		}
		for _, image := range []string{"a", "b"} {
			for range 12 {
				look(image)
			}
			s := look(image)
			for _, p := range s.pods {
				if got := podstate.Container(p).Image; got != "mirror/"+image {
					t.Errorf("%s: server %s has image %s, want that of %s", name, p.Name, got, image)
				}
			}
			if want := map[string]int{"a": 0, "b": 2}[image]; len(s.pods) != 2 || len(s.probes) != 0 || patched != want {
				t.Errorf("%s: %d servers, %d probes, %d changes of image to %s, want %d", name, len(s.pods), len(s.probes), patched, image, want)
			}
		}
	}
}

// TestImageProblem: the status names the image that was asked for, and what the kubelet says.
func TestImageProblem(t *testing.T) {
	f := func(component, container, reason, want string) {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{dmv1.LabelComponent: component}, Annotations: map[string]string{dmv1.AnnotationImage: "asked"}}}
		p.Spec.NodeName, p.Spec.Containers = "n", []corev1.Container{{Name: component, Image: "mirror/asked"}}
		status := corev1.ContainerStatus{Name: container, Image: "as it is"}
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: "told"}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{status}
		if got := podstate.ImageProblem(p); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	const on = "pod p on node n does not start with image "
	f("memory", "memory", "ErrImagePull", on+"asked: ErrImagePull: told")
	f("memory", "memory", "InvalidImageName", on+"asked: InvalidImageName: told")
	f("compute", "istio-init", "ImagePullBackOff", on+"as it is: ImagePullBackOff: told")
	f("memory", "memory", "CrashLoopBackOff", "")
	f("memory", "memory", "ContainerCreating", "")
}
