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
	"github.com/dmindex/dmindex/controllers/internal/passwords"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/identity"
)

// defaultPasswordGrace is for how long a former password is right where the index says nothing.
const defaultPasswordGrace = time.Hour

// keepPasswords gives compute servers the digests of the passwords that are right, and rotates the
// password when it is asked to (passwords.State).
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
	step := stored.Decide(passwords.View{
		Password: string(conn.Data[build.KeyPassword]),
		Request:  s.index.Annotations[dmv1.AnnotationRotatePassword],
		Grace:    passwordGrace(s.index),
		Now:      r.Now(),
		Known:    func(digests []string) bool { return s.knows(build.DefaultACL(digests)) },
		Create:   rand.Text,
	})
	acl := build.DefaultACL(step.Digests)
	// Programs are told before what was stored is changed: see passwords.State.
	if step.Publish != "" {
		base := conn.DeepCopy()
		conn.Data[build.KeyPassword] = []byte(step.Publish)
		if err := r.Patch(ctx, conn, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), kube.Owner); err != nil {
			return err
		}
	}
	text, err := json.Marshal(step.After)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, s.index, build.AuthSecret(s.index, acl, text)); err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(acl))
	if err := r.renewAuth(ctx, s, hex.EncodeToString(digest[:4])); err != nil {
		return err
	}
	if step.NextLook > 0 {
		s.passwordEnds = r.Now().Add(step.NextLook)
	}
	switch {
	case step.Rotated:
		r.Events.Eventf(s.index, conn, corev1.EventTypeNormal, dmv1.ReasonRotatedPassword, "RotatePassword",
			"the password in the Secret %s is new; the former one is right until %s", conn.Name, r.Now().Add(passwordGrace(s.index)).UTC().Format(time.RFC3339))
	case step.Waits:
		s.passwordWaits = true
		if stored.Next == "" {
			r.Events.Eventf(s.index, conn, corev1.EventTypeNormal, dmv1.ReasonRotatingPassword, "RotatePassword",
				"a new password is given to the compute servers first; the Secret %s has it when all of them know it", conn.Name)
		} else if late := s.withoutACL(acl); r.Logged.Once(s.index.UID, "password "+strings.Join(late, " ")) {
			r.Events.Eventf(s.index, conn, corev1.EventTypeNormal, dmv1.ReasonRotatingPassword, "RotatePassword",
				"waiting for %s to read the new password", report.Listed(late))
		}
	}
	return nil
}

// storedPasswords reads what is known of the passwords. A Secret that somebody broke is begun anew
// with the password that programs have.
func (r *Reconciler) storedPasswords(ctx context.Context, index *dmv1.DMIndex) (p passwords.State, err error) {
	secret := &corev1.Secret{}
	secret.Name, secret.Namespace = build.AuthName(index.Name), index.Namespace
	if err := r.Find(ctx, secret, secret); apierrors.IsNotFound(err) {
		return p, nil
	} else if err != nil {
		return p, err
	}
	if json.Unmarshal(secret.Data[build.KeyPasswords], &p) != nil {
		return passwords.State{}, nil
	}
	return p.Stored(secret, passwordGrace(index), r.Now()), nil
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
