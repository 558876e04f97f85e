package poolsim_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// deadClient never was, as far as the cluster knows.
const deadClient = 999

// owe makes the last intent slots but n of server 1 owe a change: of a word that says Repair then,
// if it lies in a chunk.
func owe(c *poolsim.Cluster, n int, word uint64, change lock.Change) {
	data := c.Memory(1, verbs.RegionData)
	const intents = 12 << 10 // behind the records of 4 locks
	b := data[intents+(c.Options.Intents-1-n)*lock.SlotBytes:][:lock.SlotBytes]
	binary.NativeEndian.PutUint64(b, deadClient|lock.Owed)
	name := lock.Name{Word: word, Node: word &^ 7, Seq: 1, Client: deadClient}
	name.Encode(b[lock.NameAt:])
	change.Encode(b[lock.ChangeAt:], b[lock.NameAt:], deadClient)
	if word%8 == 0 && word < uint64(len(data)) {
		binary.NativeEndian.PutUint64(data[word:], pool.Repair)
	}
}

// onServer1 are nodes of 256 bytes on server 1.
func onServer1(t *testing.T, cl *pool.Pool, n int) (nodes []pool.Addr) {
	for len(nodes) < n {
		a, err := cl.Allocate(256, pool.Nil)
		must(t, err)
		if a.Server() == 1 {
			nodes = append(nodes, a)
		}
	}
	return nodes
}

// TestDamagedChange: a change that is owed and cannot be made keeps its own word from everybody,
// and no client is given up for it.
func TestDamagedChange(t *testing.T) {
	sum := lock.Sum(make([]byte, 64))
	for name, damage := range map[string]func(word, image uint64) (uint64, lock.Change){
		"another image": func(word, image uint64) (uint64, lock.Change) {
			return word, lock.Change{Image: image, Target: word - 64, Length: 64, Sum: sum + 1}
		},
		"an image outside the region": func(word, _ uint64) (uint64, lock.Change) {
			return word, lock.Change{Image: 1 << 40, Target: word - 64, Length: 64, Sum: sum}
		},
		"an image outside all addresses": func(word, _ uint64) (uint64, lock.Change) {
			return word, lock.Change{Image: 1<<64 - 8, Target: word - 64, Length: 64, Sum: sum}
		},
		"a target outside the region": func(word, image uint64) (uint64, lock.Change) {
			return word, lock.Change{Image: image, Target: 1 << 47, Length: 64, Sum: sum}
		},
		"a target that covers the word": func(word, image uint64) (uint64, lock.Change) {
			return word, lock.Change{Image: image, Target: word - 8, Length: 64, Sum: sum}
		},
		"a huge length": func(word, image uint64) (uint64, lock.Change) {
			return word, lock.Change{Image: image, Target: word - 64, Length: 1<<32 - 1, Sum: sum}
		},
		"a misaligned word": func(word, image uint64) (uint64, lock.Change) {
			return word + 4, lock.Change{Image: image, Target: word - 64, Length: 64, Sum: sum}
		},
		"a word outside the region": func(_, image uint64) (uint64, lock.Change) {
			return 1 << 47, lock.Change{Image: image, Target: image, Length: 64, Sum: sum}
		},
		"a word outside all addresses": func(_, image uint64) (uint64, lock.Change) {
			return 1<<64 - 8, lock.Change{Image: image, Target: image, Length: 64, Sum: sum}
		},
	} {
		t.Run(name, func(t *testing.T) {
			calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
				cl, err := c.Open(p)
				must(t, err)
				nodes := onServer1(t, cl, 3)
				w := pool.Word{At: nodes[0] + 248, Node: nodes[0]}
				named, change := damage(w.At.Offset(), nodes[1].Offset())
				owe(c, 0, named, change)
				s, err := cl.NewSession(4096)
				must(t, err)
				s.Begin()
				other := pool.Word{At: nodes[2] + 248, Node: nodes[2]}
				_, err = s.Acquire(other) // what clears slots repairs, too
				must(t, err)
				must(t, s.PostRelease(0, 0))
				p.Sleep(10 * time.Millisecond)
				if err := s.RepairWords(); !errors.Is(err, pool.ErrFormat) {
					t.Errorf("RepairWords says %v, want %v", err, pool.ErrFormat)
				}
				s.Begin()
				if _, err = s.Acquire(w); named == w.At.Offset() && !errors.Is(err, pool.ErrFormat) {
					t.Errorf("the word is to be had: %v", err)
				} else if named != w.At.Offset() {
					must(t, err)
					must(t, s.PostRelease(0, 0))
				}
				s.Begin()
				_, err = s.Acquire(other)
				must(t, err)
				must(t, s.PostRelease(0, 0))
				must(t, cl.Alive())
				if word := binary.NativeEndian.Uint64(c.Memory(1, verbs.RegionData)[w.At.Offset():]); named == w.At.Offset() && word != pool.Repair {
					t.Errorf("the word is %#x", word)
				}
				must(t, s.Close())
				must(t, cl.Close())
			})
		})
	}
}

// TestOwedWordIsUsedAgain: who repairs what slots owe reads each slot anew, since the memory of its
// word may be used for something else since.
func TestOwedWordIsUsedAgain(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		nodes := onServer1(t, cl, 3)
		s, err := cl.NewSession(4096)
		must(t, err)
		other, err := c.Open(p)
		must(t, err)
		o, err := other.NewSession(4096)
		must(t, err)
		for _, s := range []*pool.Session{s, o} { // what clears slots has repaired all it found
			s.Begin()
			_, err = s.Acquire(pool.Word{At: nodes[2] + 248, Node: nodes[2]})
			must(t, err)
			must(t, s.PostRelease(0, 0))
		}
		p.Sleep(10 * time.Millisecond)
		for i, node := range nodes[:2] {
			owe(c, i, node.Offset()+248, lock.Change{Image: nodes[2].Offset(), Target: node.Offset(), Length: 64, Sum: lock.Sum(make([]byte, 64))})
		}
		var used []byte // of the word that comes second
		fill := bytes.Repeat([]byte{0xff}, 8)
		repairs := 0
		cl.SetRebuild(func(_ *pool.Session, w pool.Word, _ uint64, _ []byte) (uint64, uint64, error) {
			if repairs++; repairs > 1 {
				return 0, 0, nil
			}
			second := nodes[0]
			if w.Node == second {
				second = nodes[1]
			}
			o.Begin()
			_, err := o.Acquire(pool.Word{At: second + 248, Node: second})
			must(t, err)
			must(t, o.PostRelease(0, 0))
			used = c.Memory(1, verbs.RegionData)[second.Offset()+248:][:8]
			copy(used, fill)
			return 0, 0, nil
		})
		must(t, s.RepairWords())
		if used == nil || !bytes.Equal(used, fill) || repairs != 1 {
			t.Errorf("memory that is used again is %x, after %d repairs", used, repairs)
		}
		must(t, cl.Alive())
	})
}

// TestIntentShareAtOnce: sessions that take their first slots at once have no more than the share
// of their client.
func TestIntentShareAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		w := simenv.New(simenv.Options{Seed: seed, Preempt: 6})
		c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 8})
		must(t, err)
		must(t, w.Run(func(p *simenv.Process) {
			cl, err := c.Open(p)
			must(t, err)
			refused := 0
			g := env.NewWaitGroup(p)
			for i := range 7 {
				node, err := cl.Allocate(256, pool.Nil)
				must(t, err)
				s, err := cl.NewSession(4096)
				must(t, err)
				g.Go(fmt.Sprint("session ", i), func() {
					s.Begin()
					_, err := s.Acquire(pool.Word{At: node, Node: node})
					if errors.Is(err, pool.ErrNoIntent) {
						refused++
						return
					}
					must(t, err)
					must(t, s.PostRelease(0, 0))
				})
			}
			g.Wait(env.Forever)
			if n := c.UsedIntents(1); n != 4 || refused != 3 {
				t.Errorf("seed %d: a client has %d slots, of 4, and %d sessions were refused", seed, n, refused)
			}
		}))
	}
}

// TestWordOfAnotherOperation: what a session's slot names after BeginIn is as old as the address.
// So memory of the word is not used again while the slot names it, though the session's operation
// began when the client knew of an epoch more.
func TestWordOfAnotherOperation(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		nodes := onServer1(t, owner, 2)
		cl, err := c.Open(p)
		must(t, err)
		outer, err := cl.NewSession(4096)
		must(t, err)
		inner, err := cl.NewSession(4096)
		must(t, err)
		w := pool.Word{At: nodes[0] + 248, Node: nodes[0]}
		outer.Begin() // gets the address
		began := outer.Stamp()
		owner.Retire(nodes[1], 256) // so that epochs grow
		for i := 0; ; i++ {
			if inner.Begin(); inner.Stamp() > began {
				break
			}
			inner.End()
			if i == 100 {
				t.Fatal("no epoch comes")
			}
			p.Sleep(lease / 10)
		}
		inner.BeginIn(outer)
		if inner.Stamp() != began {
			t.Errorf("an operation in one of %d began at %d", began, inner.Stamp())
		}
		_, ok, err := inner.TryAcquire(w)
		must(t, err)
		if !ok {
			t.Fatal("the word is not free")
		}
		must(t, inner.PostRelease(0, 0))
		inner.End()
		owner.Retire(nodes[0], 256)
		p.Sleep(lease)
		if owner.Reclaimed() != 0 {
			t.Error("a node came back while an operation has its address")
		}
		outer.End()
		for i := 0; owner.Reclaimed() < 2; i++ {
			if i == 100 {
				t.Fatal("the nodes are never free")
			}
			p.Sleep(lease / 10)
		}
		for at := range c.Options.Intents {
			b := c.Memory(1, verbs.RegionData)[12<<10+at*lock.SlotBytes:][:lock.SlotBytes]
			var slot lock.Slot
			if slot.Decode(b); slot.Names && slot.Name.Word == w.At.Offset() {
				t.Errorf("slot %d names a word of memory that is free", at)
			}
		}
	})
}

// TestIdleSlotsBesideUncached: the slot of a session that rests holds up neither class of memory,
// also when only uncached memory is given up, for which no floor rises.
func TestIdleSlotsBesideUncached(t *testing.T) {
	calm(t, func(c *poolsim.Cluster, p *simenv.Process) {
		cl, err := c.Open(p)
		must(t, err)
		nodes := onServer1(t, cl, 2)
		s, err := cl.NewSession(4096)
		must(t, err)
		s.Begin()
		_, err = s.Acquire(pool.Word{At: nodes[0] + 248, Node: nodes[0]})
		must(t, err)
		must(t, s.PostRelease(0, 0))
		s.End()
		cl.RetireUncached(nodes[1], 256)
		for i := 0; cl.Reclaimed() == 0; i++ {
			if i == 100 {
				t.Fatal("the node is never free")
			}
			p.Sleep(lease / 10)
		}
	})
}
