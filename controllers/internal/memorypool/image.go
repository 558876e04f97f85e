package memorypool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// A memory server has the only copy of its data, and its image is changed in place: from then on
// its container runs with the new image or not at all. So nothing is written into its pod before a
// probe, a pod of its own on the same node, has run the image to its end:
//
//	no probe -> probe is made -> its program ended well -> the pod is changed -> probe is deleted
//	                          -> it does not start       -> told, and nothing is changed
//
// Each server has its own: nodes have credentials, mirrors and architectures of their own, and the
// node has the image when the server starts. A probe for another image than the wanted one is
// deleted, so a mistyped image that is put right, or back, has no further effect.
//
// Which image a pod has is what was asked for when it was written (AnnotationImage). What stands in
// the pod is up to admission webhooks, which may write the name of a mirror: it would never be the
// wanted one.

// imageProbeView is a probe as decide sees it.
type imageProbeView struct {
	id     int    // of the server that it is for
	image  string // that was asked for
	node   string
	going  bool // is being deleted
	proven bool // its program ended well
	failed bool // it ended otherwise, and will not run again
	made   time.Time
}

// probeAgain is when a probe that failed is followed by another one. One whose image cannot be had
// does not fail: its kubelet goes on trying.
const probeAgain = time.Minute

// probeRuns is how long a probe's program may run before that is told: the one of dmindex ends at
// once.
const probeRuns = 30 * time.Second

// prove lets a restart through once its image is proven on the server's node, and else has that
// done. Probes that nobody waits for are dropped.
func (a *actions) prove(v view) {
	a.probe = a.restart
	proven := false
	for i, p := range v.probes {
		at := slices.IndexFunc(v.pods, func(s podView) bool { return s.id == p.id })
		useless := p.id != a.restart || p.image != v.image || p.node != v.pods[at].node || p.failed && v.now.Sub(p.made) > probeAgain
		if useless && !p.going {
			a.drop = append(a.drop, i)
		}
		if p.id == a.restart {
			a.probe = -1 // its name is free when it is gone
			proven = p.proven && !p.going && !useless
		}
	}
	if !proven {
		a.restart = -1
	}
}

// imageProbe is a probe pod as it is decided upon.
func imageProbe(p *corev1.Pod) imageProbeView {
	v := imageProbeView{id: podstate.ID(p), image: podstate.Asked(p), node: p.Spec.NodeName, going: podstate.Going(p), failed: podstate.Ended(p), made: p.CreationTimestamp.Time}
	if s := podstate.ContainerStatus(p); s != nil && s.State.Terminated != nil {
		v.proven = s.State.Terminated.ExitCode == 0
		v.failed = !v.proven
	}
	return v
}

// keepProbes makes and deletes probes as decided.
func (r *Reconciler) keepProbes(ctx context.Context, s *scope, a actions) error {
	for _, i := range a.drop {
		if err := r.DeletePrecisely(ctx, s.probes[i]); err != nil {
			return err
		}
	}
	for _, p := range s.pods {
		if podstate.ID(p) != a.probe {
			continue
		}
		probe := build.ImageProbe(s.pool, p, a.probe, s.image)
		probe.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.pool, kube.KindOf(s.pool))}
		serverpod.AsUser(&r.Base, &probe.Spec)
		switch err := r.Create(ctx, probe); {
		case apierrors.IsAlreadyExists(err):
			there := &corev1.Pod{}
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(probe), there); err == nil && metav1.IsControlledBy(there, s.pool) {
				return nil // the cache does not have it yet, or has it still
			}
			return outcome.WaitFor(dmv1.ReasonNameTaken, fmt.Sprintf("pod %s exists: unless it goes by itself, delete it, so that a pod can look whether node %s has image %s", probe.Name, p.Spec.NodeName, s.image), outcome.RequeueSoon)
		case err != nil:
			return fmt.Errorf("make pod %s, which looks whether node %s has image %s: %w", probe.Name, p.Spec.NodeName, s.image, err)
		}
		logf.FromContext(ctx).Info("probe image", "pod", probe.Name, "node", p.Spec.NodeName, "image", s.image)
	}
	return nil
}

// restart changes the image of a server in place: its container starts anew in the same pod and
// finds its region again.
func (r *Reconciler) restart(ctx context.Context, s *scope, p *corev1.Pod, reason string) error {
	proven := s.image
	for _, probe := range s.probes {
		if podstate.ID(probe) == podstate.ID(p) {
			proven = podstate.Container(probe).Image
		}
	}
	image, err := r.imageToWrite(ctx, p, s.image, proven)
	if err != nil {
		return err
	}
	changed := withImage(&r.Base, p, image, s.image, proven != podstate.Container(p).Image)
	r.Events.Eventf(s.pool, p, corev1.EventTypeNormal, "MemoryServerRestarting", "ChangeImage", "pod %s restarts in place with image %s", p.Name, s.image)
	if err := r.Patch(ctx, changed, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
		return err
	}
	logf.FromContext(ctx).Info("restart pod in place", "pod", p.Name, "image", s.image, "reason", reason)
	return nil
}

// withImage is a pod with an image, which was asked for, perhaps by another name.
func withImage(b *reconciler.Base, p *corev1.Pod, image, asked string, restarts bool) *corev1.Pod {
	changed := p.DeepCopy()
	podstate.Container(changed).Image = image
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	if restarts {
		changed.Annotations[annotationRestarted] = b.Now().UTC().Format(time.RFC3339)
	}
	changed.Annotations[dmv1.AnnotationImage] = asked
	return changed
}

// imageToWrite is the image that is to be written into a pod so that the pod has the proven one
// afterwards, which is the one that admission made of the wanted one in the probe. A webhook may
// look at changes of pods as well, or only at new ones: the API server is asked what it would make
// of either name.
func (r *Reconciler) imageToWrite(ctx context.Context, p *corev1.Pod, wanted, proven string) (string, error) {
	if proven == wanted {
		return wanted, nil
	}
	for _, image := range []string{wanted, proven} {
		dry := withImage(&r.Base, p, image, wanted, true)
		if err := r.Patch(ctx, dry, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}), kube.Owner, client.DryRunAll); err != nil {
			return "", fmt.Errorf("see what the API server makes of image %s in pod %s: %w", image, p.Name, err)
		}
		if podstate.Container(dry).Image == proven {
			return image, nil
		}
	}
	return "", outcome.WaitFor(dmv1.ReasonImageUnavailable, fmt.Sprintf("image %s was proven as %s, and admission writes another one into pod %s when it is changed: "+
		"let the webhook that rewrites images do the same to new and to changed pods", wanted, proven, p.Name), outcome.Recheck)
}

// imageProblem says why the image that is wanted is not proven; empty if nothing is in its way.
func (s *scope) imageProblem() string {
	for _, p := range s.probes {
		if podstate.Asked(p) != s.image || podstate.Going(p) {
			continue
		}
		if text := podstate.ImageProblem(p); text != "" {
			for _, of := range s.pool.Spec.Pod.ImagePullSecrets {
				if !slices.Contains(p.Spec.ImagePullSecrets, of) {
					text += fmt.Sprintf(" (running servers keep the pull secrets that they were made with, without %s: add its credentials to those)", of.Name)
				}
			}
			return text + "; the servers go on with the image that they have"
		}
		v := imageProbe(p)
		if c := podstate.ContainerStatus(p); c != nil && c.State.Running != nil && s.looked.Sub(c.State.Running.StartedAt.Time) > probeRuns {
			return fmt.Sprintf("pod %s on node %s does not end: is %s an image of dmindex? The servers go on with the image that they have", p.Name, v.node, s.image)
		} else if v.failed && c != nil && c.State.Terminated != nil {
			return fmt.Sprintf("pod %s on node %s ended with code %d (%s): is %s an image of dmindex?", p.Name, v.node, c.State.Terminated.ExitCode, c.State.Terminated.Reason, s.image)
		} else if v.failed {
			return fmt.Sprintf("pod %s, which looks whether node %s has image %s, failed: %s %s; another one follows", p.Name, v.node, s.image, p.Status.Reason, p.Status.Message)
		}
	}
	return podstate.ImageProblem(s.pods...)
}

// imageOfNew is the image that a new server gets: the wanted one, unless servers are ready and none
// with that. Then it gets one that runs, and later the wanted one, as the others do.
func (s *scope) imageOfNew() string {
	runs := ""
	for _, p := range s.pods {
		if is, _ := podstate.Ready(p); is && !podstate.Going(p) && runs != s.image {
			runs = podstate.Asked(p)
		}
	}
	if s.pool.Spec.Paused {
		return s.image
	}
	return cmp.Or(runs, s.image)
}

// outdated is how many servers that are to go on have another image than the wanted one.
func (s *scope) outdated() (n int) {
	for _, p := range s.pods {
		if !podstate.Going(p) && !podstate.Ended(p) && s.image != "" && podstate.Asked(p) != s.image {
			n++
		}
	}
	return n
}
