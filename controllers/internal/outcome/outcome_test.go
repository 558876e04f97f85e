package outcome

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// TestOutcome: of several outcomes the earliest look counts, an error goes to the queue whatever
// else was met with, and all are told with the reason of the first.
func TestOutcome(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("pods"), "demo-0", errors.New("it changed"))
	soon, late := WaitFor("Starting", "no server yet", RequeueSoon), WaitFor("Waiting", "somebody tells", 0)
	broken := errors.New("broken")
	f := func(err error, wantAfter time.Duration, wantErr error, wantReason, wantMessage string) {
		t.Helper()
		next, failed := Result(err)
		if next.RequeueAfter != wantAfter || failed != wantErr {
			t.Errorf("Result(%v) = %v, %v; want %v, %v", err, next.RequeueAfter, failed, wantAfter, wantErr)
		}
		if reason, message := Explain(err); reason != wantReason || message != wantMessage {
			t.Errorf("Explain(%v) = %s: %q; want %s: %q", err, reason, message, wantReason, wantMessage)
		}
	}
	taken := fmt.Errorf("Service demo: %w", kube.ErrNameTaken)
	f(nil, Recheck, nil, dmv1.ReasonAsDesired, "")
	f(late, Recheck, nil, "Waiting", "somebody tells")
	f(List{late, List{soon, late}}, RequeueSoon, nil, "Waiting", "somebody tells; no server yet")
	f(List{soon, conflict}, 200*time.Millisecond, nil, "Starting", "no server yet; "+conflict.Error())
	f(List{soon, broken}, 0, broken, "Starting", "no server yet; broken")
	f(taken, 0, taken, dmv1.ReasonNameTaken, taken.Error())
	if !Passing(List{soon, conflict}) || Passing(List{soon, broken}) {
		t.Error("Passing does not tell a conflict")
	}
	if (List{}).Err() != nil {
		t.Error("an empty List is an error")
	}
}
