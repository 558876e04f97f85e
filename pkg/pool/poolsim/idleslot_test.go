package poolsim_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestIdleSlotsAreGivenBack: a session that acquires no word for two leases has no slot any more,
// another client gets it, and the session gets another one when it acquires a word again. A session
// that works keeps its slot.
func TestIdleSlotsAreGivenBack(t *testing.T) {
	w := simenv.New(simenv.Options{Seed: 1})
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 2})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		open := func() (*pool.Session, pool.Word) {
			cl, err := c.Open(p)
			must(t, err)
			s, err := cl.NewSession(4096)
			must(t, err)
			node, err := cl.Allocate(256, pool.Nil)
			must(t, err)
			return s, pool.Word{At: node, Node: node}
		}
		work := func(s *pool.Session, w pool.Word) error {
			s.Begin()
			defer s.End()
			if _, err := s.Acquire(w); err != nil {
				return err
			}
			return s.PostRelease(0, 0)
		}
		idle, idleWord := open()
		busy, busyWord := open()
		third, thirdWord := open()
		must(t, work(idle, idleWord))
		for range 50 {
			must(t, work(busy, busyWord))
			p.Sleep(lease / 20)
		}
		if n := c.UsedIntents(1); n != 1 {
			t.Fatalf("%d slots are used; one session works, the other one is idle", n)
		}
		must(t, work(third, thirdWord))
		if err := work(idle, idleWord); !errors.Is(err, pool.ErrNoIntent) {
			t.Fatalf("there were more slots than there are: %v", err)
		}
		for range 50 {
			must(t, work(busy, busyWord))
			p.Sleep(lease / 20)
		}
		must(t, work(idle, idleWord))
	}))
}

// TestIdleSlotNamesNothing: a slot that was given back names no word any more. A client that claims
// it again, and dies before it names another one, does no harm to memory that was a word before.
func TestIdleSlotNamesNothing(t *testing.T) {
	late := 0
	for part := 1; ; part++ {
		again, died := idleSlotClaimedAgain(t, part)
		if again {
			late++
		}
		if !died {
			break
		}
	}
	if late < 4 {
		t.Errorf("the client died %d times when it claimed its slot again: that would prove little", late)
	}
}

// idleSlotClaimedAgain lets a client die after a part of its requests. again reports that it had
// begun to claim its slot again, died that it died.
func idleSlotClaimedAgain(t *testing.T, part int) (again, died bool) {
	w := simenv.New(simenv.Options{Seed: 1})
	plan := &sim.Plan{
		Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}, Tear: 2, Delay: 100, Gap: 100,
		Faults: []sim.Fault{{Kind: sim.Crash, Process: "holder", Part: part}},
	}
	c, err := poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 4, Fabric: sim.Options{Plan: plan}})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		owner, err := c.Open(p)
		must(t, err)
		s, err := owner.NewSession(4096)
		must(t, err)
		fill, err := s.Buffer(256)
		must(t, err)
		node, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		other, err := owner.Allocate(256, pool.Nil)
		must(t, err)
		holder, used, reused, over := w.NewProcess("holder"), p.NewEvent(), p.NewEvent(), false
		var id uint32
		holder.Go("main", func() {
			cl, err := c.Open(holder)
			must(t, err)
			id = cl.Client()
			s, err := cl.NewSession(4096)
			must(t, err)
			for _, a := range []pool.Addr{node, other} {
				s.Begin()
				_, err = s.Acquire(pool.Word{At: a + 248, Node: a})
				must(t, err)
				must(t, s.PostRelease(0, 0))
				s.End()
				if a == node {
					used.Set()
					reused.Wait(time.Hour)
				}
			}
			over = true
		})
		for !used.Wait(lease) {
			if holder.Dead() {
				died = true
				return
			}
		}
		p.Sleep(3 * lease) // its slot is given back
		if n := c.UsedIntents(1); n != 0 && !holder.Dead() {
			t.Fatalf("%d slots are used by a session that is idle", n)
		}
		owner.Retire(node, 256)
		for i := 0; owner.Reclaimed() == 0; i++ {
			if i == 100 {
				t.Fatal("the node is never free")
			}
			p.Sleep(lease / 10)
		}
		for i := 0; i < 256; i += 2 {
			binary.NativeEndian.PutUint16(fill[i:], uint16(id))
		}
		s.Write(pool.Sole, node, fill)
		must(t, s.Post())
		again = !holder.Dead()
		reused.Set()
		for !over && !holder.Dead() {
			p.Sleep(lease)
		}
		died = holder.Dead()
		again = again && died
		p.Sleep(3 * lease)
		if got := c.Memory(1, verbs.RegionData)[node.Offset():][:256]; !bytes.Equal(got, fill) {
			t.Errorf("dead after part %d: the fence changed memory that is used for something else: %x", part, got)
		}
	}))
	return again, died
}
