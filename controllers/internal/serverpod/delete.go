package serverpod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// Delete deletes a pod for a reason.
func Delete(ctx context.Context, b *reconciler.Base, p *corev1.Pod, reason string) error {
	if err := b.DeletePrecisely(ctx, p); err != nil {
		return err
	}
	if b.Logged.Once(p.UID, "delete") {
		logf.FromContext(ctx).Info("delete pod", "pod", p.Name, "reason", reason)
	}
	return nil
}
