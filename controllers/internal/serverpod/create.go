// Package serverpod makes, changes and deletes the pods of servers, for the pools of memory and of
// compute servers alike: no number is used twice, what a template says is in the pod, and each
// deletion has its reason in the log.
package serverpod

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// Numbers are those that a pool may give to new pods.
type Numbers struct {
	// Next and the numbers after it were never given out.
	Next int
	// Free are those below Next that are free, ascending.
	Free []int
	// Again: Free is complete. Else those that the API server refused in this process are it.
	Again bool
	// Also are annotations that are written with Next.
	Also map[string]string
	// Kept are numbers that come first: what they stand for is there, and they are never passed
	// over.
	Kept []int
	// First makes what a pod needs before it, and nothing that is there; nil = it needs nothing.
	First func(ctx context.Context, id int) error
}

// TellReserved says which labels and annotations of a template the pods do not get. Templates that
// are written now have none: their CRD refuses them.
func TellReserved(b *reconciler.Base, pool client.Object, template *dmv1.PodTemplate) {
	keys := build.ReservedOf(template)
	if len(keys) == 0 || !b.Logged.Once(pool.GetUID(), "reserved "+strings.Join(keys, " ")) {
		return
	}
	b.Events.Eventf(pool, nil, corev1.EventTypeWarning, "TemplateReserved", "CreatePods",
		"the pods are made without %s of spec.pod: labels and annotations of %s/ are the operator's: write another prefix", report.Listed(keys), dmv1.GroupVersion.Group)
}

// Create makes pods with the next numbers. The numbers are taken before the pods are made, so
// that none is ever used twice. Numbers of pods that were refused are tried again first: an attempt
// that is refused every time writes nothing but the first time, so that nothing but the queue's
// backing off says when the next one follows.
func Create(ctx context.Context, b *reconciler.Base, pool client.Object, count int, reason string, from Numbers, made func(id int) (*corev1.Pod, error)) error {
	if count == 0 {
		return nil
	}
	next, ids := from.Next, slices.Clone(from.Kept[:min(count, len(from.Kept))])
	if rest := count - len(ids); from.Again {
		ids = append(ids, b.Spare.Pick(pool.GetUID(), from.Free, rest)...)
	} else {
		ids = append(ids, b.Spare.Take(pool.GetUID(), rest)...)
	}
	fresh := count - len(ids)
	if len(ids) > 0 {
		next = max(next, slices.Max(ids)+1) // the annotation may have been lost
	}
	for id := next; id < next+fresh; id++ {
		ids = append(ids, id)
	}
	back := func(ids []int) {
		if !from.Again { // else they are found to be free
			b.Spare.Put(pool.GetUID(), ids)
		}
	}
	var pods []*corev1.Pod
	for _, id := range ids {
		pod, err := made(id)
		if err != nil { // as where the patch of the template cannot be used
			back(ids[:count-fresh])
			return err
		}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, kube.KindOf(pool))}
		pods = append(pods, pod)
	}
	if fresh > 0 {
		taken := map[string]string{dmv1.AnnotationNextID: strconv.Itoa(next + fresh)}
		maps.Copy(taken, from.Also)
		if err := b.Annotate(ctx, pool, taken); err != nil {
			back(ids[:count-fresh])
			return err
		}
	}
	for i, pod := range pods {
		var err error
		if from.First != nil {
			err = from.First(ctx, ids[i])
		}
		if err == nil {
			err = b.Create(ctx, pod)
		}
		switch {
		case err == nil:
			logf.FromContext(ctx).Info("create pod", "pod", pod.Name, "reason", reason)
		case Refused(err):
			back(ids[i:])
			return err
		case apierrors.IsAlreadyExists(err): // and is not of the pool, or it was made just now
			if !slices.Contains(from.Kept, ids[i]) {
				b.Spare.Avoid(pool.GetUID(), ids[i])
			}
			back(ids[i+1:])
			return err
		default: // this one may be there all the same
			back(ids[i+1:])
			return err
		}
	}
	return nil
}

// Refused reports whether an object that was to be made is not there for certain.
func Refused(err error) bool {
	return patchRefused(err) || kube.Refused(err)
}
