package chime_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// crowd is what threads do to few leaves.
type crowd struct {
	long    bool
	threads int
	all     [][]index.Session // of each thread, one at each client
}

const (
	crowdKeys  = 150 // in leaves of 30 slots
	crowdStays = 5   // one key in so many stays
)

func (c *crowd) key(n int) []byte {
	if c.long {
		return fmt.Appendf(nil, "keys of more than 32 bytes that begin so: %d", n)
	}
	return number(uint64(n))
}

func (c *crowd) value(n, v int) []byte { return fmt.Appendf(nil, "%03d.%d", n, v%1000) }

// isOf reports whether v is a value that key n may have.
func (c *crowd) isOf(n int, v []byte) bool { return bytes.HasPrefix(v, c.value(n, 0)[:4]) }

// TestCrowdOnThreads: threads, each with a session at each of three clients, of which two have next
// to no cache, change keys of a few leaves: all insert most of their keys, then delete them, so
// that keys hop, and leaves split and are merged, all the time. Each key has one owner, who knows
// what is there, whichever client's copies lead there. Keys that stay are found by all, in lookups,
// batches and scans.
func TestCrowdOnThreads(t *testing.T) {
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprintf("long=%v", long), func(t *testing.T) {
			defer chime.FewFingerprints(64)()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			ops := 10_000
			if testing.Short() {
				ops = 1_000
			}
			c := crowd{long: long, threads: 4}
			c.all = make([][]index.Session, c.threads)
			servers := pooltest.New(t, pooltest.Options{Chunks: 64})
			var x index.Index
			for n := range 3 {
				o := hopOptions
				if long {
					o = longOptions
				}
				o.CacheBytes = []int{0, 700, 2500}[n]
				var err error
				x, err = chime.Open(servers.Open(t), o)
				must(t, err)
				for i := range c.all {
					s, err := x.Session()
					must(t, err)
					c.all[i] = append(c.all[i], s)
				}
			}
			for n := 0; n < crowdKeys; n += crowdStays {
				must(t, c.all[0][0].Insert(c.key(n), c.value(n, 0)))
			}
			var wg sync.WaitGroup
			left := make([]int, c.threads)
			for n := range c.threads {
				wg.Go(func() {
					m := member{crowd: &c, n: n, rand: rand.New(rand.NewPCG(seed, uint64(n))), there: map[int]string{}}
					for i := range ops {
						if err := m.step(i); err != nil {
							t.Errorf("thread %d, operation %d: %v", n, i, err)
							return
						}
					}
					left[n] = len(m.there)
				})
			}
			wg.Wait()
			want := crowdKeys / crowdStays
			for _, n := range left {
				want += n
			}
			found, err := x.(index.Checker).Check()
			if err != nil || found.Pairs != uint64(want) {
				t.Errorf("%d pairs, want %d: %v", found.Pairs, want, err)
			}
			_, err = servers.Audit(found.Parts())
			must(t, err)
			t.Logf("%d nodes; %d merged by the last client, %d used again", found.Nodes, x.Stats().Merges, x.Stats().Reclaimed)
		})
	}
}

// member is one thread.
type member struct {
	*crowd
	n     int
	s     index.Session
	rand  *rand.Rand
	there map[int]string // of its own keys
	batch [][]byte
	dst   []byte
}

// own is a key that only this thread changes.
func (m *member) own() int {
	for {
		n := m.n + m.threads*m.rand.IntN(crowdKeys/m.threads)
		if n%crowdStays != 0 {
			return n
		}
	}
}

func (m *member) step(i int) (err error) {
	m.s = m.all[m.n][m.rand.IntN(len(m.all[m.n]))]
	switch m.rand.IntN(16) {
	case 0:
		return m.scan(m.rand.IntN(2) == 0)
	case 1:
		return m.lookups()
	case 2:
		n := m.rand.IntN(crowdKeys/crowdStays) * crowdStays
		return m.s.Update(m.key(n), m.value(n, i))
	case 3, 4, 5:
		return m.lookup(m.own())
	}
	n := m.own()
	was, there := m.there[n]
	switch growing := i/60%2 == 0; {
	case growing == (m.rand.IntN(8) > 0):
		v := m.value(n, i)
		if m.rand.IntN(2) == 0 {
			err = m.s.Upsert(m.key(n), v)
		} else if err = m.s.Insert(m.key(n), v); there {
			if !errors.Is(err, index.ErrExists) {
				return fmt.Errorf("insert of key %d, which is there: %w", n, err)
			}
			return nil
		}
		m.there[n] = string(v)
	case m.rand.IntN(2) == 0:
		if err = m.s.Delete(m.key(n)); there != (err == nil) {
			return fmt.Errorf("delete of key %d, there: %v: %w", n, there, err)
		}
		if errors.Is(err, index.ErrNotFound) {
			err = nil
		}
		delete(m.there, n)
	default:
		err = m.s.Modify(m.key(n), func(old []byte, found bool) ([]byte, index.Action) {
			if found != there || string(old) != was {
				err = fmt.Errorf("key %d is %q, there: %v, want %q, %v", n, old, found, was, there)
			}
			return nil, index.Remove
		})
		delete(m.there, n)
	}
	if err == nil {
		err = m.lookup(n)
	}
	return err
}

// lookup looks up a key of its own, and one that stays.
func (m *member) lookup(n int) (err error) {
	want, there := m.there[n]
	if m.dst, err = m.s.Lookup(m.key(n), m.dst[:0]); there != (err == nil) || string(m.dst) != want {
		return fmt.Errorf("lookup of key %d: %q, want %q, there: %v: %w", n, m.dst, want, there, err)
	}
	n -= n % crowdStays
	if m.dst, err = m.s.Lookup(m.key(n), m.dst[:0]); err != nil || !m.isOf(n, m.dst) {
		return fmt.Errorf("lookup of key %d, which stays: %q, %w", n, m.dst, err)
	}
	return nil
}

// lookups is lookup for all keys, in a batch.
func (m *member) lookups() (err error) {
	m.batch = m.batch[:0]
	for n := range crowdKeys {
		m.batch = append(m.batch, m.key(n))
	}
	return errors.Join(m.s.LookupBatch(m.batch, func(n int, v []byte, e error) {
		if e = m.judge(n, v, e == nil); e != nil {
			err = fmt.Errorf("in a batch: %w", e)
		}
	}), err)
}

// scan has each key once, in order: those of this thread, and those that stay.
func (m *member) scan(reverse bool) (err error) {
	seen := map[string]string{}
	var last []byte
	e := m.s.Scan(nil, 1000, reverse, func(key, v []byte) bool {
		if c := bytes.Compare(last, key); last != nil && (c == 0 || c > 0 != reverse) {
			err = fmt.Errorf("a scan (reverse: %v) has %q after %q", reverse, key, last)
		}
		last = bytes.Clone(key)
		seen[string(key)] = string(v)
		return true
	})
	for n := range crowdKeys {
		v, found := seen[string(m.key(n))]
		if e := m.judge(n, []byte(v), found); e != nil && err == nil {
			err = fmt.Errorf("in a scan, reverse: %v: %w", reverse, e)
		}
	}
	return errors.Join(e, err)
}

// judge returns an error if key n may not be found, or has to be, or not with that value.
func (m *member) judge(n int, v []byte, found bool) error {
	want, there := m.there[n]
	switch {
	case found && !m.isOf(n, v):
		return fmt.Errorf("key %d has %q", n, v)
	case n%crowdStays == 0 && !found:
		return fmt.Errorf("key %d, which stays, is not there", n)
	case n%crowdStays != 0 && n%m.threads == m.n && (found != there || string(v) != want):
		return fmt.Errorf("key %d has %q, %v, want %q, %v", n, v, found, want, there)
	}
	return nil
}
