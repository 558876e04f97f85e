package authority

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/identity"
)

// authoritySecret is the Secret with the certificate authorities of owner; nil if there is none.
func authoritySecret(ctx context.Context, b *reconciler.Base, owner client.Object) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.AuthorityName(owner.GetName()), owner.GetNamespace()
	if err := b.Find(ctx, secret, secret); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(secret, owner) {
		return nil, outcome.WaitFor(dmv1.ReasonNameTaken, "Secret "+secret.Name+" is not of "+owner.GetName()+": rename one of them or delete it", 0)
	}
	return secret, nil
}

// parseAuthority reads the authority that signs, and those that are trusted beside it. Of those,
// what cannot be read is left out.
func parseAuthority(secret *corev1.Secret) (*pki.Authority, error) {
	a, err := pki.ParseAuthority(pair(secret))
	if err != nil {
		return nil, err
	}
	if next := nextAuthority(secret); next != nil {
		a.Others = append(a.Others, next.PEM)
	}
	if former := secret.Data[build.KeyFormerAuthority]; len(former) > 0 {
		if _, err := pki.Parse(former); err == nil {
			a.Others = append(a.Others, former)
		}
	}
	return a, nil
}

// nextAuthority is the authority that is to replace the present one; nil if there is none, or it
// cannot be read.
func nextAuthority(secret *corev1.Secret) *pki.Authority {
	a, err := pki.ParseAuthority(pki.Pair{Cert: secret.Data[build.KeyNextAuthority], Key: secret.Data[build.KeyNextAuthorityKey]})
	if err != nil {
		return nil
	}
	return a
}

// Trust is what a server says of authorities.
type Trust struct {
	Pod      *corev1.Pod
	Answered bool
	Trusted  [][]byte // fingerprints
	Signer   []byte   // of its certificate; none = the server does not tell, since it is older
}

// describedTrust is the part of a server's description that concerns authorities.
type describedTrust interface {
	GetTrustedAuthorities() [][]byte
	GetCertificateSigner() []byte
}

// TrustOf is the Trust of a pod's server, if it answered, by its description.
func TrustOf(pod *corev1.Pod, answered bool, d describedTrust) Trust {
	return Trust{pod, answered, d.GetTrustedAuthorities(), d.GetCertificateSigner()}
}

// TrustOfMemory is the Trust of memory pods, by the descriptions of their volumes.
func TrustOfMemory(pods []*corev1.Pod, described map[int]*rpcv1.DescribeMemoryReply) (all []Trust) {
	for _, p := range pods {
		d := described[podstate.VolumeOf(p)]
		all = append(all, TrustOf(p, d != nil, d))
	}
	return all
}

// say is what servers that are ready say of an authority.
func say(all []Trust, knows func(Trust) bool) (s saying) {
	for _, t := range all {
		if is, _ := podstate.Ready(t.Pod); !is || podstate.Going(t.Pod) {
			continue
		}
		switch {
		case t.Answered && len(t.Signer) == 0:
			s.silent = true
		case !t.Answered || !knows(t):
			s.late = append(s.late, t.Pod.Name)
		}
	}
	return s
}

// Keep makes the next step in the replacement of the authority of owner (authorities). It
// returns when to look again; 0 = somebody tells. own are the servers whose certificates it signs;
// others must trust it, too. ca is ca.crt of programs.
func Keep(ctx context.Context, b *reconciler.Base, owner client.Object, v View, own []Trust, others func() ([]Trust, error), ca []byte) (again time.Duration, err error) {
	secret, err := authoritySecret(ctx, b, owner)
	if err != nil || secret == nil {
		return 0, err
	}
	present, err := parseAuthority(secret)
	if err != nil {
		return 0, err
	}
	var stored authorities
	if json.Unmarshal(secret.Data[build.KeyRotation], &stored) != nil { // somebody broke it
		stored = authorities{Done: v.request}
	}
	next := nextAuthority(secret)
	v.now, v.request = b.Now(), owner.GetAnnotations()[dmv1.AnnotationRotateAuthority]
	stored.Since = kube.Stamp(secret, kube.Owner, stored.Since, v.now)
	v.next, v.former, v.expires = next != nil, len(secret.Data[build.KeyFormerAuthority]) > 0, present.NotAfter()
	if v.next {
		more, err := others()
		if err != nil {
			return 0, err
		}
		fingerprint := fingerprintOf(next.PEM)
		v.trusting = say(append(slices.Clone(own), more...), func(t Trust) bool {
			return slices.ContainsFunc(t.Trusted, func(f []byte) bool { return bytes.Equal(f, fingerprint) })
		})
		v.told = bytes.Contains(ca, next.PEM)
	}
	if v.former {
		v.certified = say(own, func(t Trust) bool { return bytes.Equal(t.Signer, present.ID()) })
	}
	step := stored.decide(v)
	if _, err := writeAuthority(ctx, b, owner, secret, step); err != nil {
		return 0, err
	}
	tellAuthority(b, owner, secret, step, v)
	if len(step.waitsFor) > 0 && step.nextLook == 0 {
		return outcome.RequeueSoon, nil
	}
	return step.nextLook, nil
}

// writeAuthority stores a step: the authorities and what is known of them are one Secret. It
// returns the Secret as it is then.
func writeAuthority(ctx context.Context, b *reconciler.Base, owner client.Object, secret *corev1.Secret, step authorityStep) (*corev1.Secret, error) {
	changed := secret.DeepCopy()
	data := changed.Data
	var made pki.Pair
	if step.introduce || step.renew {
		p, err := newAuthority(owner, b.Now())
		if err != nil {
			return nil, err
		}
		made = p
	}
	switch {
	case step.introduce:
		data[build.KeyNextAuthority], data[build.KeyNextAuthorityKey] = made.Cert, made.Key
	case step.renew:
		data[identity.CertFile], data[identity.KeyFile] = made.Cert, made.Key
		delete(data, build.KeyNextAuthority)
		delete(data, build.KeyNextAuthorityKey)
	case step.replace:
		data[build.KeyFormerAuthority] = data[identity.CertFile]
		data[identity.CertFile], data[identity.KeyFile] = data[build.KeyNextAuthority], data[build.KeyNextAuthorityKey]
		delete(data, build.KeyNextAuthority)
		delete(data, build.KeyNextAuthorityKey)
	case step.takeBack:
		delete(data, build.KeyNextAuthority)
		delete(data, build.KeyNextAuthorityKey)
	case step.retire:
		delete(data, build.KeyFormerAuthority)
	}
	if step.after != (authorities{}) || len(data[build.KeyRotation]) > 0 {
		text, err := json.Marshal(step.after)
		if err != nil {
			return nil, err
		}
		data[build.KeyRotation] = text
	}
	if maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return secret, nil
	}
	return changed, b.Patch(ctx, changed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}), kube.Owner)
}

// tellAuthority makes the event of a step.
func tellAuthority(b *reconciler.Base, owner client.Object, secret *corev1.Secret, step authorityStep, v View) {
	tell := func(reason, note string, args ...any) {
		b.Events.Eventf(owner, secret, corev1.EventTypeNormal, reason, "RotateAuthority", note, args...)
	}
	switch {
	case step.introduce:
		tell(dmv1.ReasonRotatingAuthority, "a new certificate authority is made known to servers and programs first; it signs certificates when all servers trust it")
	case step.takeBack:
		tell(dmv1.ReasonRotatingAuthority, "the request for a new certificate authority was taken back")
	case step.replace:
		tell(dmv1.ReasonRotatedAuthority, "certificates are signed by a new authority; the former one is trusted until %s at least", v.now.Add(v.Grace).UTC().Format(time.RFC3339))
	case step.retire:
		tell(dmv1.ReasonRotatedAuthority, "the former certificate authority is not trusted any more")
	case len(step.waitsFor) > 0 && step.nextLook == 0:
		if b.Logged.Once(owner.GetUID(), "authority "+strings.Join(step.waitsFor, " ")) {
			tell(dmv1.ReasonRotatingAuthority, "waiting for %s to read the new certificate authority", report.Listed(step.waitsFor))
		}
	}
}

func newAuthority(owner client.Object, now time.Time) (pki.Pair, error) {
	return pki.NewAuthority("dmindex "+owner.GetNamespace()+"/"+owner.GetName(), now)
}

// fingerprintOf is how servers name an authority that they trust.
func fingerprintOf(cert []byte) []byte {
	c, err := pki.Parse(cert)
	if err != nil {
		return nil
	}
	digest := sha256.Sum256(c.Raw)
	return digest[:]
}
