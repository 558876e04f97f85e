package user

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// summarize writes what is known of a user into its status. err is why the file could not be
// written.
func (s *scope) summarize(u *person, err error) {
	status := &u.object.Status
	generation := u.object.Generation
	status.ObservedGeneration, status.User, status.FormerPasswordUntil = generation, u.object.UserName(), nil
	if status.Secret = ""; u.password != "" {
		status.Secret = build.UserSecretName(u.object.Name)
	}
	if former := u.record.Passwords.Former; u.refusal == nil && len(former) > 0 {
		last := former[0].Until
		for _, f := range former {
			if f.Until.After(last) {
				last = f.Until
			}
		}
		until := metav1.NewTime(last.UTC().Truncate(1e9))
		status.FormerPasswordUntil = &until
	}
	set := func(kind string, is bool, reason, message string) {
		report.SetCondition(&status.Conditions, generation, kind, is, reason, message)
	}
	ready, reason, message := s.ready(u, err)
	set(dmv1.ConditionReady, ready, reason, message)
	switch {
	case u.trouble != nil:
		set(dmv1.ConditionDegraded, true, u.trouble.Reason, u.trouble.Message)
	case ready, reason == dmv1.ReasonUserDisabled, reason == dmv1.ReasonUserPropagating:
		set(dmv1.ConditionDegraded, false, dmv1.ReasonAsDesired, "")
	default:
		set(dmv1.ConditionDegraded, true, reason, message)
	}
}

// ready reports whether the user can log in with the password of its Secret and has the rights of
// its spec, at every server.
func (s *scope) ready(u *person, err error) (is bool, reason, message string) {
	name := u.object.UserName()
	switch {
	case s.index == nil:
		return false, dmv1.ReasonIndexMissing, fmt.Sprintf("there is no DMIndex %s in the namespace: make it, or make a DMUser with another spec.index", s.key.Name)
	case s.conn == nil:
		return false, dmv1.ReasonIndexMissing, fmt.Sprintf("index %s has no Secret %s yet: see its conditions", s.key.Name, build.ConnectionName(s.key.Name))
	case u.refusal != nil:
		return false, u.refusal.Reason, u.refusal.Message
	case u.trouble != nil && (u.record.Passwords.Current == "" || u.password == ""):
		return false, u.trouble.Reason, u.trouble.Message
	case err != nil:
		reason, message = outcome.ExplainOne(err)
		return false, reason, message
	case u.password == "" || u.record.Served != hashOf(u.rules):
		message = "the compute servers are given the user; the Secret follows when all of them know it"
		if len(s.late) > 0 {
			message = "not all compute servers know the user as it is: " + report.Listed(s.late)
		}
		return false, dmv1.ReasonUserPropagating, message
	case u.trouble != nil:
		return true, dmv1.ReasonUserKnown, fmt.Sprintf("%s can log in with the password that it had", name)
	}
	return true, dmv1.ReasonUserKnown, fmt.Sprintf("%s can log in with the password in the Secret %s", name, build.UserSecretName(u.object.Name))
}
