package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// TestPauseAfterLosses: the first loss of the lead costs no pause; losses in a row wait longer, up
// to a limit, and whatever else the variable has counts as none.
func TestPauseAfterLosses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	f := func(value string, want time.Duration) {
		t.Helper()
		if got := waitAfter(lostSoFar(value, now)); got != want {
			t.Errorf("%q: a pause of %s, want %s", value, got, want)
		}
	}
	at := func(lost int, ago time.Duration) string { return fmt.Sprint(lost, " ", now.Add(-ago).Unix()) }
	f("", 0)
	f("nonsense", 0)
	f("3", 0)
	f(at(-1, 0), 0)
	f(at(1, time.Second), 0)
	f(at(2, time.Second), time.Second)
	f(at(3, time.Second), 2*time.Second)
	f(at(6, time.Minute), 16*time.Second)
	f(at(1<<40, time.Minute), 16*time.Second)
	f(at(6, lostInRow+time.Second), 0)

	if isLeadLost(nil) || isLeadLost(errors.New("no such file")) {
		t.Error("another error counts as a lost lead")
	}
}

// TestPatiently: an operator that lost the lead since the API server did not answer does not end
// since that still does not answer. Other errors end it.
func TestPatiently(t *testing.T) {
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	denied, asked := errors.New("denied"), 0
	err = patiently(t.Context(), func() error {
		if asked++; asked > 1 {
			return denied
		}
		_, err := newManager(&rest.Config{Host: "127.0.0.1:1"}, scheme, &RunOptions{})
		return err
	})
	if asked != 2 || err != denied {
		t.Errorf("it ended after %d attempts with %v", asked, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	err = patiently(ended, func() error {
		cancel()
		return apierrors.NewServiceUnavailable("busy")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v when it was to end", err)
	}
}
