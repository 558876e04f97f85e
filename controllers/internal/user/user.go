// Package user makes DMUsers true: users of an index with rights and passwords, as objects.
//
// All DMUsers of an index become one ACL file, in the Secret <index>-dmusers. Compute servers mount
// it beside the file that whoever administers the index writes, and a name that is in both is the
// user of the latter. So the unit of work is an index with all of its users: one writer of the
// file, whose order and content follow from the objects. No finalizer is needed: a DMUser that is
// gone is not in the next file.
//
// Each pass gathers, decides (pure, decide) and acts. Where a user cannot be served, the others
// are, and its conditions say why. How passwords change is package passwords: servers know a
// password before the Secret <name>-user has it, so that Secret never has one that is refused.
//
// What a DMUser must not do, whoever wrote it:
//   - change what the administrator's file says of a user;
//   - make rules or users of more than its fields say (build.UserRules);
//   - take the name or the password of a DMUser that is older;
//   - read a Secret that was not given to it: one of spec.passwordSecret needs LabelPasswordOf, and
//     the operator's own Secrets are refused;
//   - keep other users out: the older ones are served first, within mostUsers and mostBytes.
package user

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// +kubebuilder:rbac:groups=dmindex.io,resources=dmusers,verbs=get;list;watch
// +kubebuilder:rbac:groups=dmindex.io,resources=dmusers/finalizers,verbs=update
// +kubebuilder:rbac:groups=dmindex.io,resources=dmusers/status,verbs=patch

// Reconciler reconciles all DMUsers of an index. A request names the index, which may not exist.
type Reconciler struct{ reconciler.Base }

// Reconcile makes the users of one index true.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := r.gather(ctx, request.NamespacedName)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	if s.conn != nil {
		s.decide()
		if s.pending() && s.acl == s.storedACL {
			if s.late, err = r.lateServers(ctx, s); err != nil {
				return ctrl.Result{}, err
			}
			if s.known = len(s.late) == 0; s.known {
				s.decide()
			}
		}
		r.publish(ctx, s)
		err = r.store(ctx, s)
	}
	failed := outcome.List{}
	failed.Add(err)
	for i := range s.users {
		u := &s.users[i]
		before := u.object.Status.DeepCopy()
		s.summarize(u, err)
		failed.Add(kube.ApplyStatus(ctx, &r.Writer, u.object, before, &u.object.Status))
	}
	if err := failed.Err(); err != nil {
		return outcome.Result(err)
	}
	return ctrl.Result{RequeueAfter: s.next()}, nil
}

// publish gives programs the passwords that servers know. A user whose Secret cannot be written
// stays where it was, and is tried again.
func (r *Reconciler) publish(ctx context.Context, s *scope) {
	for i := range s.users {
		u := &s.users[i]
		password := u.step.Publish
		if password == "" {
			password = u.password
		}
		if u.refusal != nil || u.trouble != nil || password == "" {
			continue
		}
		secret := build.UserSecret(u.object, s.conn, password)
		secret.UID = u.secretUID // one that was deleted since does not return with its password
		if err := r.Apply(ctx, u.object, secret); err != nil {
			reason, message := outcome.ExplainOne(err)
			u.trouble = outcome.WaitFor(reason, message, outcome.RequeueSoon)
			if u.step.Publish != "" {
				u.record.Passwords = u.stored.Passwords
			}
			continue
		}
		if u.step.Publish == "" {
			continue
		}
		u.password = password
		if u.stored.Passwords.Current != "" {
			until := r.Now().Add(grace(u.object)).UTC().Format(time.RFC3339)
			r.Events.Eventf(u.object, secret, corev1.EventTypeNormal, dmv1.ReasonRotatedPassword, "RotatePassword",
				"the password in the Secret %s is new; the former one is right until %s", secret.Name, until)
		}
	}
}

// store writes the file that servers read, and what is known of the passwords, behind what programs
// have: see passwords.State. It tells the kubelets of a new file.
func (r *Reconciler) store(ctx context.Context, s *scope) error {
	records := map[string]record{}
	for i := range s.users {
		if u := &s.users[i]; u.record.Passwords.Current != "" || u.record.Passwords.Next != "" {
			records[string(u.object.UID)] = u.record
		}
	}
	state, err := json.Marshal(records)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, s.index, build.ObjectsSecret(s.index, s.acl, state)); err != nil {
		return err
	}
	hash := sha256.Sum256([]byte(s.acl))
	return r.tellKubelets(ctx, s, hex.EncodeToString(hash[:4]))
}
