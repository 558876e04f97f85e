package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// said is what the program says, line by line.
type said struct {
	t     *testing.T
	lines chan string
}

// find returns what the first line from now on has that fits.
func (s *said) find(ctx context.Context, expr string) []string {
	s.t.Helper()
	for e := regexp.MustCompile(expr); ; {
		select {
		case line, more := <-s.lines:
			if !more {
				s.t.Fatalf("it ended before it said %s", expr)
			}
			if found := e.FindStringSubmatch(line); found != nil {
				return found
			}
		case <-ctx.Done():
			s.t.Fatalf("it did not say %s", expr)
		}
	}
}

// hangLimit bounds tests of several processes: none takes a minute on a machine without other work.
const hangLimit = 10 * time.Minute

// TestLocalCopies kills the process that answers for the only memory server under load, and the one
// that took its place once that has a copy again, as often as the environment says (killsEnv). All
// that was acknowledged is there, and a program gets no errors for longer than some seconds.
// The log of the servers, which --verbose writes, says where the time of each fail-over goes.
func TestLocalCopies(t *testing.T) {
	kills, verbose := 2, "--verbose=false"
	if n, err := strconv.Atoi(os.Getenv(killsEnv)); err == nil {
		kills, verbose = n, "--verbose"
	}
	t.Setenv(childEnv, "yes") // for the memory servers
	ctx, cancel := context.WithTimeout(t.Context(), hangLimit)
	defer cancel()
	out, w := io.Pipe()
	cmd := root()
	cmd.SetArgs([]string{"local", "--copies=2", "--memory-servers=1", "--memory=64Mi", "--listen=127.0.0.1:0", "--listen-rpc=127.0.0.1:0", verbose})
	cmd.SetOut(w)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(running)
		w.Close()
		ended <- err
	}()
	s := &said{t, make(chan string, 1000)}
	go func() {
		defer close(s.lines)
		for r := bufio.NewScanner(out); r.Scan(); {
			t.Log(r.Text())
			s.lines <- r.Text()
		}
	}()
	over := sync.OnceValue(func() error {
		stop()
		return <-ended
	})
	defer over()
	addresses := strings.Fields(s.find(ctx, `^ *RESP +(.*)`)[1])
	primary := s.find(ctx, `memory server 1: process (\d+) answers, process (\d+) has the copy`)
	s.find(ctx, "kill -9 "+primary[1])

	var writers []*putter
	var putting sync.WaitGroup
	puttingCtx, stopPutting := context.WithCancel(ctx)
	defer putting.Wait()
	defer stopPutting()
	for i, address := range addresses {
		p := &putter{r: redis.NewClient(&redis.Options{Addr: address, Protocol: 2, MaxRetries: -1}), prefix: fmt.Sprint("writer ", i, " ")}
		defer p.r.Close()
		writers = append(writers, p)
		putting.Go(func() { p.run(puttingCtx) })
	}
	await := func(n int) {
		t.Helper()
		for _, p := range writers {
			if err := p.await(ctx, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(100)
	pids := []string{primary[2]}
	for kill := range kills {
		pid, err := strconv.Atoi(primary[1])
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		killed := primary[1]
		primary = s.find(ctx, `memory server 1: process (\d+) answers, process (\d+) has the copy`)
		if primary[1] == killed || primary[2] == killed {
			t.Fatalf("process %s was killed: %s", killed, primary[0])
		}
		pids = append(pids, primary[1:]...)
		await(100)
		for _, p := range writers {
			t.Logf("kill %d: the longest time without an acknowledgement %v", kill, p.longest().Round(time.Millisecond))
		}
	}
	stopPutting()
	putting.Wait()
	for _, p := range writers {
		if err := p.check(ctx); err != nil {
			t.Error(err)
		}
		t.Logf("%d keys: %v", p.acked, p.last)
		// Some 1 s on a machine without other work. Under the race detector (-short) each step
		// takes 15 times as long, and processes are suspected of standing still.
		if p.pause > 10*time.Second && !testing.Short() {
			t.Errorf("no key was acknowledged for %v: %v", p.pause, p.last)
		}
	}
	if err := over(); err != nil {
		t.Error(err)
	}
	for _, text := range pids {
		if pid, err := strconv.Atoi(text); err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			t.Errorf("process %s is left", text)
		}
	}
}

// putter puts keys, one after the other, and each again until it is acknowledged.
type putter struct {
	r      *redis.Client
	prefix string

	mu     sync.Mutex
	acked  int           // keys below it are there
	recent time.Duration // the longest time without an acknowledgement since longest was called
	pause  time.Duration // the longest time of all
	last   error
}

func (p *putter) run(ctx context.Context) {
	last := time.Now()
	for n := 0; ctx.Err() == nil; {
		err := p.r.Set(ctx, p.key(n), n, 0).Err()
		now := time.Now()
		p.mu.Lock()
		if err == nil {
			n++
			p.acked, p.recent, p.pause, last = n, max(p.recent, now.Sub(last)), max(p.pause, now.Sub(last)), now
		} else if ctx.Err() == nil {
			p.last = err
		}
		p.mu.Unlock()
	}
}

// longest is the longest time without an acknowledgement since it was called last.
func (p *putter) longest() (d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, p.recent = p.recent, 0
	return d
}

func (p *putter) key(n int) string { return fmt.Sprintf("%s%09d", p.prefix, n) }

// await waits until n more keys are acknowledged.
func (p *putter) await(ctx context.Context, n int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for from := -1; ; {
		p.mu.Lock()
		acked, last := p.acked, p.last
		p.mu.Unlock()
		if from < 0 {
			from = acked
		}
		if acked >= from+n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d keys, and no more come: %w", acked, last)
		}
	}
}

// check reads all keys that were acknowledged.
func (p *putter) check(ctx context.Context) error {
	const most = 1000
	for n := 0; n < p.acked; n += most {
		var keys []string
		for k := n; k < min(n+most, p.acked); k++ {
			keys = append(keys, p.key(k))
		}
		values, err := p.r.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for i, v := range values {
			if v != strconv.Itoa(n+i) {
				return fmt.Errorf("%s is %v of %d keys", keys[i], v, p.acked)
			}
		}
	}
	return nil
}
