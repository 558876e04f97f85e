package indexsim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	_ "github.com/dmindex/dmindex/pkg/index/chime"
	_ "github.com/dmindex/dmindex/pkg/index/dex"
	_ "github.com/dmindex/dmindex/pkg/index/sherman"
	_ "github.com/dmindex/dmindex/pkg/index/smart"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestLateListsEndAChange: what an operation READs before its change takes longer than its limit,
// and so does the lock. No list ends the session, as each waits for the queue pair before it is on
// its way. The change is not made, its session and its client go on, and nobody holds a lock.
func TestLateListsEndAChange(t *testing.T) {
	const each, limit = 2 * time.Millisecond, time.Millisecond
	number := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	key, none, old, changed := number(500), number(501), []byte("old"), []byte("new")
	for _, design := range []string{"sherman", "smart", "chime", "dex"} {
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
					c.d.each, c.d.over = each, true
					must := func(err error) {
						if err != nil {
							t.Error(err)
						}
					}
					must(c.open())
					s, err := c.at.index.Session()
					must(err)
					for n := range 400 {
						must(s.Insert(number(10*n), old))
					}
					must(s.Close())
					must(c.renew(c.at)) // its cache is cold
					s, err = c.at.index.Session()
					must(err)
					s.SetLimit(limit)
					c.d.over = false
					began := p.Now()
					if err := change.do(s); !errors.Is(err, index.ErrTimeout) || errors.Is(err, index.ErrUnknown) {
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
					must(locksFree(x.c, false))
					s.SetLimit(time.Second)
					must(change.do(s))
					must(errors.Join(s.Close(), c.at.pool.Close()))
				})
				if err != nil {
					t.Fatal(fmt.Errorf("%s, %s: %w", design, change.name, err))
				}
			})
		}
	}
}
