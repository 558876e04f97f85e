package indextest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// deadline holds every lock, as clients that died with them do: changes end with ErrTimeout within
// the session's limit, change nothing, and the session lives; lookups and scans go on.
func (r *runner) deadline(t *testing.T) {
	for limit, done := 50*time.Millisecond, false; !done && !t.Failed(); limit *= 20 {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { done = r.deadlineOf(t, limit, 20*limit > patience) })
	}
}

// lockWords are the strips of lock words on the memory servers.
func lockWords(c *pooltest.Cluster) (strips [][]byte) {
	for _, k := range c.Chunks() {
		slabs, _ := pool.Slabs(k.Memory, k.First, uint64(len(k.Memory)))
		for _, s := range slabs {
			if s.Strip != pool.Nil {
				strips = append(strips, k.Memory[s.Strip-k.First:][:8*s.Nodes])
			}
		}
	}
	return strips
}

// deadlineOf is deadline for one limit. On a fabric where requests have limits, the machine may
// hold one up for as long, which rightly ends the session. Then a longer limit is to be tried,
// unless this is the last.
func (r *runner) deadlineOf(t *testing.T, limit time.Duration, last bool) (done bool) {
	c := r.cluster(t, 8)
	x := r.open(t, c.Open(t), index.Options{Uint64: true, MaxValueBytes: 8})
	s := session(t, x)
	for i := range 1000 {
		must(t, s.Insert(number(uint64(i)), number(uint64(i))))
	}
	hold := func(id byte) {
		for i := range c.Options.Servers {
			locks := c.Memory(c.Options.FirstID+uint16(i), verbs.RegionLocks)
			for j := 1; j < len(locks); j += 2 {
				locks[j] = id // client id*256, which does not exist
			}
		}
		for _, words := range lockWords(c) {
			for j := 1; j < len(words); j += 8 {
				words[j] = id
			}
		}
	}
	hold(0x7f)
	defer hold(0)
	pairs := 1000
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"insert", func() error { return s.Insert(number(5000), nil) }},
		{"upsert", func() error { return s.Upsert(number(5), nil) }},
		{"update", func() error { return s.Update(number(5), nil) }},
		{"delete", func() error { return s.Delete(number(5)) }},
		{"modify", func() error {
			return s.Modify(number(5), func([]byte, bool) ([]byte, index.Action) { return nil, index.Remove })
		}},
	} {
		if change.name == "insert" && r.FreeInserts {
			must(t, change.do())
			if v, err := s.Lookup(number(5000), nil); err != nil || len(v) != 0 {
				t.Errorf("lookup of what was inserted beside held locks: %x, %v", v, err)
			}
			pairs++
			continue
		}
		s.SetLimit(limit)
		start := time.Now()
		err := change.do()
		d := time.Since(start)
		s.SetLimit(patience)
		if _, dead := s.Lookup(number(5), nil); dead != nil && r.provider != "shm" && !last {
			t.Logf("%s: %v; a request was held up for as long as %v", change.name, err, limit)
			return false
		}
		wantError(t, change.name, err, index.ErrTimeout)
		if d < limit || d > patience {
			t.Errorf("%s ended after %v, its limit is %v", change.name, d, limit)
		}
	}
	reads := func() {
		t.Helper()
		if v, err := s.Lookup(number(5), nil); err != nil || string(v) != string(number(5)) {
			t.Errorf("lookup beside held locks: %x, %v", v, err)
		}
		if got, err := scan(s, nil, 2000, false); err != nil || len(got) != pairs {
			t.Errorf("scan beside held locks: %d pairs, %v", len(got), err)
		}
	}
	reads()
	hold(0)
	must(t, s.Upsert(number(5), number(5)))
	if !r.FreeInserts {
		must(t, s.Insert(number(5000), nil))
	}
	must(t, s.Delete(number(5000)))
	pairs = 1000
	reads()
	check(t, x)
	return true
}

// cut disconnects the memory servers: operations end with an error that says so, and do not hang.
func (r *runner) cut(t *testing.T) {
	c := r.cluster(t, 8)
	p := c.Open(t)
	x := r.open(t, p, index.Options{Uint64: true, MaxValueBytes: 8})
	s := session(t, x)
	must(t, s.Insert(number(1), nil))
	for i := range c.Options.Servers {
		c.Cut(c.Options.FirstID + uint16(i))
	}
	end := make(chan error)
	go func() {
		var err error
		for err == nil { // shm notices with the next doorbell or a little later
			if _, err = s.Lookup(number(1), nil); !r.Design.SharesAll && err == nil {
				err = s.Upsert(number(1), nil) // lookups need no server
			}
		}
		end <- err
	}()
	select {
	case err := <-end:
		if r.Design.SharesAll || !errors.Is(err, index.ErrUnknown) {
			wantError(t, "lookup after the servers are gone", err, index.ErrUnreachable)
		}
	case <-time.After(patience):
		t.Fatal("lookup hangs after the servers are gone")
	}
	if err := s.Upsert(number(2), nil); !errors.Is(err, index.ErrUnreachable) && !errors.Is(err, index.ErrUnknown) {
		t.Error(fmt.Errorf("upsert after the servers are gone: %w", err))
	}
}
