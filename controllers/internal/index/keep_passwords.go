package index

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/identity"
)

// defaultPasswordGrace is for how long a former password is right where the index says nothing.
const defaultPasswordGrace = time.Hour

// keepPasswords gives compute servers the digests of the passwords that are right, and rotates the
// password when it is asked to (passwords).
func (r *Reconciler) keepPasswords(ctx context.Context, s *scope) error {
	conn := &corev1.Secret{}
	conn.Name, conn.Namespace = build.ConnectionName(s.index.Name), s.index.Namespace
	if err := r.Find(ctx, conn, conn); err != nil {
		return client.IgnoreNotFound(err) // issueSecrets says why
	}
	if identity.TrimPassword(string(conn.Data[build.KeyPassword])) == "" {
		return nil // issueSecrets makes another one
	}
	stored, err := r.storedPasswords(ctx, s.index)
	if err != nil {
		return err
	}
	step := stored.decide(passwordsView{
		password: string(conn.Data[build.KeyPassword]),
		request:  s.index.Annotations[dmv1.AnnotationRotatePassword],
		grace:    passwordGrace(s.index),
		now:      r.Now(),
		known:    s.knows,
		create:   rand.Text,
	})
	// Programs are told before what was stored is changed: see passwords.
	if step.publish != "" {
		base := conn.DeepCopy()
		conn.Data[build.KeyPassword] = []byte(step.publish)
		if err := r.Patch(ctx, conn, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
			return err
		}
	}
	text, err := json.Marshal(step.after)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, s.index, build.AuthSecret(s.index, step.acl, text)); err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(step.acl))
	if err := r.renewAuth(ctx, s, hex.EncodeToString(digest[:4])); err != nil {
		return err
	}
	if step.nextLook > 0 {
		s.passwordEnds = r.Now().Add(step.nextLook)
	}
	switch {
	case step.rotated:
		r.Events.Eventf(s.index, conn, corev1.EventTypeNormal, dmv1.ReasonRotatedPassword, "RotatePassword",
			"the password in the Secret %s is new; the former one is right until %s", conn.Name, r.Now().Add(passwordGrace(s.index)).UTC().Format(time.RFC3339))
	case step.waits:
		s.passwordWaits = true
		if stored.Next == "" {
			r.Events.Eventf(s.index, conn, corev1.EventTypeNormal, dmv1.ReasonRotatingPassword, "RotatePassword",
				"a new password is given to the compute servers first; the Secret %s has it when all of them know it", conn.Name)
		} else if late := s.withoutACL(step.acl); r.Logged.Once(s.index.UID, "password "+strings.Join(late, " ")) {
			r.Events.Eventf(s.index, conn, corev1.EventTypeNormal, dmv1.ReasonRotatingPassword, "RotatePassword",
				"waiting for %s to read the new password", report.Listed(late))
		}
	}
	return nil
}

// storedPasswords reads what is known of the passwords. A Secret that somebody broke is begun anew
// with the password that programs have. No former password is right for longer than the grace from
// when it was stored, whatever the clock said then.
func (r *Reconciler) storedPasswords(ctx context.Context, index *dmv1.DMIndex) (p passwords, err error) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.AuthName(index.Name), index.Namespace
	if err := r.Find(ctx, secret, secret); apierrors.IsNotFound(err) {
		return p, nil
	} else if err != nil {
		return p, err
	}
	if json.Unmarshal(secret.Data[build.KeyPasswords], &p) != nil {
		return passwords{}, nil
	}
	grace := passwordGrace(index)
	for i, f := range p.Former {
		p.Former[i].Until = kube.Stamp(secret, kube.Owner, f.Until.Add(-grace), r.Now()).Add(grace)
	}
	return p, nil
}

// knows reports whether all compute pods that are ready said that they read this ACL file. Where
// the pods could not be looked at, nobody knows.
func (s *scope) knows(acl string) bool { return s.computeSeen && len(s.withoutACL(acl)) == 0 }

// withoutACL are the compute pods that are ready and did not say that they read this ACL file.
func (s *scope) withoutACL(acl string) (names []string) {
	want := sha256.Sum256([]byte(acl))
	for i := range s.compute {
		c := &s.compute[i]
		if is, _ := podstate.Ready(c.pod); !is || podstate.Going(c.pod) {
			continue
		}
		if c.described == nil || string(c.described.AclDigest) != string(want[:]) {
			names = append(names, c.pod.Name)
		}
	}
	return names
}

// renewAuth tells the kubelets of compute pods that a Secret changed, as serverpod.RenewTLS does.
func (r *Reconciler) renewAuth(ctx context.Context, s *scope, hash string) error {
	for i := range s.compute {
		p := s.compute[i].pod
		if podstate.Going(p) || p.Annotations[dmv1.AnnotationAuth] == hash {
			continue
		}
		if err := r.Annotate(ctx, p.DeepCopy(), map[string]string{dmv1.AnnotationAuth: hash}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotate pod %s: %w", p.Name, err)
		}
	}
	return nil
}

func passwordGrace(index *dmv1.DMIndex) time.Duration {
	if seconds := index.Spec.Security.PasswordGraceSeconds; seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return defaultPasswordGrace
}
