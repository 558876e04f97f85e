package serverpod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// RenewTLS tells the kubelets of pods that their TLS Secret changed; without that they would notice
// within a minute or two.
func RenewTLS(ctx context.Context, b *reconciler.Base, pods []*corev1.Pod, hash string) error {
	for _, p := range pods {
		if podstate.Going(p) || p.Annotations[dmv1.AnnotationTLS] == hash {
			continue
		}
		if err := b.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationTLS: hash}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
