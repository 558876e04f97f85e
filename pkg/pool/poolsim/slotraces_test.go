package poolsim_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Where the parts of the name are that an intent slot begins with: see package lock.
const (
	slotName   = 8
	nameNumber = 16
	nameBytes  = 24
)

// slotWorld is a memory server, and a client with a device that has hooks.
type slotWorld struct {
	c       *poolsim.Cluster
	intents uint64 // where the slots begin
	device  *hookedDevice
	cl      *pool.Pool
}

// inSlotWorld runs body with a client whose control path is what wrap makes of it. namesAlone:
// slots name words of strips, too.
func inSlotWorld(t *testing.T, namesAlone bool, wrap func(*slotWorld, pool.Control) pool.Control, body func(h *slotWorld, p *simenv.Process)) {
	t.Helper()
	w := simenv.New(simenv.Options{Seed: 1, MaxEvents: 1_000_000})
	h := &slotWorld{}
	var err error
	h.c, err = poolsim.New(w, poolsim.Options{Servers: 1, Locks: 4, Lease: lease, Intents: 4, Chunks: 6, ChunkBytes: 16 << 10, NamesAlone: namesAlone,
		Fabric: sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}}})
	must(t, err)
	must(t, w.Run(func(p *simenv.Process) {
		h.device = &hookedDevice{Device: h.c.Fabric.Device(p)}
		h.intents = intentsOf(t, h.c, p)
		control := h.c.Control(p)
		if wrap != nil {
			control = wrap(h, control)
		}
		h.cl, err = pool.Open(pool.Config{Env: p, Control: control, Devices: []verbs.Device{h.device}, Identity: poolsim.Identity})
		must(t, err)
		body(h, p)
	}))
}

// intentsOf is where the slots of server 1 begin, as a client that never works is told.
func intentsOf(t *testing.T, c *poolsim.Cluster, p *simenv.Process) uint64 {
	control := c.Control(p)
	id, err := control.Register(time.Second)
	must(t, err)
	g, err := control.Connect(1, id, time.Second)
	must(t, err)
	must(t, control.Fence(1, []uint32{id}, time.Second))
	return g.Intents
}

// slotOf is the slot in which a request changes bytes from part on; ok is false if it does not.
func (h *slotWorld) slotOf(r *verbs.Request, part uint64) (slot uint64, ok bool) {
	if r.Region != verbs.RegionData || r.Op == verbs.Read || r.Remote < h.intents {
		return 0, false
	}
	at := r.Remote - h.intents
	return at / pool.IntentBytes, at/pool.IntentBytes < 4 && at%pool.IntentBytes == part
}

// clears reports whether a list clears the name in a slot, and does no more.
func (h *slotWorld) clears(list []verbs.Request) bool {
	_, ok := h.slotOf(&list[0], slotName)
	return ok && len(list) == 1 && list[0].Op == verbs.Write && len(list[0].Local) == 8
}

// acquire acquires a word and releases it.
func acquire(s *pool.Session, w pool.Word) error {
	s.Begin()
	defer s.End()
	if _, err := s.Acquire(w); err != nil {
		return err
	}
	return s.PostRelease(0, 0)
}

// TestSlotNumbersNeverComeAgain: a session claims the slot that its client gives back just now,
// before what gives it back knows that this took effect. The numbers of the slot go on all the
// same: a change that is cut short must not verify with what an earlier one left there.
func TestSlotNumbersNeverComeAgain(t *testing.T) {
	inSlotWorld(t, false, nil, func(h *slotWorld, p *simenv.Process) {
		last := map[uint64]uint32{} // by slot
		named := 0
		h.device.posts = func(list []verbs.Request) error {
			for i := range list {
				slot, ok := h.slotOf(&list[i], slotName)
				if !ok || len(list[i].Local) != nameBytes {
					continue
				}
				number := binary.LittleEndian.Uint32(list[i].Local[nameNumber:])
				if named++; number <= last[slot] {
					t.Errorf("slot %d is used with number %d, after number %d", slot, number, last[slot])
				}
				last[slot] = number
			}
			return nil
		}
		given, used := p.NewEvent(), p.NewEvent()
		h.device.done = func(list []verbs.Request) {
			r := &list[len(list)-1]
			if _, ok := h.slotOf(r, 0); ok && r.Op == verbs.CompareSwap && r.Compare == uint64(h.cl.Client()) && r.Swap == 0 {
				given.Set()
				used.Wait(lease)
			}
		}
		node, err := h.cl.Allocate(256, pool.Nil)
		must(t, err)
		w := pool.Word{At: node, Node: node}
		idle, err := h.cl.NewSession(4096)
		must(t, err)
		for range 3 {
			must(t, acquire(idle, w))
		}
		if !given.Wait(10 * lease) {
			t.Fatal("the idle slot is never given back")
		}
		other, err := h.cl.NewSession(4096)
		must(t, err)
		must(t, acquire(other, w))
		used.Set()
		p.Sleep(lease)
		must(t, acquire(other, w))
		if named != 5 || len(last) != 1 {
			t.Errorf("%d acquisitions used %d slots: that proves little", named, len(last))
		}
		must(t, h.cl.Close())
	})
}

// freesChunks tells when a chunk goes back to its memory server.
type freesChunks struct {
	pool.Control
	before func(offset uint64)
}

// FreeChunk implements pool.Control.
func (f freesChunks) FreeChunk(id uint16, client uint32, offset uint64, limit time.Duration) error {
	f.before(offset)
	return f.Control.FreeChunk(id, client, offset, limit)
}

// halfChunk is the size of nodes of which a chunk has two, each in a run of its own.
const halfChunk = 7900

// leaveStrips allocates two nodes of a chunk, each with a strip of its own, and lets a client die
// that holds the word of the first one.
func leaveStrips(t *testing.T, h *slotWorld, p *simenv.Process) (words [2]pool.Word) {
	t.Helper()
	strips, err := h.cl.DeclareStrip(halfChunk)
	must(t, err)
	for i := range words {
		node, err := h.cl.AllocateBlock(halfChunk, pool.Nil)
		must(t, err)
		at, err := strips.WordOf(node)
		must(t, err)
		words[i] = pool.Word{At: at, Node: node, InStrip: true}
	}
	victim, over := p.World().NewProcess("victim"), p.NewEvent()
	device := &hookedDevice{Device: h.c.Fabric.Device(victim)}
	// Of the rewrite, only the image and the change take effect.
	device.posts = func(list []verbs.Request) error {
		if len(list) < 5 || !list[len(list)-1].Op.Atomic() {
			return nil
		}
		for _, r := range list[:2] {
			copy(h.c.Memory(1, r.Region)[r.Remote:], r.Local)
		}
		over.Set()
		victim.Sleep(time.Hour)
		return nil
	}
	var id uint32
	victim.Go("main", func() {
		cl, err := pool.Open(pool.Config{Env: victim, Control: h.c.Control(victim), Devices: []verbs.Device{device}, Identity: poolsim.Identity})
		must(t, err)
		id = cl.Client()
		rewriteUnder(t, cl, words[0])
	})
	over.Wait(env.Forever)
	victim.Kill()
	must(t, h.c.Control(p).Fence(1, []uint32{id}, time.Second))
	if h.c.UsedIntents(1) != 1 {
		t.Fatal("the client that died owes nothing")
	}
	return words
}

// touches reports whether a list is one request of the kind at a.
func touches(list []verbs.Request, atomic bool, a pool.Addr) bool {
	r := &list[0]
	return r.Region == verbs.RegionData && r.Remote == a.Offset() && (atomic && r.Op.Atomic() || !atomic && r.Op == verbs.Read)
}

// TestChunkWaitsUntilSlotsAreCleared: what clears slots is at the slot of who frees the words of a
// chunk. The chunk goes back only when that is confirmed, and no slot names a word of it.
func TestChunkWaitsUntilSlotsAreCleared(t *testing.T) {
	freed := false
	var cleared env.Event // before the WRITE that clears the slot may go on
	wrap := func(h *slotWorld, control pool.Control) pool.Control {
		return freesChunks{control, func(offset uint64) {
			freed = true
			cleared.Set()
			data := h.c.Memory(1, verbs.RegionData)
			for slot := range uint64(4) {
				b := data[h.intents+slot*pool.IntentBytes:]
				word := binary.LittleEndian.Uint64(b[slotName:])
				if binary.NativeEndian.Uint64(b) == uint64(h.cl.Client()) && word >= offset && word < offset+16<<10 {
					t.Errorf("the chunk at %#x goes back, and intent slot %d names word %#x of it", offset, slot, word)
				}
			}
		}}
	}
	inSlotWorld(t, true, wrap, func(h *slotWorld, p *simenv.Process) {
		cleared = p.NewEvent()
		words := leaveStrips(t, h, p)
		spare, err := h.cl.AllocateBlock(64, pool.Nil)
		must(t, err)
		acquires, clears := p.NewEvent(), p.NewEvent()
		waited, held, beside := false, false, false
		h.device.posts = func(list []verbs.Request) error {
			switch {
			case touches(list, true, words[0].At) && !waited:
				// until another epoch has come
				waited = true
				acquires.Set()
				p.Sleep(lease)
			case touches(list, false, words[1].At):
				beside = clears.Wait(5 * lease)
			case h.clears(list) && !held:
				held = true
				clears.Set()
				cleared.Wait(lease)
			}
			return nil
		}
		for _, w := range words {
			h.cl.Retire(w.Node, halfChunk)
		}
		if !acquires.Wait(20 * lease) {
			t.Fatal("the words of the chunk are never freed")
		}
		h.cl.RetireUncached(spare, 64)
		for i := 0; !freed; i++ {
			if i == 100 {
				t.Fatal("the chunk never goes back")
			}
			p.Sleep(lease / 10)
		}
		if !beside {
			t.Error("nothing cleared the slot meanwhile: that proves little")
		}
		h.device.posts = nil
		must(t, h.cl.Close())
	})
}

// TestSlotThatWasNotCleared: when the WRITE that clears the name of a slot is lost, nobody knows
// whether it takes effect later. The client is given up: its other sessions do not wait for the
// slot, and epochs do not wait for the name.
func TestSlotThatWasNotCleared(t *testing.T) {
	inSlotWorld(t, true, nil, func(h *slotWorld, p *simenv.Process) {
		words := leaveStrips(t, h, p)
		lost := errors.New("the list is lost")
		freeing := false
		h.device.posts = func(list []verbs.Request) error {
			switch {
			case touches(list, false, words[1].At):
				freeing = true
			case freeing && h.clears(list):
				return lost
			}
			return nil
		}
		for _, w := range words {
			h.cl.Retire(w.Node, halfChunk)
		}
		for i := 0; h.cl.Alive() == nil; i++ {
			if i == 100 {
				t.Fatal("the slot is not cleared, and the client goes on")
			}
			p.Sleep(lease / 10)
		}
		if err := h.cl.Alive(); !errors.Is(err, pool.ErrFenced) || !errors.Is(err, lost) {
			t.Errorf("the client was given up: %v", err)
		}
		_ = h.cl.Close()
	})
}

// TestChunkWaitsForRepairers: when the owner of a chunk is about to do what is owed under its
// words, another client finds the same, and stands still. The chunk goes back only when that client
// is done with the word.
func TestChunkWaitsForRepairers(t *testing.T) {
	repairing, freed := false, 0 // repairing: a client has the address of the word
	wrap := func(_ *slotWorld, control pool.Control) pool.Control {
		return freesChunks{control, func(offset uint64) {
			if freed++; repairing {
				t.Errorf("the chunk at %#x goes back while another client is about to acquire a word of it", offset)
			}
		}}
	}
	inSlotWorld(t, false, wrap, func(h *slotWorld, p *simenv.Process) {
		words := leaveStrips(t, h, p)
		frees, found, goesOn, over := p.NewEvent(), p.NewEvent(), p.NewEvent(), p.NewEvent()
		h.device.posts = func(list []verbs.Request) error {
			if touches(list, false, words[0].At) {
				h.device.posts = nil
				frees.Set()
				found.Wait(env.Forever)
			}
			return nil
		}
		for _, w := range words {
			h.cl.Retire(w.Node, halfChunk)
		}
		other := p.World().NewProcess("other")
		device := &hookedDevice{Device: h.c.Fabric.Device(other)}
		other.Go("main", func() {
			defer over.Set()
			cl, err := pool.Open(pool.Config{Env: other, Control: h.c.Control(other), Devices: []verbs.Device{device}, Identity: poolsim.Identity})
			must(t, err)
			s, err := cl.NewSession(4096)
			must(t, err)
			if !frees.Wait(20 * lease) {
				t.Error("the words of the chunk are never freed")
			}
			device.done = func(list []verbs.Request) {
				if touches(list, false, words[0].At) {
					device.done, repairing = nil, true
					found.Set()
					goesOn.Wait(5 * lease)
				}
			}
			must(t, s.RepairWords())
			repairing = false
			must(t, s.Close())
			for i := 0; freed == 0 && i < 100; i++ {
				other.Sleep(lease / 10)
			}
			must(t, cl.Close())
		})
		over.Wait(env.Forever)
		if freed != 1 {
			t.Errorf("the chunk went back %d times", freed)
		}
		must(t, h.cl.Close())
	})
}
