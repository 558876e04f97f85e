package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// simHolder is a client of the fence world in one of its lives.
type simHolder struct {
	*simenv.Process
	w      *fenceWorld
	random *rand.Rand
	id     uint32
	device verbs.Device
	arena  *verbs.Arena
	conn   verbs.Conn
	qp     verbs.QP
	word   []byte
	own    []byte
	asked  time.Duration // when the last of its patient calls was made, on its own clock
	until  time.Duration // of its lease
	closed bool
}

// client is process number n of the clients. Killed, it comes again.
func (w *fenceWorld) client(n int) {
	name := clientName(n)
	p := w.NewDrifting(name)
	w.living = append(w.living, p)
	p.AtKill(func() {
		if !w.over {
			w.After(w.UpTo(simLease), nil, func() { w.client(n) })
		}
	})
	random := rand.New(rand.NewPCG(w.Seed(), uint64(100+w.lives)))
	p.Go("main", func() {
		for !w.over && w.lives < simClients-10 {
			w.lives++
			h := &simHolder{Process: p, w: w, random: random, device: w.fabric.Device(p)}
			h.live(name)
		}
	})
}

func clientName(n int) string { return fmt.Sprint("client-", n) }

// live is one life: it registers, fences what its former lives left, works, and mostly fences
// itself at its end.
func (h *simHolder) live(name string) {
	for h.id == 0 {
		if h.w.over {
			return
		}
		var id uint32 // a call that was given up may still come through, and register one more
		if h.patiently(func(c *Core) error {
			return c.Accounts.Change(Grow, func(l *ledger.Ledger) (err error) { id, err = l.Register(simIndex, name); return err })
		}) == nil {
			h.id = id
		}
	}
	if h.id >= simClients {
		return
	}
	var before []uint32
	h.patiently(func(c *Core) (err error) {
		before = before[:0]
		c.Accounts.Read(func(l *ledger.Ledger) {
			var all []ledger.Client
			all, err = l.Clients(simIndex, name)
			for _, other := range all {
				if !other.Fenced && other.Number != h.id {
					before = append(before, other.Number)
				}
			}
		})
		return err
	})
	if len(before) > 0 {
		h.w.fence(h.Process, before)
	}
	h.arena, _ = h.device.NewArena(4096)
	h.word, _ = h.arena.Alloc(8)
	h.own, _ = h.arena.Alloc(ownBytes)
	if !h.connect() {
		return
	}
	h.Go("keeper", h.keep)
	for n := 20 + h.random.IntN(400); n > 0 && !h.closed && !h.w.over; n-- {
		h.Sleep(time.Duration(h.random.Int64N(int64(300 * time.Microsecond))))
		h.reclaim()
		if h.random.IntN(2) == 0 {
			h.answer()
		} else if h.work() != nil && !h.connect() {
			break
		}
	}
	h.closed = true
	if h.random.IntN(3) > 0 && h.conn != nil {
		h.conn.Close()
	}
	if h.random.IntN(3) > 0 {
		h.w.fence(h.Process, []uint32{h.id})
	}
}

// patiently makes a control call until it is answered, or for three leases.
func (h *simHolder) patiently(f func(c *Core) error) (err error) {
	for end := h.Now() + 3*simLease; h.Now() < end && !h.Dead(); h.Sleep(simLease / 10) {
		h.asked = h.Now()
		if err = h.w.call(h.Process, simLease/2, f); err == nil || errors.Is(err, ledger.ErrFenced) {
			return err
		}
	}
	return err
}

// connect gets a connection and a lease; false if there is none to be had.
func (h *simHolder) connect() bool {
	for tries := 0; tries < 20 && !h.Dead() && !h.w.over; tries++ {
		var token verbs.Token
		var epoch uint64
		err := h.patiently(func(c *Core) (err error) {
			var now Joined
			_, token, now, err = c.Connect(simIndex, h.id, c.Provider("sim"), Caller{})
			if epoch = now.Epoch; err == nil {
				h.w.join(h.id, epoch)
			}
			return err
		})
		if err != nil {
			return false
		}
		h.learn(epoch)
		h.extend(h.asked)
		if h.random.IntN(4) == 0 {
			h.stumble()
		}
		if h.conn, err = h.device.Connect(verbs.Target{Address: "memory", Token: token, Incarnation: 1}, simLease); err == nil {
			if h.qp, err = h.conn.NewQP(h.arena); err == nil {
				return true
			}
		}
	}
	return false
}

// keep renews the lease.
func (h *simHolder) keep() {
	for !h.closed && !h.w.over {
		h.stumble()
		asked := h.Now()
		switch err := h.renew(); {
		case err == nil:
			h.extend(asked)
		case errors.Is(err, ledger.ErrFenced), errors.Is(err, errStranger):
			h.closed = true
			return
		}
		h.Sleep(time.Duration(h.random.Int64N(int64(simLease / 8))))
	}
}

// extend is what a holder does with a lease that it asked for at a time of its clock.
func (h *simHolder) extend(asked time.Duration) {
	if h.w.wrong == lateLease {
		asked = h.Now()
	}
	h.until = max(h.until, asked+simLease*7/8)
}

// stumble lets the process stand still soon, at times: where it hurts most.
func (h *simHolder) stumble() {
	if h.random.IntN(12) == 0 {
		p := h.Process
		h.w.After(time.Duration(h.random.Int64N(int64(120*time.Microsecond))), nil, p.Freeze)
		h.w.After(time.Duration(h.random.Int64N(int64(5*simLease/2))), nil, p.Thaw)
	}
}

// answer gives an answer from what it has cached, as an owner may while its lease is valid: looked
// at before and after.
func (h *simHolder) answer() {
	if h.Now() >= h.until {
		return
	}
	h.stumble()
	h.Sleep(time.Duration(h.random.Int64N(int64(100 * time.Microsecond))))
	if h.w.wrong != noSecondLook && h.Now() >= h.until {
		h.w.late++
		return
	}
	h.w.answered(h.id)
}

// work takes a lock, changes what is its own, and gives the lock back. It does not look at its
// lease: that is what fencing is for.
func (h *simHolder) work() error {
	lock := h.random.IntN(simLocks)
	if got, err := h.swap(lock, func(holder uint16) bool { return holder == 0 || holder == ledger.NoClient }, uint16(h.id)); !got {
		return err
	}
	if h.random.IntN(8) == 0 {
		h.stumble()
	}
	seq := binary.NativeEndian.Uint64(h.own) + 1
	for i := 0; i < ownBytes; i += 8 {
		binary.NativeEndian.PutUint64(h.own[i:], seq)
	}
	if err := verbs.Post(h.qp, []verbs.Request{
		{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: countersFrom + 8*uint64(h.id), Local: h.word, Add: 1},
		{Op: verbs.Write, Remote: ownBytes * uint64(h.id), Local: h.own},
	}); err != nil {
		return err
	}
	_, err := h.swap(lock, func(holder uint16) bool { return holder == uint16(h.id) }, 0)
	return err
}

// swap puts id into a lock whose holder may be replaced.
func (h *simHolder) swap(lock int, may func(holder uint16) bool, id uint16) (bool, error) {
	guess, shift := uint64(0), 16*(lock%4)
	for range 20 {
		next := guess&^(0xFFFF<<shift) | uint64(id)<<shift
		if err := verbs.Post(h.qp, []verbs.Request{{
			Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: uint64(lock / 4 * 8), Local: h.word, Compare: guess, Swap: next,
		}}); err != nil {
			return false, err
		}
		old := binary.NativeEndian.Uint64(h.word)
		if old == guess {
			return may(uint16(old >> shift)), nil
		}
		if guess = old; !may(uint16(guess >> shift)) {
			return false, nil
		}
	}
	return false, nil
}

// fence ends clients, whatever that takes, within some leases.
func (w *fenceWorld) fence(p *simenv.Process, ids []uint32) (done bool) {
	for _, id := range ids {
		if int(id) < simClients {
			w.explicit[id] = true
		}
	}
	for tries := 0; tries < 30 && !p.Dead(); tries++ {
		limit := time.Millisecond + w.UpTo(simLease)
		err := w.call(p, 2*limit, func(c *Core) error {
			_, err := c.Fence(simIndex, ids, false, limit)
			if err == nil {
				w.quiet(ids)
			}
			return err
		})
		if err == nil {
			return true
		}
		p.Sleep(w.UpTo(simLease / 4))
	}
	return false
}
