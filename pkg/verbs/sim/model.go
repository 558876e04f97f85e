package sim

import (
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Model is what NICs, network and the processors of clients cost. A NIC serves the messages of its
// queue one after the other, each in the time that the higher of two bounds gives: its message rate
// and its bandwidth. So small messages are bound by the rate, large ones by the bandwidth.
type Model struct {
	BaseRTT   time.Duration // of an empty message, with nothing else under way
	Bandwidth float64       // bytes a nanosecond, of every NIC in each direction

	// one over the messages a second, in each direction, of a NIC of a compute server, and of one
	// of a memory server
	ClientMessage, ServerMessage time.Duration

	// Processor time of a client for a list: to post it, and to poll for its end. Lists that are
	// posted side by side are posted one after the other.
	Post, Poll time.Duration
	// From the client's processor to its NIC. The requests behind the first come with it.
	Doorbell time.Duration
	// bytes up to which a WRITE's payload goes with the request; the NIC fetches longer ones
	Inline int
	Fetch  time.Duration // of such a payload over PCIe

	// A PCIe transaction of a memory server's NIC for a word in host memory. An atomic takes one to
	// fetch its word, and a second one if it changes the word (Sherman, section 3.2.2).
	AtomicPCIe time.Duration
	// An atomic on the NIC's own memory: one over their rate.
	AtomicOnChip time.Duration

	Cores    int           // of a memory server, for two-sided calls
	CallCost time.Duration // of one of them that is for the control service
	LookCost time.Duration // of one that an executor answers: two or three nodes
}

// Paper is what the papers' machines have: 100 Gbps NICs of the ConnectX-5 kind and 2 us of round
// trip; 110 million atomics a second on on-chip memory (Sherman, section 4.3); memory servers with
// four cores for calls (DEX, section 8.1). What a call costs them, message rates, PCIe and the
// processor time of a list are assumptions of ours.
func Paper() Model {
	return Model{
		BaseRTT:       2 * time.Microsecond,
		Bandwidth:     12.5,
		ClientMessage: 20 * time.Nanosecond,
		ServerMessage: 13 * time.Nanosecond,
		Post:          100 * time.Nanosecond,
		Poll:          100 * time.Nanosecond,
		Doorbell:      100 * time.Nanosecond,
		Inline:        220,
		Fetch:         300 * time.Nanosecond,
		AtomicPCIe:    300 * time.Nanosecond,
		AtomicOnChip:  9 * time.Nanosecond,
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

// message is how long n bytes of payload keep a NIC whose rate allows a message each min.
func (m *Model) message(minimum time.Duration, n int) time.Duration {
	return max(minimum, time.Duration(float64(n+header)/m.Bandwidth))
}

// sends is the payload that r takes to the server, and answers what comes back.
func sends(r *verbs.Request) int {
	switch r.Op {
	case verbs.Write:
		return len(r.Local)
	case verbs.Call:
		return r.Args
	}
	return 0
}

func answers(r *verbs.Request) int {
	if r.Op == verbs.Write {
		return 0
	}
	return len(r.Local)
}
