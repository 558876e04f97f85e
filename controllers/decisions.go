package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// deletePod deletes a pod for a reason.
func deletePod(ctx context.Context, b *base, p *corev1.Pod, reason string) error {
	if err := b.DeletePrecisely(ctx, p); err != nil {
		return err
	}
	if b.logged.Once(p.UID, "delete") {
		logf.FromContext(ctx).Info("delete pod", "pod", p.Name, "reason", reason)
	}
	return nil
}
