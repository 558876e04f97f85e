package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// killsEnv is how many lives TestLocalPersist has, fail-overs TestLocalCopies, and kills
// TestSetsKilled, in place of a few.
const killsEnv = "DMINDEX_TEST_KILLS"

// TestLocalPersist kills a local index while clients write, all of its servers at once, and starts
// it again with the same directory: all that was acknowledged is there, nothing is that nobody
// wrote, and no key waits for the lease of an earlier process. That is also so where earlier
// clients were fenced before, as --persist-accept-loss does by itself.
func TestLocalPersist(t *testing.T) {
	lives := 3
	if n, err := strconv.Atoi(os.Getenv(killsEnv)); err == nil {
		lives = n
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(lives)*20*time.Second)
	defer cancel()
	dir := t.TempDir()
	const writers, keys = 4, 100
	var acked, begun [writers * keys]int // values of keys
	for life := range lives {
		var flags []string
		if life%3 == 2 {
			flags = []string{"--persist-accept-loss"}
		}
		r, kill := startLocal(ctx, t, append(flags, "--persist="+dir)...)
		if err := setOwned(ctx, r, fmt.Sprint("begin ", life)); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		for n := range acked {
			v, err := r.Get(ctx, fmt.Sprint("key ", n)).Int()
			if errors.Is(err, redis.Nil) {
				v, err = 0, nil
			}
			if err != nil || v < acked[n] || v > begun[n] {
				t.Fatalf("life %d: key %d is %d, %v; %d was acknowledged, %d begun", life, n, v, err, acked[n], begun[n])
			}
			acked[n], begun[n] = v, v
		}
		until := 1 + rand.Int64N(2000)
		var answers atomic.Int64
		var working sync.WaitGroup
		for w := range writers {
			working.Go(func() {
				for i := 0; ; i = (i + 1) % keys {
					n := w*keys + i
					begun[n]++
					if r.Set(ctx, fmt.Sprint("key ", n), begun[n], 0).Err() != nil {
						return
					}
					acked[n] = begun[n]
					if answers.Add(1) == until {
						go kill()
					}
				}
			})
		}
		working.Wait()
		if answers.Load() < until {
			t.Fatalf("life %d: requests fail after %d answers", life, answers.Load())
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
	kill = sync.OnceFunc(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // it may be dead
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
