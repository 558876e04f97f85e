package ownership

import (
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
)

// takeOver is one take-over: this server replayed logs and began to serve keys whose former owner
// had died.
type takeOver struct {
	start, end []byte
	epoch      uint64
	clients    []uint32      // whose logs
	took       time.Duration // since the map gave the keys to this server
	at         time.Duration
}

// TakeOvers are the last take-overs of a server, by all its clients, for status and events.
type TakeOvers struct {
	mu   env.Mutex
	last []takeOver // oldest first
}

// NewTakeOvers returns an empty list.
func NewTakeOvers(e env.Env) *TakeOvers { return &TakeOvers{mu: e.NewMutex()} }

// takeOversKept bounds the list. The operator reads it every 20 s.
const takeOversKept = 16

// note records that a range is served from now on, if logs were replayed for it, and returns their
// clients.
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

// Describe returns the list for the Describe call.
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
