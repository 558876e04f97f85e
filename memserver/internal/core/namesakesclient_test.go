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

// idClient is a client of the idWorld in one of its lives.
type idClient struct {
	*simenv.Process
	w      *idWorld
	random *rand.Rand
	number uint32
	at     []*idSeat // by server
	closed bool
}

// idSeat is what a client has at one server.
type idSeat struct {
	s     *idServer
	qp    verbs.QP
	conn  verbs.Conn
	word  []byte
	until time.Duration // of the lease
	now   Joined
	has   []uint32 // chunks
}

// client is process number n of the clients. Killed, it comes again.
func (w *idWorld) client(n int) {
	p := w.NewDrifting(clientName(n))
	var h *idClient
	end := func() {
		if h != nil && w.living[h.number] {
			delete(w.living, h.number)
			w.dead = append(w.dead, h.number)
		}
	}
	p.AtKill(func() {
		end()
		if !w.over {
			w.After(w.UpTo(simLease/4), nil, func() { w.client(n) })
		}
	})
	random := rand.New(rand.NewPCG(w.Seed(), uint64(1000+w.lives)))
	p.Go("main", func() {
		for !w.over {
			h = &idClient{Process: p, w: w, random: random}
			h.live(clientName(n))
			end()
			p.Sleep(w.UpTo(simLease / 8))
		}
	})
}

func (h *idClient) live(name string) {
	w := h.w
	for !h.register(name) {
		if h.Sleep(w.UpTo(simLease / 4)); w.over {
			return
		}
	}
	for _, s := range w.servers {
		if !h.connect(s) {
			h.part()
			return
		}
	}
	for n := 5 + h.random.IntN(40); n > 0 && !h.closed && !w.over; n-- {
		h.Sleep(time.Duration(h.random.Int64N(int64(simLease / 8))))
		if h.random.IntN(40) == 0 {
			h.Kill()
			return
		}
		if h.random.IntN(30) == 0 {
			p := h.Process
			w.After(0, nil, p.Freeze)
			w.After(w.UpTo(3*simLease), nil, p.Thaw)
			h.Sleep(time.Microsecond)
		}
		seat := h.at[h.random.IntN(len(h.at))]
		if h.renew(); h.closed {
			break
		}
		var err error
		switch h.random.IntN(4) {
		case 0:
			h.keys()
		case 1:
			h.chunk(seat)
		default:
			err = h.lock(seat)
		}
		if err != nil {
			break
		}
	}
	h.part()
}

func (h *idClient) register(name string) bool {
	var number uint32
	err := h.w.call(h.Process, h.w.servers[0], func(c *Core) error {
		err := c.Accounts.Change(Grow, func(l *ledger.Ledger) (err error) { number, err = l.Register(simIndex, name); return err })
		if errors.Is(err, ledger.ErrExhausted) {
			h.w.missing++
		}
		if err == nil {
			h.w.born(number)
			h.number = number // else it stays as a client of which nobody knows
			if half := h.w.servers[0].half; half != nil {
				half.Record(func() {
					if h.number == number {
						h.number = 0
					}
				})
			}
		}
		return err
	})
	if err != nil && h.number != 0 { // its answer is lost
		h.w.doomed[h.number] = true
		delete(h.w.living, h.number)
		h.w.dead = append(h.w.dead, h.number)
		lost := h.number
		h.number = 0
		h.w.main.Go("fence one that nobody knows", func() { h.w.fenceAll(h.w.main, lost) })
	}
	return err == nil
}

// fenceAll fences a client everywhere, however long that takes.
func (w *idWorld) fenceAll(p *simenv.Process, number uint32) {
	w.doomed[number] = true
	for _, s := range w.servers {
		for !w.over && !p.Dead() && w.call(p, s, func(c *Core) error {
			_, err := c.Fence(simIndex, []uint32{number}, false, simLease/4)
			return err
		}) != nil {
			p.Sleep(simLease / 4)
		}
	}
}

// part is the end of a life.
func (h *idClient) part() {
	h.closed = true
	for _, seat := range h.at {
		if h.random.IntN(2) == 0 {
			seat.conn.Close()
		}
	}
	number, w := h.number, h.w
	delete(w.living, number)
	w.dead = append(w.dead, number)
	w.doomed[number] = true
	if h.random.IntN(3) > 0 {
		w.main.Go("part", func() { w.fenceAll(w.main, number) })
		return
	}
	// Its leases run out. Where it has none it is fenced as its successor does it.
	w.main.Go("fence a predecessor", func() {
		w.main.Sleep(2 * simLease)
		w.fenceAll(w.main, number)
	})
}

func (h *idClient) connect(s *idServer) bool {
	seat := &idSeat{s: s}
	var token verbs.Token
	var asked time.Duration
	for tries := 0; ; tries++ {
		asked = h.Now()
		err := h.w.call(h.Process, s, func(c *Core) (err error) {
			_, token, seat.now, err = c.Connect(simIndex, h.number, c.Provider("sim"), Caller{})
			return err
		})
		if err == nil {
			break
		}
		if tries == 20 || h.w.over || errors.Is(err, ledger.ErrFenced) {
			return false
		}
		if errors.Is(err, ledger.ErrUnknownClient) {
			h.w.Report("client %d is not let in by server %d: %v", h.number, s.n, err)
		}
		h.Sleep(simLease / 4)
	}
	seat.until = asked + simLease*7/8
	device := h.w.fabric.Device(h.Process)
	arena, err := device.NewArena(64)
	if err == nil {
		seat.word, err = arena.Alloc(8)
	}
	if err == nil {
		seat.conn, err = device.Connect(verbs.Target{Address: s.address, Token: token, Incarnation: 1}, simLease)
	}
	if err == nil {
		seat.qp, err = seat.conn.NewQP(arena)
	}
	if err == nil {
		h.at = append(h.at, seat)
	}
	return err == nil
}

// renew renews the leases, and gives the client up where one is over.
func (h *idClient) renew() {
	for _, seat := range h.at {
		asked := h.Now()
		if asked >= seat.until {
			h.closed = true
			return
		}
		err := h.w.call(h.Process, seat.s, func(c *Core) error {
			_, err := c.Renew(simIndex, h.number, epochsOf(seat.now))
			if err == nil && h.w.latest[uint16(h.number)] != h.number {
				h.w.Report("client %d renews its lease, though client %d has its id", h.number, h.w.latest[uint16(h.number)])
			}
			return err
		})
		switch {
		case err == nil:
			seat.until = asked + simLease*7/8
		case errors.Is(err, ledger.ErrFenced):
			h.w.suspect(nil, h.number)
			h.closed = true
			return
		}
	}
}

// lock acquires a lock and releases it. Until then the lock has the client's id, unless the client
// is fenced.
func (h *idClient) lock(seat *idSeat) error {
	lock, me := h.random.IntN(idLocks), uint16(h.number)
	found, err := h.swap(seat, lock, func(holder uint16) bool { return holder == 0 || holder == ledger.NoClient }, me)
	if err != nil || found == me || found != 0 && found != ledger.NoClient {
		return err
	}
	h.Sleep(time.Duration(h.random.Int64N(int64(simLease / 8))))
	found, err = h.swap(seat, lock, func(holder uint16) bool { return holder == me }, 0)
	if err == nil && found != me {
		if l := seat.s.ledgerOf(); l.Live(simIndex, h.number) == nil {
			h.w.Report("client %d lives at server %d, and its lock %d has %d", h.number, seat.s.n, lock, found)
		}
	}
	return err
}

// swap puts id into a lock whose holder may be replaced, and returns the holder that it found.
func (h *idClient) swap(seat *idSeat, lock int, may func(holder uint16) bool, id uint16) (found uint16, err error) {
	guess, shift := uint64(0), 16*(lock%4)
	for {
		next := guess&^(0xFFFF<<shift) | uint64(id)<<shift
		if err := verbs.Post(seat.qp, []verbs.Request{{
			Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: uint64(lock / 4 * 8), Local: seat.word, Compare: guess, Swap: next,
		}}); err != nil {
			return 0, err
		}
		old := binary.NativeEndian.Uint64(seat.word)
		if found = uint16(old >> shift); old == guess && may(found) || !may(found) {
			return found, nil
		}
		guess = old
	}
}

// chunk allocates a chunk, or frees one.
func (h *idClient) chunk(seat *idSeat) {
	w, s := h.w, seat.s
	if n := len(seat.has); n > 0 && h.random.IntN(2) == 0 {
		chunk := seat.has[n-1]
		seat.has = seat.has[:n-1]
		_ = w.call(h.Process, s, func(c *Core) error { return free(c, h.number, chunk) })
		return
	}
	var chunk uint32
	if w.call(h.Process, s, func(c *Core) (err error) { chunk, err = allocate(c, h.number); return err }) == nil {
		seat.has = append(seat.has, chunk)
	}
}

// keys claims keys, fences those that stand in the way at the other servers, and settles.
func (h *idClient) keys() {
	w, home := h.w, h.w.servers[0]
	claim := ledger.Claim{Client: h.number, Log: fmt.Append(nil, h.number)}
	if h.random.IntN(2) == 0 {
		claim.Start = []byte("k")
	} else {
		claim.End = []byte("k")
	}
	for range 2 {
		var own []ledger.Holding
		var blocked []ledger.Blocked
		if w.call(h.Process, home, func(c *Core) (err error) { own, blocked, err = c.Acquire(simIndex, claim); return err }) != nil {
			return
		}
		for _, g := range own {
			_ = w.call(h.Process, home, func(c *Core) error { return c.Settle(simIndex, h.number, g.Start, g.End, g.Epoch) })
		}
		for _, b := range blocked {
			if b.Why != ledger.Elsewhere {
				continue
			}
			w.doomed[b.Client] = true
			fenced := true
			for _, s := range w.servers[1:] {
				fenced = fenced && w.call(h.Process, s, func(c *Core) error {
					_, err := c.Fence(simIndex, []uint32{b.Client}, false, simLease/4)
					return err
				}) == nil
			}
			if fenced {
				claim.Fenced = append(claim.Fenced, b.Client)
			}
		}
		if len(claim.Fenced) == 0 {
			return
		}
	}
}
