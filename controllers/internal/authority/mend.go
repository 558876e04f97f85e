package authority

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// mendAuthority reads the certificate authority of owner from its Secret, after it has taken out
// what a clock made that was ahead (authorities).
func mendAuthority(ctx context.Context, b *reconciler.Base, owner client.Object, secret *corev1.Secret) (*pki.Authority, error) {
	present, err := parseAuthority(secret)
	if err != nil {
		return nil, err
	}
	now, written, next := b.Now(), kube.Written(secret, kube.Owner), nextAuthority(secret)
	step := authorityStep{renew: present.Early(now, written)}
	step.takeBack = !step.renew && next != nil && next.Early(now, written)
	if !step.renew && !step.takeBack {
		return present, nil
	}
	var stored authorities
	if json.Unmarshal(secret.Data[build.KeyRotation], &stored) != nil { // somebody broke it
		stored = authorities{Done: owner.GetAnnotations()[dmv1.AnnotationRotateAuthority]}
	}
	step.after = authorities{Done: stored.Done}
	if step.renew && len(secret.Data[build.KeyFormerAuthority]) > 0 {
		step.after.For, step.after.Since = stored.For, now // the new one signs from here on
	}
	mended, err := writeAuthority(ctx, b, owner, secret, step)
	if err != nil {
		return nil, err
	}
	b.Events.Eventf(owner, secret, corev1.EventTypeWarning, dmv1.ReasonRotatedAuthority, "RotateAuthority",
		"a certificate authority in the Secret %s was made by a clock that was ahead, and begins in the future: it was taken out, and what it signed is signed anew", secret.Name)
	return parseAuthority(mended)
}
