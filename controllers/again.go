package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
)

// An operator that lost the lead must stop all that it does at once: the manager does not wait for
// its reconcilers then, and asks that the process ends. A process that ends is started again by the
// kubelet after a pause that doubles up to 5 minutes, in which nobody may operate: an API server
// that is now and then too busy for the lease would keep the operator away for longer and longer.
//
// So the process executes its own program again: the kernel takes all threads, memory and ports
// of the old one at that instant, as if it had ended, and the container goes on. Another manager in
// the same process would find reconcilers of the former one still at work, and their metrics and
// ports taken.
//
// The API server may not answer for longer: then the new program serves its ports and tries on
// (patiently), as it would fail with a manager that needs answers to be made. It waits before
// it begins if leads are lost in a row. It knows of them by envLost.
const (
	envLost   = "DMINDEX_OPERATOR_LOST" // COUNT SECONDS: losses in a row, and when the last was
	lostInRow = 10 * time.Minute        // a loss that is older is not in a row with the next one
	leastWait = time.Second             // before the second of a row; then twice as long each time
	mostWait  = 16 * time.Second
)

// How long an API server that does not answer is waited for at the start, and how often it is
// asked. An operator that ends then is started again by the kubelet.
const (
	startLimit = 10 * time.Minute
	startAgain = 2 * time.Second
)

// isLeadLost reports whether the manager ended because it lost the lead. It has no error of its own
// for that. With another text the process ends, as it would for any other error.
func isLeadLost(err error) bool {
	return err != nil && strings.Contains(err.Error(), "leader election lost")
}

// beginAnew executes the program of this process again, with its arguments. It returns only an
// error.
func beginAnew(why error) error {
	now := time.Now()
	lost := lostSoFar(os.Getenv(envLost), now) + 1
	ctrl.Log.WithName("operator").Error(why, "the lead is lost: the operator begins anew", "lossesInARow", lost, "pause", waitAfter(lost).String())
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	if err := os.Setenv(envLost, fmt.Sprint(lost, " ", now.Unix())); err != nil {
		return fmt.Errorf("begin anew: %w", err)
	}
	return fmt.Errorf("begin anew: execute %s: %w", path, syscall.Exec(path, os.Args, os.Environ()))
}

// pauseAfterLoss waits if this program follows one that lost the lead not for the first time in a
// row. It returns ctx's error if that is done.
func pauseAfterLoss(ctx context.Context) error {
	timer := time.NewTimer(waitAfter(lostSoFar(os.Getenv(envLost), time.Now())))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// lostSoFar is how many losses in a row a value of envLost tells of.
func lostSoFar(value string, now time.Time) (count int) {
	var at int64
	if n, _ := fmt.Sscan(value, &count, &at); n < 2 || now.Sub(time.Unix(at, 0)) > lostInRow {
		return 0
	}
	return max(0, count)
}

// waitAfter is the pause after so many losses in a row.
func waitAfter(lost int) time.Duration {
	if lost < 2 {
		return 0
	}
	return min(mostWait, leastWait<<min(lost-2, 10))
}

// patiently repeats what needs the API server while that does not answer, for startLimit.
func patiently(ctx context.Context, do func() error) error {
	begun, said := time.Now(), ""
	tick := time.NewTicker(startAgain)
	defer tick.Stop()
	for {
		err := do()
		if err == nil || !isUnanswered(err) || time.Since(begun) > startLimit {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			ctrl.Log.WithName("operator").Info("the API server does not answer: trying again", "error", said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// isUnanswered reports whether an error says of the API server only that it could not be asked.
func isUnanswered(err error) bool {
	var network *url.Error
	return errors.As(err, &network) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
