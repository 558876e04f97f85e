package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestLocalPersist kills a local index and starts it again with the same directory: all that was
// acknowledged is there, and no key waits for the lease of an earlier process. That is also so
// where earlier clients were fenced before, as --persist-accept-loss does by itself.
func TestLocalPersist(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	const keys = 100
	for i, flags := range [][]string{nil, nil, {"--persist-accept-loss"}} {
		r, kill := startLocal(ctx, t, append(flags, "--persist="+dir)...)
		if err := setOwned(ctx, r, fmt.Sprint("begin ", i)); err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		for before := range i * keys {
			if v, err := r.Get(ctx, fmt.Sprint("key ", before)).Int(); err != nil || v != before {
				t.Fatalf("start %d: key %d is %d, %v", i, before, v, err)
			}
		}
		for key := i * keys; key < (i+1)*keys; key++ {
			if err := r.Set(ctx, fmt.Sprint("key ", key), key, 0).Err(); err != nil {
				t.Fatalf("start %d: %v", i, err)
			}
		}
		kill()
	}
}

// setOwned sets a key once its server has its range, which must not be one whose former owner's
// lease is waited out.
func setOwned(ctx context.Context, r *redis.Client, key string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := r.Set(ctx, key, "", 0).Err()
		if err == nil || strings.Contains(err.Error(), "waited out") {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// startLocal starts a local index in a process of its own. kill ends it with SIGKILL.
func startLocal(ctx context.Context, t *testing.T, flags ...string) (r *redis.Client, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"local", "--memory-servers=1", "--compute-servers=1", "--memory=128Mi",
		"--listen=127.0.0.1:0", "--listen-rpc=127.0.0.1:0"}, flags...)...)
	cmd.Env = append(os.Environ(), childEnv+"=yes")
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() { _, _ = cmd.Process.Kill(), cmd.Wait() } // it may be dead
	t.Cleanup(kill)
	s := &said{t, make(chan string, 1000)}
	go func() {
		defer close(s.lines)
		for r := bufio.NewScanner(out); r.Scan(); {
			s.lines <- r.Text()
		}
	}()
	address := s.find(ctx, `^ *RESP +(\S+)`)[1]
	r = redis.NewClient(&redis.Options{Addr: address, Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { r.Close() })
	return r, kill
}
