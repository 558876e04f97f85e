package indexsim

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	_ "github.com/dmindex/dmindex/pkg/index/chime"
	_ "github.com/dmindex/dmindex/pkg/index/dex"
	_ "github.com/dmindex/dmindex/pkg/index/dolphin"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	_ "github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestLateListsEndAChange: what an operation READs before its change takes longer than its limit,
// and so does the lock. No list ends the session, as each waits for the queue pair before it is on
// its way. The change is not made, its session and its client go on, and nobody holds a lock.
//
// DEX posts the record of a change beside the READ of the leaf. Where that was too late it cancels
// the record, and does not wait beyond its limit until this is durable: it is in doubt then.
func TestLateListsEndAChange(t *testing.T) {
	const each, limit = 2 * time.Millisecond, time.Millisecond
	key, none, old, changed := number(500), number(501), []byte("old"), []byte("new")
	for _, design := range []string{"sherman", "smart", "chime", "dex", "dolphin"} {
		for _, change := range []struct {
			name string
			do   func(s index.Session) error
		}{
			{"insert", func(s index.Session) error { return s.Insert(none, changed) }},
			{"update", func(s index.Session) error { return s.Update(key, changed) }},
			{"upsert", func(s index.Session) error { return s.Upsert(key, changed) }},
			{"delete", func(s index.Session) error { return s.Delete(key) }},
			{"modify", func(s index.Session) error {
				return s.Modify(key, func([]byte, bool) ([]byte, index.Action) { return changed, index.Put })
			}},
		} {
			t.Run(design+"/"+change.name, func(t *testing.T) {
				hasty(t, design, limit, func(p *simenv.Process, c *limitsClient, s index.Session) {
					must := func(err error) {
						if err != nil {
							t.Error(err)
						}
					}
					c.d.each, c.d.over = each, false
					began := p.Now()
					doubt := design == "dex" && change.name != "modify"
					if err := change.do(s); !errors.Is(err, index.ErrTimeout) || errors.Is(err, index.ErrUnknown) != doubt {
						t.Errorf("a change that is late, after %v: %v", p.Now()-began, err)
					}
					c.d.over = true
					must(c.at.pool.Alive())
					if v, err := s.Lookup(key, nil); err != nil || string(v) != string(old) {
						t.Errorf("the key that was to be changed has %q, %v", v, err)
					}
					if v, err := s.Lookup(none, nil); !errors.Is(err, index.ErrNotFound) {
						t.Errorf("the key that was to be inserted has %q, %v", v, err)
					}
					must(locksFree(c.x.c, false))
					s.SetLimit(time.Second)
					must(change.do(s))
				})
			})
		}
	}
}

// TestModifyThatTakesLong: what an index.Change has to do takes longer than the limit of its
// operation. Then the pair stays as it is.
func TestModifyThatTakesLong(t *testing.T) {
	const limit = time.Millisecond
	for _, design := range []string{"sherman", "smart", "chime", "dex", "dolphin"} {
		for _, says := range []index.Action{index.Put, index.Remove} {
			hasty(t, design, limit, func(p *simenv.Process, c *limitsClient, s index.Session) {
				takes := 2 * limit
				modify := func() error {
					return s.Modify(number(500), func([]byte, bool) ([]byte, index.Action) {
						p.Sleep(takes)
						return []byte("new"), says
					})
				}
				if err := modify(); !errors.Is(err, index.ErrTimeout) || errors.Is(err, index.ErrUnknown) {
					t.Errorf("%s, %v: %v", design, says, err)
				}
				if v, err := s.Lookup(number(500), nil); err != nil || string(v) != "old" {
					t.Errorf("%s, %v: the key has %q, %v", design, says, v, err)
				}
				takes = 0
				if err := errors.Join(locksFree(c.x.c, false), modify()); err != nil {
					t.Errorf("%s, %v: %v", design, says, err)
				}
			})
		}
	}
}

func number(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// hasty lets do work with a session that has a limit, of an index of a design in which each tenth
// number has the value old. The client's cache is cold, and its lists are not late yet.
func hasty(t *testing.T, design string, limit time.Duration, do func(p *simenv.Process, c *limitsClient, s index.Session)) {
	t.Helper()
	d, err := index.Lookup(design)
	if err != nil {
		t.Fatal(err)
	}
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 5_000_000})
	x := &limits{Limits: Limits{Design: d}, lease: time.Second, rand: rand.New(rand.NewPCG(1, 1))}
	x.options = index.Options{MaxKeyBytes: 16, MaxValueBytes: 24, CacheBytes: 64 << 10}
	plan := &sim.Plan{Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 1}
	x.c, err = poolsim.New(w, poolsim.Options{
		Servers: 2, Chunks: 60, ChunkBytes: 32 << 10, Locks: 64, Lease: x.lease, Executor: index.Executor(), Fabric: sim.Options{Plan: plan},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(func(p *simenv.Process) {
		c := &limitsClient{x: x, p: p, d: x.device(p), mu: p.NewMutex()}
		c.d.over = true
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		must(c.open())
		s, err := c.at.index.Session()
		must(err)
		for n := range 400 {
			must(s.Insert(number(10*n), []byte("old")))
		}
		must(s.Close())
		must(c.renew(c.at)) // its cache is cold
		s, err = c.at.index.Session()
		must(err)
		s.SetLimit(limit)
		do(p, c, s)
		must(errors.Join(s.Close(), c.at.pool.Close()))
	})
	if err != nil {
		t.Fatalf("%s: %v", design, err)
	}
}
