package user

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/pkg/identity"
)

// gather reads all that concerns the users of an index; nil = there is nothing to do.
func (r *Reconciler) gather(ctx context.Context, key types.NamespacedName) (*scope, error) {
	s := &scope{key: key, now: r.Now()}
	list := &dmv1.DMUserList{}
	if err := r.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Spec.Index == key.Name && o.DeletionTimestamp.IsZero() {
			s.users = append(s.users, person{object: o})
		}
	}
	slices.SortFunc(s.users, func(a, b person) int {
		return cmp.Or(a.object.CreationTimestamp.Compare(b.object.CreationTimestamp.Time), cmp.Compare(a.object.UID, b.object.UID))
	})
	index := &dmv1.DMIndex{}
	switch err := r.Get(ctx, key, index); {
	case apierrors.IsNotFound(err) && len(s.users) == 0:
		return nil, nil
	case apierrors.IsNotFound(err):
		return s, nil
	case err != nil:
		return nil, err
	}
	file := secret(key.Namespace, build.ObjectsName(key.Name))
	if len(s.users) == 0 {
		if err := r.Get(ctx, client.ObjectKeyFromObject(file), file); err != nil {
			return nil, client.IgnoreNotFound(err) // it never had users
		}
	} else if err := r.Find(ctx, file, file); apierrors.IsNotFound(err) && !index.DeletionTimestamp.IsZero() {
		return s, nil // made again, it would be in the way of the deletion
	} else if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	s.index = index
	conn := secret(key.Namespace, build.ConnectionName(key.Name))
	if err := r.Get(ctx, client.ObjectKeyFromObject(conn), conn); err == nil && metav1.IsControlledBy(conn, index) {
		s.conn = conn
	} else if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if metav1.IsControlledBy(file, index) {
		s.storedACL = string(file.Data[build.KeyUsersACL])
	}
	var records map[types.UID]record
	if json.Unmarshal(file.Data[build.KeyUsersState], &records) != nil {
		records = nil // somebody broke it: it is begun anew with the passwords that programs have
	}
	var err error
	if s.inFile, err = r.namesInFile(ctx, key); err != nil {
		return nil, err
	}
	s.admit()
	for i := range s.users {
		u := &s.users[i]
		u.stored = records[u.object.UID]
		u.stored.Passwords = u.stored.Passwords.Stored(file, grace(u.object), s.now)
		if u.refusal != nil {
			continue // however many there are, no Secret is read for them
		}
		if err := r.readSecrets(ctx, u); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// namesInFile are the users in the file that whoever administers the index wrote. A file that
// servers cannot read has them, too: they go on with what they read before.
func (r *Reconciler) namesInFile(ctx context.Context, key types.NamespacedName) (map[string]bool, error) {
	file := secret(key.Namespace, build.UsersName(key.Name))
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(file), file); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	names := map[string]bool{}
	for line := range bytes.Lines(file.Data[build.KeyUsersACL]) {
		if words := strings.Fields(string(line)); len(words) > 1 && words[0] == "user" {
			names[words[1]] = true
		}
	}
	return names, nil
}

// readSecrets reads the Secret of programs, and that of spec.passwordSecret.
func (r *Reconciler) readSecrets(ctx context.Context, u *person) error {
	made := secret(u.object.Namespace, build.UserSecretName(u.object.Name))
	switch err := r.Find(ctx, made, made); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !metav1.IsControlledBy(made, u.object):
		u.trouble = outcome.WaitFor(dmv1.ReasonNameTaken, fmt.Sprintf("the Secret %s exists and is not of this DMUser: delete it, or make a DMUser of another name", made.Name), 0)
		return nil
	default:
		u.password, u.secretUID = identity.TrimPassword(string(made.Data[build.KeyPassword])), made.UID
	}
	ref := u.object.Spec.PasswordSecret
	if ref == nil {
		return nil
	}
	given := secret(u.object.Namespace, ref.Name)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(given), given); apierrors.IsNotFound(err) {
		given = nil
	} else if err != nil {
		return err
	}
	u.given, u.trouble = givenPassword(u.object, given)
	return nil
}

// Lengths of passwords that people give. SHA-256, which servers keep, is fast to try.
const (
	shortestPassword = 16
	longestPassword  = 512
)

// givenPassword is the password in the Secret of spec.passwordSecret (nil = there is none), or why
// it cannot be used.
func givenPassword(u *dmv1.DMUser, s *corev1.Secret) (string, *outcome.Wait) {
	ref := u.Spec.PasswordSecret
	key := cmp.Or(ref.Key, build.KeyPassword)
	refused := func(reason, format string, args ...any) (string, *outcome.Wait) {
		return "", outcome.WaitFor(reason, fmt.Sprintf(format, args...), 0)
	}
	switch {
	case s == nil:
		return refused(dmv1.ReasonSecretMissing, "there is no Secret %s: make it, with the key %s and the label %s=%s", ref.Name, key, dmv1.LabelPasswordOf, u.Spec.Index)
	case s.Labels[dmv1.LabelManagedBy] == dmv1.ManagedBy:
		return refused(dmv1.ReasonPasswordRefused, "the Secret %s is the operator's own: write the password into a Secret of yours", ref.Name)
	case s.Labels[dmv1.LabelPasswordOf] != u.Spec.Index:
		return refused(dmv1.ReasonPasswordRefused, "the Secret %s is not for users of index %s. If it is to be: kubectl label secret %s %s=%s", ref.Name, u.Spec.Index, ref.Name, dmv1.LabelPasswordOf, u.Spec.Index)
	}
	data, ok := s.Data[key]
	password := identity.TrimPassword(string(data))
	switch {
	case !ok:
		return refused(dmv1.ReasonSecretMissing, "the Secret %s has no key %s: add it, or correct spec.passwordSecret.key", ref.Name, key)
	case len(password) < shortestPassword || len(password) > longestPassword:
		return refused(dmv1.ReasonPasswordRefused, "%s of the Secret %s has %d bytes: write a random password of %d to %d", key, ref.Name, len(password), shortestPassword, longestPassword)
	case strings.ContainsFunc(password, unicode.IsControl):
		return refused(dmv1.ReasonPasswordRefused, "%s of the Secret %s has control characters, such as a line break: write the password on one line", key, ref.Name)
	}
	return password, nil
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
