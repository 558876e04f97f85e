package dolphin

import (
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// shareLease is the lease of clients that stand still in a leaf.
const shareLease = 20 * time.Millisecond

// TestSharersThatStandStill: a client stands still, or dies, between the two lists of a shared
// update, and is fenced, or not, on the leaf's memory server or on another one alone. Meanwhile
// another client puts other leaves in the leaf's place, merges it, or modifies the pair. What was
// answered is not lost, and nobody waits for longer than the client's lease.
func TestSharersThatStandStill(t *testing.T) {
	for name, change := range map[string]func(s *Session) error{
		"replace": func(s *Session) error {
			for i := range 9 { // values of other lengths take records
				if err := s.Upsert([]byte("a1"), make([]byte, 1+i%2)); err != nil {
					return err
				}
			}
			return nil
		},
		"merge": func(s *Session) error {
			for i := 1; i < 12; i++ {
				if err := s.Delete(fmt.Append(nil, "a", i)); err != nil && err != index.ErrNotFound {
					return err
				}
			}
			return nil
		},
		"modify": func(s *Session) error {
			return s.Modify([]byte("a0"), func(old []byte, _ bool) ([]byte, index.Action) {
				return append(old[:7:7], '!'), index.Put
			})
		},
	} {
		for _, x := range []stands{
			{0, shareLease / 4, false}, {0, 0, true}, {1, shareLease / 4, false}, {2, shareLease / 4, false},
			{1, 3 * shareLease, false}, {2, 3 * shareLease, false}, {0, 3 * shareLease, false},
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, x), func(t *testing.T) { x.run(t, change) })
		}
	}
}

// stands is how a client stands still.
type stands struct {
	// where it is fenced meanwhile: 0 = nowhere, 1 = on the leaf's server, 2 = on the other one
	fenced int
	still  time.Duration // for how long it stands still
	dies   bool
}

func (x stands) run(t *testing.T, change func(s *Session) error) {
	const before, after = "before..", "after..."
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 5_000_000})
	c, err := poolsim.New(w, poolsim.Options{Servers: 2, Lease: shareLease})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(p *simenv.Process) *Session {
		pl, err := c.Open(p)
		must(err)
		tree, err := open(pl, index.Options{MaxKeyBytes: 8, MaxValueBytes: 8, NodeBytes: 256})
		must(err)
		s, err := tree.newSession()
		must(err)
		s.SetLimit(time.Second)
		return s
	}
	must(w.Run(func(p *simenv.Process) {
		s := open(p)
		must(s.Insert([]byte("a0"), []byte(before)))
		for i := 1; i < 12; i++ {
			must(s.Insert(fmt.Append(nil, "a", i), nil))
		}
		v, shares, over := w.NewProcess("victim"), p.NewEvent(), p.NewEvent()
		var at pool.Addr
		var client uint32
		var left error
		answered := false
		v.Go("main", func() {
			defer over.Set()
			victim := open(v)
			client = victim.t.Pool.Client()
			must(victim.Update([]byte("a0"), []byte(before)))
			victim.Begin()
			found, err := victim.SeekBound([]byte("a0"), false)
			must(err)
			at = victim.Last().Word.Addr()
			r, f, err := victim.enter(at, []byte("a0"), 8)
			must(err)
			if !found || r != right || !f.is {
				t.Errorf("the leaf is %d: %+v", r, f)
			}
			shares.Set()
			v.Sleep(x.still + time.Microsecond)
			if left = victim.leave(true, &f, []byte(after)); left == nil {
				victim.End()
			}
			answered = true
		})
		shares.Wait(env.Forever)
		switch {
		case x.dies:
			v.Kill()
		case x.still > shareLease:
			v.Freeze()
		}
		if x.fenced > 0 {
			id := at.Server()
			if x.fenced == 2 {
				id = 3 - id
			}
			for c.Control(p).Fence(id, []uint32{client}, time.Second) != nil {
				p.Sleep(time.Millisecond)
			}
		}
		began := p.Now()
		must(change(s))
		if took := p.Now() - began; took > x.still+4*shareLease {
			t.Errorf("the change took %v", took)
		}
		value := func() string {
			got, err := s.Lookup([]byte("a0"), nil)
			must(err)
			return string(got)
		}
		got := value()
		if !x.dies && x.still > shareLease {
			v.Thaw()
			over.Wait(10 * shareLease)
		}
		p.Sleep(4 * shareLease)
		switch now := value(); {
		case answered && left == nil && got[:5] != after[:5]:
			t.Errorf("an update was answered, and the value is %q behind a change of the leaf", got)
		case now != got:
			t.Errorf("the value is %q behind a change of the leaf, and %q later", got, now)
		case (x.dies || x.fenced == 1) && got[:5] != before[:5]:
			t.Errorf("the value is %q after the update of a client that is fenced", got)
		}
		must(s.Update([]byte("a0"), []byte("last....")))
		if now := value(); now != "last...." {
			t.Errorf("the value is %q in the end", now)
		}
		if _, err := s.t.Check(); err != nil {
			t.Error(err)
		}
	}))
}
