package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the program that make build makes.
const binary = "../../bin/dmindex"

// An index that does not start, or a check that does not end, fails the test by then.
const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// indexes are the addresses of an index over each transport: those of its compute servers.
var indexes = map[string][]string{"shm": nil, "tcp": nil}

// pages are the status pages of the first compute servers.
var pages = map[string]string{}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run starts the indexes, runs the tests and ends the indexes.
func run(m *testing.M) (code int, err error) {
	for transport := range indexes {
		addresses, page, stop, startErr := start(transport)
		if startErr != nil {
			return 1, startErr
		}
		defer func() { err = errors.Join(err, stop()) }()
		indexes[transport], pages[transport] = addresses, page
	}
	return m.Run(), nil
}

// start starts an index and returns where its compute servers listen, the page of the first, and
// what ends the index.
func start(transport string) (addresses []string, page string, stop func() error, err error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, "", nil, fmt.Errorf("%w: build it with make build", err)
	}
	c := exec.Command(binary, "local", "--transport", transport, "--memory", "256Mi", "--listen", "127.0.0.1:0", "--listen-rpc", "127.0.0.1:0", "--listen-metrics", "127.0.0.1:0")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, "", nil, err
	}
	if err := c.Start(); err != nil {
		return nil, "", nil, err
	}
	late := time.AfterFunc(startLimit, func() { _ = c.Process.Kill() })
	lines := bufio.NewScanner(out)
	for page == "" && lines.Scan() {
		switch fields := strings.Fields(lines.Text()); {
		case len(fields) > 1 && fields[0] == "RESP":
			addresses = fields[1:]
		case len(fields) > 1 && fields[0] == "page":
			page = fields[1]
		}
	}
	if late.Stop(); len(addresses) == 0 || page == "" {
		_ = c.Process.Kill()
		return nil, "", nil, fmt.Errorf("dmindex local --transport %s did not say where it listens: %w", transport, errors.Join(lines.Err(), c.Wait()))
	}
	ended := make(chan error, 1)
	go func() {
		for lines.Scan() {
		}
		ended <- c.Wait()
	}()
	return addresses, page, func() error {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(stopLimit):
			_ = c.Process.Kill()
			return fmt.Errorf("dmindex local --transport %s did not end within %s of SIGTERM", transport, stopLimit)
		}
	}, nil
}

// eachIndex runs f against each index: the addresses of its compute servers, and its status page.
func eachIndex(t *testing.T, f func(t *testing.T, ctx context.Context, addresses []string, page string)) {
	for transport, addresses := range indexes {
		t.Run(transport, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			f(t, ctx, addresses, pages[transport])
		})
	}
}

// each runs f against the first compute server of each index.
func each(t *testing.T, f func(t *testing.T, ctx context.Context, address string)) {
	eachIndex(t, func(t *testing.T, ctx context.Context, addresses []string, _ string) { f(t, ctx, addresses[0]) })
}

// is checks what a call returned, and prints a line for it.
func is(t *testing.T, name string, want any) func(got any, err error) {
	return func(got any, err error) {
		t.Helper()
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !reflect.DeepEqual(got, want):
			t.Errorf("%s: %#v, want %#v", name, got, want)
		default:
			t.Logf("ok %s", name)
		}
	}
}

// done checks a call that returns nothing but an error.
func done(t *testing.T, name string, err error) {
	t.Helper()
	is(t, name, nil)(nil, err)
}

// fails checks that a call fails with an error that says so.
func fails(t *testing.T, name, want string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one with %q", name, err, want)
		return
	}
	t.Logf("ok %s: %v", name, err)
}
