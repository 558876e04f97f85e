package authority

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/pkg/identity"
)

// Ensure reads the certificate authority of owner, and makes it if there is none that can
// be used.
func Ensure(ctx context.Context, b *reconciler.Base, owner client.Object, labels map[string]string) (*pki.Authority, error) {
	secret, err := authoritySecret(ctx, b, owner)
	if err != nil {
		return nil, err
	}
	if secret != nil {
		return mendAuthority(ctx, b, owner, secret)
	}
	pair, err := newAuthority(owner, b.Now())
	if err != nil {
		return nil, err
	}
	secret = build.AuthoritySecret(owner.GetName(), owner.GetNamespace(), labels, pair)
	if err := ctrl.SetControllerReference(owner, secret, b.Scheme()); err != nil {
		return nil, err
	}
	// Created, not applied: an authority is never written over.
	if err := b.Create(ctx, secret, kube.Owner); err != nil {
		return nil, err
	}
	return pki.ParseAuthority(pair)
}

// Read is nil if there is none.
func Read(ctx context.Context, b *reconciler.Base, owner client.Object) (*pki.Authority, error) {
	secret, err := authoritySecret(ctx, b, owner)
	if err != nil || secret == nil {
		return nil, err
	}
	return parseAuthority(secret)
}

func pair(s *corev1.Secret) pki.Pair {
	return pki.Pair{Cert: s.Data[identity.CertFile], Key: s.Data[identity.KeyFile]}
}

// ServerTLS makes the TLS Secret of a pool's servers as it should be and returns the hash of its
// content. complete adds what only one kind of server has; before is the Secret that there is, or
// an empty one.
func ServerTLS(ctx context.Context, b *reconciler.Base, owner client.Object, component string, a *pki.Authority, leaf pki.Leaf, trusted []identity.Authority, complete func(secret, before *corev1.Secret) error) (string, error) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.ServerTLSName(owner.GetName()), owner.GetNamespace()
	if err := b.Find(ctx, secret, secret); client.IgnoreNotFound(err) != nil {
		return "", err
	}
	p := pair(secret)
	if a.Review(p, leaf, b.Now(), kube.Written(secret, kube.Owner)) != "" {
		var err error
		if p, err = a.Issue(leaf, b.Now()); err != nil {
			return "", err
		}
	}
	desired, err := build.TLSSecret(owner.GetName(), owner.GetNamespace(), component, p, trusted)
	if err != nil {
		return "", err
	}
	if err := complete(desired, secret); err != nil {
		return "", err
	}
	desired.UID = secret.UID // a Secret that was deleted since does not return with its key
	if err := b.Apply(ctx, owner, desired); err != nil {
		return "", err
	}
	return kube.Hash(desired.Data)
}

// KeptTLS is the hash of the TLS Secret of a pool's servers as it is, and the certificate in it;
// empty if there is none, or it cannot be read.
func KeptTLS(ctx context.Context, b *reconciler.Base, owner client.Object) (hash string, cert []byte) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.ServerTLSName(owner.GetName()), owner.GetNamespace()
	if b.Find(ctx, secret, secret) != nil || !metav1.IsControlledBy(secret, owner) || len(secret.Data) == 0 {
		return "", nil
	}
	hash, err := kube.Hash(secret.Data)
	if err != nil {
		return "", nil
	}
	return hash, secret.Data[identity.CertFile]
}
