package controllers

import (
	"context"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/profile"
)

// createPods makes pods with the next numbers. The numbers are taken before the pods are made, so
// that none is ever used twice. Numbers of pods that were refused are tried again first: an attempt
// that is refused every time writes nothing but the first time, so that nothing but the queue's
// backing off says when the next one follows.
func (b *base) createPods(ctx context.Context, pool client.Object, count int, reason string, next int, build func(id int) (*corev1.Pod, error)) error {
	if count == 0 {
		return nil
	}
	ids := b.spare.take(pool.GetUID(), count)
	fresh := count - len(ids)
	if len(ids) > 0 {
		next = max(next, ids[len(ids)-1]+1) // the annotation may have been lost
	}
	for id := next; id < next+fresh; id++ {
		ids = append(ids, id)
	}
	var pods []*corev1.Pod
	for _, id := range ids {
		pod, err := build(id)
		if err != nil {
			b.spare.put(pool.GetUID(), ids[:count-fresh])
			return err
		}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, kindOf(pool))}
		b.letProfile(pod)
		pods = append(pods, pod)
	}
	if fresh > 0 {
		if err := b.Annotate(ctx, pool, map[string]string{dmv1.AnnotationNextID: strconv.Itoa(next + fresh)}); err != nil {
			b.spare.put(pool.GetUID(), ids[:count-fresh])
			return err
		}
	}
	for i, pod := range pods {
		err := b.Create(ctx, pod)
		switch {
		case err == nil:
			logf.FromContext(ctx).Info("create pod", "pod", pod.Name, "reason", reason)
		case refused(err):
			b.spare.put(pool.GetUID(), ids[i:])
			return err
		default: // this one may be there all the same
			b.spare.put(pool.GetUID(), ids[i+1:])
			return err
		}
	}
	return nil
}

// refused reports whether an object that was to be made is not there for certain.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// spareIDs are numbers that pools took for pods that were never made. An operator that starts knows
// none: then they stay unused.
type spareIDs struct {
	mu    sync.Mutex
	pools map[types.UID][]int
}

func newSpareIDs() *spareIDs { return &spareIDs{pools: map[types.UID][]int{}} }

// take takes up to n numbers of a pool, the lowest ones.
func (s *spareIDs) take(pool types.UID, n int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.pools[pool]
	n = min(n, len(has))
	taken := slices.Clone(has[:n])
	if has = has[n:]; len(has) > 0 {
		s.pools[pool] = has
	} else {
		delete(s.pools, pool)
	}
	return taken
}

// put gives numbers back.
func (s *spareIDs) put(pool types.UID, ids []int) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools[pool] = append(s.pools[pool], ids...)
	slices.Sort(s.pools[pool])
}

// letProfile lets the server of a new pod serve profiles, if the operator does. Pods that there are
// stay as they are: nobody is moved for a look at it.
func (b *base) letProfile(pod *corev1.Pod) {
	if c := container(pod); b.pprof {
		c.Env = append(c.Env, corev1.EnvVar{Name: profile.Env, Value: "true"})
	}
}
