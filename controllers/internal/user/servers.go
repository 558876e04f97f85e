package user

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// computePods are the pods that serve an index and stay.
func (r *Reconciler) computePods(ctx context.Context, s *scope) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := r.List(ctx, list, client.InNamespace(s.key.Namespace),
		client.MatchingLabels{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelIndex: s.key.Name, dmv1.LabelComponent: dmv1.ComponentCompute})
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == dmv1.KindComputePool && !podstate.Going(p) && !podstate.Ended(p) {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return podstate.ID(a) - podstate.ID(b) })
	return pods, nil
}

// lateServers asks the compute servers that are ready which of them have not read the stored file,
// and says of each what may be the matter. One that is not ready reads the newest when it starts.
func (r *Reconciler) lateServers(ctx context.Context, s *scope) ([]string, error) {
	pods, err := r.computePods(ctx, s)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { is, _ := podstate.Ready(p); return !is })
	ca, err := authority.Read(ctx, &r.Base, s.index)
	if err != nil {
		return nil, err
	}
	want := sha256.Sum256([]byte(s.storedACL))
	said := make([]string, len(pods))
	servers.Each(len(pods), func(i int) {
		p := pods[i]
		if !mountsObjects(p) {
			said[i] = fmt.Sprintf("compute pod %s was made by an operator without DMUsers: delete it, and the next one has them", p.Name)
			return
		}
		said[i] = fmt.Sprintf("compute pod %s does not answer", p.Name)
		if ca == nil || p.Status.PodIP == "" {
			return
		}
		c, err := r.Dialer.Compute(servers.TargetOf(p, config.PortRPC, ca))
		if err != nil {
			return
		}
		defer c.Close()
		switch described, err := c.Describe(ctx); {
		case err != nil:
		case string(described.ObjectsAclDigest) == string(want[:]):
			said[i] = ""
		default:
			said[i] = fmt.Sprintf("compute pod %s has not read them yet", p.Name)
		}
	})
	return slices.DeleteFunc(said, func(text string) bool { return text == "" }), nil
}

// mountsObjects reports whether a pod was made by an operator that knows DMUsers.
func mountsObjects(p *corev1.Pod) bool {
	return slices.ContainsFunc(podstate.Container(p).Env, func(e corev1.EnvVar) bool { return e.Name == config.EnvObjectsACL })
}

// tellKubelets tells the kubelets of compute pods that the file changed; without that they would
// notice within a minute or two.
func (r *Reconciler) tellKubelets(ctx context.Context, s *scope, hash string) error {
	pods, err := r.computePods(ctx, s)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.Annotations[dmv1.AnnotationUsers] == hash {
			continue
		}
		if err := r.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationUsers: hash}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
