// Package outcome is what the steps of a reconciler come to: nothing, an error, or a Wait for
// something that must happen first. One step may meet with several at once (List). The queue learns
// from an outcome when to look again (Result), and people read its reason and message in a
// condition (Explain).
package outcome

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// How long until something is looked at again that no event tells of.
const (
	// Recheck is for a settled object: do the servers still have what they had?
	Recheck = 20 * time.Second
	// RequeueSoon is for a server that was asked for something and is not done.
	RequeueSoon = 2 * time.Second
)

// Wait ends a list of steps: something must happen first. It is no failure.
type Wait struct {
	Reason, Message string

	// After is when to look again; 0 = an event will tell.
	After time.Duration
}

// WaitFor returns a Wait.
func WaitFor(reason, message string, after time.Duration) *Wait {
	return &Wait{Reason: reason, Message: message, After: after}
}

func (w *Wait) Error() string { return w.Message }

// List are the outcomes of several steps that do not need each other.
type List []error

// Add appends err, unless it is nil.
func (c *List) Add(err error) {
	if err != nil {
		*c = append(*c, err)
	}
}

// Err is nil if nothing was collected.
func (c List) Err() error {
	if len(c) == 0 {
		return nil
	}
	return c
}

func (c List) Error() string {
	var texts []string
	for _, err := range c {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (c List) Unwrap() []error { return c }

// Flat are the outcomes of err, one by one.
func Flat(err error) (all []error) {
	var c List
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &c):
		return []error{err}
	}
	for _, err := range c {
		all = append(all, Flat(err)...)
	}
	return all
}

// Result turns the outcome of a list of steps into what the controller's queue does.
// Of several it is what comes first.
func Result(err error) (ctrl.Result, error) {
	next := Recheck
	for _, err := range Flat(err) {
		var h *Wait
		switch {
		case errors.As(err, &h):
			if h.After != 0 {
				next = min(next, h.After)
			}
		case Terminating(err): // all of it will be gone
		case apierrors.IsConflict(err):
			// read something old; look again
			next = min(next, 200*time.Millisecond)
		default:
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// Explain is the reason and the message of the outcome of a list of steps: the reason of the first
// that went wrong, and what all say.
func Explain(err error) (reason, message string) {
	all := Flat(err)
	if len(all) == 0 {
		return dmv1.ReasonAsDesired, ""
	}
	var texts []string
	for i, err := range all {
		r, text := ExplainOne(err)
		if i == 0 {
			reason = r
		}
		if !slices.Contains(texts, text) { // steps may meet with the same
			texts = append(texts, text)
		}
	}
	return reason, strings.Join(texts, "; ")
}

// ExplainOne is the reason and the message of one outcome.
func ExplainOne(err error) (reason, message string) {
	var h *Wait
	switch {
	case errors.As(err, &h):
		return h.Reason, h.Message
	case errors.Is(err, kube.ErrNameTaken):
		return dmv1.ReasonNameTaken, err.Error()
	case Terminating(err):
		return dmv1.ReasonDeleting, "the namespace is being deleted"
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return dmv1.ReasonPoolRefused, err.Error()
	}
	return dmv1.ReasonFailed, err.Error()
}

// Terminating reports whether something could not be made since its namespace is being deleted.
func Terminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Passing reports whether an object changed under the reconciler: it is called again for it.
func Passing(err error) bool { return slices.ContainsFunc(Flat(err), apierrors.IsConflict) }
