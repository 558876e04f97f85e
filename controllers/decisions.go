package controllers

import (
	"cmp"
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

// uselessBecause says why a pod is deleted that hands over nothing.
func uselessBecause(p *corev1.Pod) string {
	switch {
	case refusedByKubelet(p):
		return "its kubelet refused it: " + p.Status.Reason
	case ended(p):
		return "it ended: " + cmp.Or(p.Status.Reason, string(p.Status.Phase))
	}
	if neverRan(p) {
		return "it never ran, and is not of the current template"
	}
	return "it was made for what the index was before data was lost"
}
