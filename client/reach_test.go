package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// TestServersOutOfReach: a client has its map from a server that is behind a port-forward, and the
// servers of the map have addresses that lead nowhere. Errors say so, and what to do; and nothing
// of it once a server answers.
func TestServersOutOfReach(t *testing.T) {
	f := newFake(t)
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pod := nowhere.Addr().String()
	if err := nowhere.Close(); err != nil {
		t.Fatal(err)
	}
	f.pod = pod
	c := f.connect(t, time.Second)
	call := func() error {
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		_, err := c.Get(ctx, theKey)
		return err
	}
	scan := func() (err error) {
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		for _, err = range c.Scan(ctx, nil, nil, ScanOptions{}) {
		}
		return err
	}
	for what, err := range map[string]error{"get": call(), "scan": scan()} {
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		for _, part := range []string{pod, "connection refused", "no port-forward", "in the cluster"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v; it does not say %q", what, err, part)
			}
		}
	}
	l, err := c.links.linkTo(pod, "")
	if err != nil {
		t.Fatal(err)
	}
	c.reach.answered()
	c.reach.failed(l, errors.New("connection refused"))
	if hint := c.reach.hint(); hint != "" {
		t.Errorf("one attempt after an answer: %s", hint)
	}
}
