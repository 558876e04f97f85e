package ownership

import (
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
)

// takeOver is that this server began to serve keys whose former owner had died: it replayed logs.
type takeOver struct {
	start, end []byte
	epoch      uint64
	clients    []uint32      // whose logs
	took       time.Duration // since this server was to have the keys
	at         time.Duration
}

// TakeOvers are the last ones of a server, for people. Those of all its clients, one after the
// other.
type TakeOvers struct {
	mu   env.Mutex
	last []takeOver // oldest first
}

// NewTakeOvers is empty.
func NewTakeOvers(e env.Env) *TakeOvers { return &TakeOvers{mu: e.NewMutex()} }

// takeOversKept is how many are remembered: the operator looks at them every 20 s.
const takeOversKept = 16

// note remembers that a range is served from now on, if logs had to be replayed for it, and returns
// whose logs.
func (t *TakeOvers) note(r heldRange, now time.Duration) (clients []uint32) {
	if len(r.Inherits) == 0 {
		return nil
	}
	o := takeOver{start: r.Start, end: r.End, epoch: r.Epoch, took: now - r.began, at: now}
	for _, in := range r.Inherits {
		if !slices.Contains(o.clients, uint32(in.Client)) {
			o.clients = append(o.clients, uint32(in.Client))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.last) == takeOversKept {
		t.last = slices.Delete(t.last, 0, 1)
	}
	t.last = append(t.last, o)
	return o.clients
}

// Describe is what Describe says of them.
func (t *TakeOvers) Describe(now time.Duration) (all []*rpcv1.TakeOver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.last {
		all = append(all, &rpcv1.TakeOver{
			Start: o.start, End: o.end, Epoch: o.epoch, Clients: o.clients,
			TookMilliseconds: uint64(o.took.Milliseconds()), AgeMilliseconds: uint64((now - o.at).Milliseconds()),
		})
	}
	return all
}
