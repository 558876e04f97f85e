package grant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/memserver/ledger"
)

// world is memory servers as they are (their ledgers), indexes that come and go, and operators that
// die anywhere.
type world struct {
	*rapid.T
	servers map[string]*ledger.Ledger
	names   []string // of those that are there
	next    int
	claims  []Claim
	plans   [][]Step // of operators that were slow: they act on what they saw then
	strange map[string]uint64
}

const (
	worldChunks = 12
	worldLocks  = 64
	worldOnChip = 24
)

func (w *world) addServer() {
	name := fmt.Sprint("s", w.next)
	w.next++
	l, err := ledger.New(ledger.Shape{Incarnation: uint64(w.next), ChunkBytes: 1 << 20, Chunks: worldChunks, Slots: MaxPlaces, Locks: worldLocks})
	if err != nil {
		w.Fatal(err)
	}
	w.servers[name] = l
	w.names = append(w.names, name)
}

// observe is what the servers say.
func (w *world) observe() (all []Server) {
	for _, name := range w.names {
		l := w.servers[name]
		s := Server{Name: name, Chunks: worldChunks, Locks: worldLocks, OnChip: worldOnChip, Draining: l.Totals().Draining}
		for _, i := range l.Indexes() {
			on := min(i.FirstLock+i.Locks, worldOnChip) - min(i.FirstLock, worldOnChip)
			s.Held = append(s.Held, Held{Identity: i.Identity, Chunks: i.Quota, Used: i.Used, Locks: i.Locks, OnChip: on})
		}
		all = append(all, s)
	}
	return all
}

// act asks a server, as the operator does, and reports whether it was done.
func (w *world) act(s Step) error {
	l := w.servers[s.Server]
	if l == nil || !slices.Contains(w.names, s.Server) {
		return nil // its pod is gone
	}
	defer w.clean(l)
	if s.Evict {
		l.Evict(s.Identity)
		return nil
	}
	parts := []ledger.Part{{First: 0, End: worldOnChip}, {First: worldOnChip, End: worldLocks}}
	if s.HostLocks {
		parts = parts[1:]
	}
	_, err := l.AdmitIn(s.Identity, s.Chunks, s.Locks, parts...)
	return err
}

// clean zeroes what was given back.
func (w *world) clean(l *ledger.Ledger) {
	for slot, _, _, ok := l.DirtyPlace(); ok; slot, _, _, ok = l.DirtyPlace() {
		l.CleanedPlace(slot)
	}
	for n, ok := l.DirtyChunk(); ok; n, ok = l.DirtyChunk() {
		l.CleanedChunk(n)
	}
	if err := l.Check(); err != nil {
		w.Fatal(err)
	}
}

func (w *world) pick(what string) *Claim {
	if len(w.claims) == 0 {
		w.Skip("no index")
	}
	return &w.claims[rapid.IntRange(0, len(w.claims)-1).Draw(w.T, what)]
}

func (w *world) create() {
	w.next++
	c := Claim{Object: fmt.Sprint("uid", w.next), Name: fmt.Sprint("i", w.next), Since: int64(w.next / 2)}
	c.Identity = c.Object
	locks := rapid.SampledFrom([]uint64{0, 0, 4, 20, 40}).Draw(w.T, "locks")
	for _, name := range w.names {
		if rapid.IntRange(0, 3).Draw(w.T, "on "+name) > 0 {
			c.Wants = append(c.Wants, Want{name, rapid.Uint64Range(1, worldChunks+1).Draw(w.T, "chunks"), locks})
		}
	}
	w.claims = append(w.claims, c)
}

// decide is one operator that looks and decides; what it shall do is checked against what there is.
func (w *world) decide() []Verdict {
	servers := w.observe()
	verdicts := Decide(servers, w.claims)
	w.checkPlan(servers, verdicts)
	return verdicts
}

// checkPlan: all steps together ask for no more than there is, and nobody takes what an older one
// waits for.
func (w *world) checkPlan(servers []Server, verdicts []Verdict) {
	type sum struct{ chunks, locks, onChip, wanted uint64 }
	taken := map[string]*sum{}
	for _, s := range servers {
		taken[s.Name] = &sum{}
		for _, h := range s.Held {
			taken[s.Name].chunks += h.Chunks
			taken[s.Name].locks += h.Locks
			taken[s.Name].onChip += h.OnChip
		}
	}
	claims := slices.Clone(w.claims)
	slices.SortStableFunc(claims, func(a, b Claim) int { return cmp.Or(int(a.Since-b.Since), strings.Compare(a.Name, b.Name)) })
	for _, c := range claims {
		v := verdicts[slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Object == c.Object })]
		for _, s := range v.Steps {
			if s.Evict {
				if uid, _, _ := strings.Cut(s.Identity, "/"); uid != c.Object || !c.Leaving && Incarnation(s.Identity, uid) >= Incarnation(c.Identity, uid) {
					w.Fatalf("%s of %+v is evicted", s.Identity, c)
				}
				continue
			}
			t := taken[s.Server]
			if s.Chunks > s.Had {
				t.chunks += s.Chunks - s.Had
				if left := worldChunks - min(t.chunks, worldChunks); t.chunks > worldChunks || left < min(t.wanted, left+s.Chunks-s.Had) {
					w.Fatalf("%s takes %d chunks at %s, %d are taken then, older ones wait for %d: %s", v.Object, s.Chunks-s.Had, s.Server, t.chunks, t.wanted, show(verdicts))
				}
			}
		}
		never := slices.ContainsFunc(v.Missing, func(m Missing) bool { return m.Never() })
		if len(v.Missing) == 0 || never || len(v.Absent) > 0 && !c.Served {
			continue
		}
		for _, want := range c.Wants {
			has := uint64(0)
			for _, s := range servers {
				if i := slices.IndexFunc(s.Held, func(h Held) bool { return h.Identity == c.Identity }); s.Name == want.Server && i >= 0 {
					has = s.Held[i].Chunks
				}
			}
			if t := taken[want.Server]; t != nil && want.Chunks > has && (!c.Served || slices.ContainsFunc(v.Missing, func(m Missing) bool { return m.Server == want.Server })) {
				t.wanted += want.Chunks - has
			}
		}
	}
}

// carryOut has one index's steps done, or the first n of them.
func (w *world) carryOut(v Verdict, n int) {
	for _, s := range v.Steps[:min(n, len(v.Steps))] {
		if err := w.act(s); err != nil && !errors.Is(err, ledger.ErrExhausted) && !errors.Is(err, ledger.ErrInUse) && !errors.Is(err, ledger.ErrDraining) {
			w.Fatalf("%+v: %v", s, err)
		}
	}
}

// granted reports whether an index has all that it asked for.
func (w *world) granted(c *Claim) bool {
	for _, want := range c.Wants {
		l := w.servers[want.Server]
		if i, err := l.Index(c.Identity); !slices.Contains(w.names, want.Server) || err != nil || i.Quota != want.Chunks {
			return false
		}
	}
	return true
}

// use lets an index take a chunk, which only a served one does.
func (w *world) use(c *Claim) {
	c.Served = c.Served || w.granted(c)
	if !c.Served {
		return
	}
	for _, want := range c.Wants {
		if slices.Contains(w.names, want.Server) {
			w.servers[want.Server].Allocate(c.Identity, 1, 0)
		}
	}
}

// settle lets operators work until nothing is left to do.
func (w *world) settle() {
	for range 100 {
		steps := 0
		for _, v := range w.decide() {
			for _, s := range v.Steps {
				steps++
				err := w.act(s)
				if errors.Is(err, ledger.ErrExhausted) && strings.Contains(err.Error(), "locks asked") {
					steps-- // its locks do not fit in one piece: it waits
					err = nil
				}
				if err != nil {
					w.Fatalf("%+v: %v", s, err)
				}
			}
		}
		w.claims = slices.DeleteFunc(w.claims, func(c Claim) bool { return c.Leaving && !w.holds(c.Object) })
		if steps == 0 {
			w.checkSettled()
			return
		}
	}
	w.Fatalf("it does not come to rest:\n%s", show(w.decide()))
}

func (w *world) holds(object string) bool {
	for _, s := range w.observe() {
		if slices.ContainsFunc(s.Held, func(h Held) bool { return Of(h.Identity, object) }) {
			return true
		}
	}
	return false
}

// checkSettled: every index has what it asked for, or is told why not; nothing is held but for
// indexes that asked, and what others hold.
func (w *world) checkSettled() {
	servers := w.observe()
	for _, s := range servers {
		for _, h := range s.Held {
			i := slices.IndexFunc(w.claims, func(c Claim) bool {
				return c.Identity == h.Identity || c.Idle && Of(h.Identity, c.Object)
			})
			if q, strange := w.strange[s.Name+h.Identity]; strange && q == h.Chunks {
				continue
			}
			if i < 0 {
				w.Fatalf("%s holds %+v for nobody", s.Name, h)
			}
		}
	}
	oldest := true
	for _, v := range Decide(servers, w.claims) {
		c := &w.claims[slices.IndexFunc(w.claims, func(c Claim) bool { return c.Object == v.Object })]
		waits := len(v.Missing)+len(v.Refused)+len(v.Absent) > 0
		if !waits && len(v.Steps) == 0 && !c.Idle && !w.granted(c) {
			w.Fatalf("%+v was not granted all, and is not told why", c)
		}
		never := slices.ContainsFunc(v.Missing, func(m Missing) bool { return m.Never() })
		for _, m := range v.Missing {
			if m.Draining || m.Never() {
				continue
			}
			if oldest && (m.Kept > 0 || m.Lacks == 0) {
				w.Fatalf("%s is the oldest that waits and is told %+v", c.Name, m)
			}
		}
		if len(v.Missing) > 0 && !never {
			oldest = false
		}
	}
}

// TestRandom: whatever the order in which indexes come and go, change their quotas, use chunks,
// servers are lost and operators die or act on what is past, servers grant no more than they have,
// no grant is forgotten, and the oldest is served first.
func TestRandom(t *testing.T) {
	for range 30 {
		rapid.Check(t, random)
	}
}

// random is one history.
func random(t *rapid.T) {
	w := &world{T: t, servers: map[string]*ledger.Ledger{}, strange: map[string]uint64{}}
	for range rapid.IntRange(1, 3).Draw(t, "servers") {
		w.addServer()
	}
	// somebody's of another namespace, or of an object that is gone
	if rapid.Bool().Draw(t, "stranger") {
		w.act(Step{Server: w.names[0], Identity: "stranger", Chunks: 2})
		w.strange[w.names[0]+"stranger"] = 2
	}
	t.Repeat(map[string]func(*rapid.T){
		"":       func(*rapid.T) {},
		"Create": func(t *rapid.T) { w.T = t; w.create() },
		"Delete": func(t *rapid.T) { w.T = t; w.pick("index").Leaving = true },
		"Idle":   func(t *rapid.T) { w.T = t; c := w.pick("index"); c.Idle = !c.Idle },
		"Quota": func(t *rapid.T) {
			w.T = t
			if c := w.pick("index"); len(c.Wants) > 0 {
				c.Wants = slices.Clone(c.Wants)
				c.Wants[0].Chunks = rapid.Uint64Range(1, worldChunks).Draw(t, "chunks")
			}
		},
		"Anew": func(t *rapid.T) {
			w.T = t
			if c := w.pick("index"); !c.Leaving {
				w.next++
				c.Identity, c.Served = fmt.Sprint(c.Object, "/", w.next), false
			}
		},
		"Use": func(t *rapid.T) { w.T = t; w.use(w.pick("index")) },
		"LoseServer": func(t *rapid.T) {
			w.T = t
			i := rapid.IntRange(0, len(w.names)-1).Draw(t, "server")
			w.names = slices.Delete(w.names, i, i+1)
			w.addServer()
		},
		"Drain": func(t *rapid.T) {
			w.T = t
			l := w.servers[rapid.SampledFrom(w.names).Draw(t, "server")]
			l.Drain(!l.Totals().Draining)
		},
		"Behind": func(t *rapid.T) { // an operator that knows of an earlier incarnation
			w.T = t
			c := *w.pick("index")
			c.Identity, c.Leaving = c.Object, false
			servers := w.observe()
			later := slices.ContainsFunc(servers, func(s Server) bool {
				return slices.ContainsFunc(s.Held, func(h Held) bool { return Of(h.Identity, c.Object) && h.Identity != c.Object })
			})
			if v := Decide(servers, []Claim{c})[0]; later && len(v.Steps) > 0 {
				t.Fatalf("%s is made anew, and somebody who does not know does %+v", c.Object, v.Steps)
			}
		},
		"Operator": func(t *rapid.T) {
			w.T = t
			for _, v := range w.decide() {
				w.carryOut(v, rapid.IntRange(0, 4).Draw(t, "steps before it dies"))
			}
		},
		"SlowOperator": func(t *rapid.T) {
			w.T = t
			for _, v := range w.decide() {
				if i := slices.IndexFunc(w.claims, func(c Claim) bool { return c.Object == v.Object && !c.Leaving }); i >= 0 {
					w.plans = append(w.plans, v.Steps)
				}
			}
		},
		"ActLate": func(t *rapid.T) {
			w.T = t
			if len(w.plans) > 0 {
				w.late(rapid.IntRange(0, len(w.plans)-1).Draw(t, "plan"))
			}
		},
		"Settle": func(t *rapid.T) { w.T = t; w.settle() },
		"UseAll": func(t *rapid.T) {
			w.T = t
			w.settle()
			for i := range w.claims {
				w.use(&w.claims[i])
			}
		},
		"QuotaOfAll": func(t *rapid.T) {
			w.T = t
			for i := range w.claims {
				c := &w.claims[i]
				c.Wants = slices.Clone(c.Wants)
				for j := range c.Wants {
					c.Wants[j].Chunks = rapid.Uint64Range(1, 5).Draw(t, "chunks")
				}
			}
		},
	})
	w.T = t
	w.settle()
}

// late carries out what an operator decided some time ago, unless its index is gone or has another
// identity by now: an operator reads the object before it acts, and another one that deletes it
// waits for none, but a stale operator has lost the lead by then.
func (w *world) late(i int) {
	plan := w.plans[i]
	w.plans = slices.Delete(w.plans, i, i+1)
	for _, s := range plan {
		here := slices.ContainsFunc(w.claims, func(c Claim) bool {
			return Of(s.Identity, c.Object) && !c.Leaving && (s.Evict || c.Identity == s.Identity)
		})
		if here && (!s.Evict || !slices.ContainsFunc(w.claims, func(c Claim) bool { return c.Identity == s.Identity })) {
			w.carryOut(Verdict{Steps: []Step{s}}, 1)
		}
	}
}
