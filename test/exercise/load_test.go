package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/client"
)

// fake is an index in a map, with faults.
type fake struct {
	mu    sync.Mutex
	pairs map[string][]byte
	puts  int

	loseAt  int // acknowledges this write and forgets it
	failAt  int // refuses this write
	forgets bool
	stuck   string // refuses to write this key a second time
}

func (f *fake) Get(_ context.Context, key []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.pairs[string(key)]
	if !ok || f.forgets {
		return nil, client.ErrNotFound
	}
	return v, nil
}

func (f *fake) Put(_ context.Context, key, value []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	_, again := f.pairs[string(key)]
	switch {
	case f.puts == f.loseAt:
		return nil
	case f.puts == f.failAt, again && string(key) == f.stuck:
		return errors.New("refused")
	}
	f.pairs[string(key)] = bytes.Clone(value)
	return nil
}

// exerciseWith writes every key once, reads it, and returns what is printed in the end.
func exerciseWith(f *fake) (string, error) {
	f.pairs = map[string][]byte{}
	l := newLoad(f, "x/", 3, 5, 256, time.Second)
	for _, e := range l.keys {
		l.write(e)
		l.read(e)
	}
	var out strings.Builder
	err := l.finish(context.Background(), &out)
	return out.String(), err
}

func TestVerdict(t *testing.T) {
	f := func(index *fake, ok bool, want ...string) {
		t.Helper()
		out, err := exerciseWith(index)
		if (err == nil) != ok {
			t.Errorf("error %v, want ok = %v", err, ok)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q is not in\n%s", w, out)
			}
		}
	}
	f(&fake{}, true, "failed requests: 0, stale reads: 0, keys read back: 15, acknowledged writes lost: 0", "start")
	f(&fake{failAt: 7}, false, "failed requests: 1, stale reads: 0", "lost: 0", "FAILED after", "refused")
	f(&fake{loseAt: 7}, false, "failed requests: 0, stale reads: 1", "lost: 1", `LOST "3x/01/000001": value 0, acknowledged 1`, `STALE "3x/01/000001"`)
	f(&fake{forgets: true}, false, "stale reads: 15", "lost: 15")
	f(&fake{}, true, "keys written again: 15, failed: 0, slowest: ")
	f(&fake{stuck: "3x/01/000001"}, false, "failed requests: 0, stale reads: 0", "keys written again: 15, failed: 1", `STUCK "3x/01/000001"`, "refused")
}

// TestFailedWriteMayHaveHappened: a failed write that took effect all the same is not reported as
// lost.
func TestFailedWriteMayHaveHappened(t *testing.T) {
	index := &fake{pairs: map[string][]byte{}, failAt: 1}
	l := newLoad(index, "x/", 1, 1, 256, time.Second)
	l.write(l.keys[0])
	index.pairs["\x00x/00/000000"] = binary.BigEndian.AppendUint64(nil, 1)
	if lost, err := l.readBack(t.Context()); len(lost) != 0 || err != nil {
		t.Errorf("lost %v, %v", lost, err)
	}
	index.pairs["\x00x/00/000000"] = binary.BigEndian.AppendUint64(nil, 2)
	if lost, err := l.readBack(t.Context()); len(lost) != 1 || err != nil {
		t.Errorf("a value that nobody wrote: lost %v, %v", lost, err)
	}
}

// TestControl runs a load with phases, at a pace and without, and ends it from outside.
func TestControl(t *testing.T) {
	for _, rate := range []int{0, 20000} {
		l := newLoad(&fake{pairs: map[string][]byte{}}, "x/", 2, 100, 256, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		server := httptest.NewServer(l.control(cancel))
		defer server.Close()
		post := func(path string) int {
			resp, err := http.Post(server.URL+path, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		var wg sync.WaitGroup
		wg.Go(func() { l.run(ctx, 2, rate) })
		for _, path := range []string{"/await?operations=500", "/phase?name=second", "/await?operations=500", "/stop"} {
			if status := post(path); status != http.StatusOK {
				t.Errorf("%s: status %d", path, status)
			}
		}
		if status := post("/await?operations=many"); status != http.StatusBadRequest {
			t.Errorf("await many: status %d", status)
		}
		wg.Wait()
		var out strings.Builder
		if err := l.finish(t.Context(), &out); err != nil || !strings.Contains(out.String(), "second") {
			t.Errorf("%v\n%s", err, &out)
		}
	}
}

func TestArguments(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %q", args, err, want)
		}
	}
	f("say run")
	f("unknown command", "walk")
	f("phase takes one name", "phase")
	f("await takes a number", "await")
	f("no exercise runs here", "stop")
	f("--writers", "run", "--writers=0")
	f("no/such/folder", "run", "--secret=no/such/folder")
}
