package sim

import (
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Model is what NICs and network cost. A NIC serves the messages of its queue one after the other,
// each in the time that the higher of two bounds gives: its message rate and its bandwidth. So
// small messages are bound by the rate, large ones by the bandwidth.
type Model struct {
	BaseRTT   time.Duration // of an empty message, with nothing else under way
	Bandwidth float64       // bytes a nanosecond, of every NIC in each direction

	ClientMessage time.Duration // a NIC of a compute server: one over its requests a second
	ServerMessage time.Duration // a NIC of a memory server: one over its requests a second

	// CPU and PCIe of posting one list; the requests behind the first come with it
	Doorbell time.Duration
	// bytes up to which a WRITE's payload goes with the request; the NIC fetches longer ones
	Inline int
	Fetch  time.Duration // of such a payload over PCIe

	// An atomic on host memory takes two PCIe transactions, the second only if it changes the word,
	// and atomics to addresses whose low 12 bits are the same wait for each other (Sherman, section
	// 3.2.2).
	AtomicPCIe time.Duration
	// An atomic on the NIC's own memory: one over their rate.
	AtomicOnChip time.Duration

	// what a client and its driver spend on one round trip, beside the network
	ClientStep time.Duration

	Cores    int           // of a memory server, for two-sided calls
	CallCost time.Duration // of one of them that is for the control service
	LookCost time.Duration // of one that an executor answers: two or three nodes
}

// Paper is what the papers' machines have: 100 Gbps NICs of the ConnectX-5 kind and 2 us of round
// trip; 110 million atomics a second on on-chip memory (Sherman, section 4.3); memory servers with
// four cores for calls (DEX, section 8.1); what a call costs them is an assumption of ours.
// ClientStep is such that 176 clients which READ 1 KiB nodes in a loop reach the 32 million a
// second that Sherman's table 1 reports of them.
func Paper() Model {
	return Model{
		BaseRTT:       2 * time.Microsecond,
		Bandwidth:     12.5,
		ClientMessage: 20 * time.Nanosecond,
		ServerMessage: 13 * time.Nanosecond,
		Doorbell:      100 * time.Nanosecond,
		Inline:        220,
		Fetch:         300 * time.Nanosecond,
		AtomicPCIe:    300 * time.Nanosecond,
		AtomicOnChip:  9 * time.Nanosecond,
		ClientStep:    3 * time.Microsecond,
		Cores:         4,
		CallCost:      2 * time.Microsecond,
		LookCost:      time.Microsecond,
	}
}

// header is what a request or answer takes on the wire beside its payload.
const header = 42

// line is a server of a queue: one message after the other.
type line struct{ free time.Duration }

// take serves what arrives at now for cost and says when it is through.
func (l *line) take(now, cost time.Duration) time.Duration {
	l.free = max(l.free, now) + cost
	return l.free
}

// cores are several servers of one queue.
type cores []time.Duration

func (c cores) take(now, cost time.Duration) time.Duration {
	first := 0
	for i := range c {
		if c[i] < c[first] {
			first = i
		}
	}
	c[first] = max(c[first], now) + cost
	return c[first]
}

// nic is one NIC: what it sends and what it receives are independent.
type nic struct{ out, in line }

// buckets is how many classes of conflicting atomics a NIC has: addresses of words with the same
// low 12 bits.
const buckets = 4096 / 8

// message is how long n bytes of payload keep a NIC whose rate allows a message each min.
func (m *Model) message(minimum time.Duration, n int) time.Duration {
	return max(minimum, time.Duration(float64(n+header)/m.Bandwidth))
}

// route says when a list that is posted now takes effect and when its poster knows it. Queues are
// taken in the order of posting: what is on the way for the same time arrives in that order.
func (f *Fabric) route(c *nic, s *Server, list []verbs.Request) (effect, done time.Duration) {
	m := &f.model
	at := f.world.Now() + m.ClientStep + m.Doorbell
	half := m.BaseRTT / 2
	for i := range list {
		r := &list[i]
		out, back := 0, len(r.Local)
		if r.Op == verbs.Write {
			out, back = len(r.Local), 0
			if out > m.Inline {
				at += m.Fetch
			}
		}
		sent := c.out.take(at, m.message(m.ClientMessage, out))
		at = sent
		arrived := s.nic.in.take(sent+half, m.message(m.ServerMessage, out))
		effect = max(effect, arrived)
		if r.Op.Atomic() {
			effect = s.atomic(m, r, effect)
		}
		if back > 0 {
			done = s.nic.out.take(effect, m.message(m.ServerMessage, back))
		}
	}
	// Only the last request is signalled; answers of READs and atomics come as they are.
	done = max(done, effect) + half
	return effect, c.in.take(done, 0)
}

// atomic is when an atomic that arrives at a time has taken effect.
func (s *Server) atomic(m *Model, r *verbs.Request, at time.Duration) time.Duration {
	if r.Region == verbs.RegionLocks && r.Remote < uint64(s.fabric.caps.DeviceMemory) {
		return s.chip.take(at, m.AtomicOnChip)
	}
	return s.buckets[r.Remote>>3%buckets].take(at, 2*m.AtomicPCIe)
}
