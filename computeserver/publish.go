//env:real connections to other servers, and goroutines that send to them

package computeserver

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/pubsub"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Bounds of what travels to other servers: docs/design/pubsub.md.
const (
	publishBatch      = 1024    // messages of one call
	publishBatchBytes = 1 << 20 // and their bytes, if it is more than one
	publishQueued     = 8192    // messages that wait for one server, and their bytes
	publishQueuedSize = 8 << 20
	publishLimit      = 2 * time.Second // of one call
	publishPatience   = time.Second     // that a publisher waits for room
	publishPause      = time.Second     // without a call to a server that failed
	publishFarewell   = time.Second     // in which the last messages are sent at the end
	subscriptionLimit = time.Second     // of ListSubscriptions
)

// publisher sends messages to the other servers of the map: a queue and a goroutine for each, made
// with the first message. Safe for concurrent use.
type publisher struct {
	core    *engine.Engine
	peers   *grpcPeers
	process uint64
	// number is that of the last batch, to whichever server, so that it grows for one that leaves
	// the map and comes back.
	number atomic.Uint64

	limit, patience, pause time.Duration // but in tests those above

	mu     sync.Mutex
	queues map[uint32]*publishQueue
	ended  bool
	all    sync.WaitGroup
}

func newPublisher(c *engine.Engine, peers *grpcPeers) *publisher {
	return &publisher{core: c, peers: peers, process: rand.Uint64(), limit: publishLimit, patience: publishPatience, pause: publishPause, queues: map[uint32]*publishQueue{}}
}

// others are the other servers of the map.
func (p *publisher) others() (all []partition.Server) {
	if m := p.core.View.Current(); m != nil {
		for _, s := range m.Servers {
			if s.ID != p.core.Self && s.RPC != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

// relay queues a message for all other servers. It waits for room no longer than patience in all,
// and not for a server that is away, or for which somebody waited in vain: those do not get it.
func (p *publisher) relay(m *pubsub.Message) {
	var patience *time.Timer
	for _, s := range p.others() {
		q := p.queue(s)
		if q == nil {
			return
		}
		room := q.add(m, p.core.Env.Now())
		for room != nil {
			if patience == nil {
				patience = time.NewTimer(p.patience)
				defer patience.Stop()
			}
			select {
			case <-room:
			case <-patience.C:
				q.giveUp()
				patience.Reset(0) // for the next server as well
			}
			room = q.add(m, p.core.Env.Now())
		}
	}
}

// queue is that of a server, or nil at the end. Those of servers that have left the map end.
func (p *publisher) queue(to partition.Server) *publishQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	q := p.queues[to.ID]
	if q == nil {
		q = &publishQueue{p: p, id: to.ID, wake: make(chan struct{}, 1), room: make(chan struct{})}
		p.queues[to.ID] = q
		p.all.Go(q.run)
	}
	return q
}

// retain ends the queues of all other servers.
func (p *publisher) retain(servers []partition.Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stays := map[uint32]bool{}
	for _, s := range servers {
		stays[s.ID] = true
	}
	for id, q := range p.queues { //env:real each is ended by itself
		if !stays[id] {
			delete(p.queues, id)
			q.end()
		}
	}
}

// end sends what is queued, for a short time, and ends.
func (p *publisher) end() {
	p.mu.Lock()
	p.ended = true
	for _, q := range p.queues { //env:real each is ended by itself
		q.end()
	}
	p.mu.Unlock()
	p.all.Wait() // a queue that has ended sends until publishFarewell, and gives up at an error
}

// publishQueue is what waits for one server. Its goroutine sends a batch at a time, so batches
// arrive in their order. What fails is not sent again: the other side may have it.
type publishQueue struct {
	p  *publisher
	id uint32

	wake chan struct{}

	mu       sync.Mutex
	messages []*pubsub.Message
	bytes    int
	room     chan struct{} // closed when there is some
	behind   bool          // somebody waited in vain; until all that waited was sent
	away     time.Duration // until then nothing is sent
	failed   bool          // the last batch did, so nobody waits
	ended    bool
}

func messageBytes(m *pubsub.Message) int { return len(m.Channel) + len(m.Payload) + 64 }

// add queues a message, or drops it. If there is no room it returns a channel that is closed when
// there may be.
func (q *publishQueue) add(m *pubsub.Message, now time.Duration) (room <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := len(q.messages) >= publishQueued || len(q.messages) > 0 && q.bytes+messageBytes(m) > publishQueuedSize
	switch {
	case q.ended, now < q.away, full && (q.behind || q.failed):
		q.p.core.Count.Undelivered.Add(1)
		return nil
	case full:
		return q.room
	}
	q.messages = append(q.messages, m)
	q.bytes += messageBytes(m)
	q.poke()
	return nil
}

func (q *publishQueue) poke() {
	select {
	case q.wake <- struct{}{}:
	default: // it is awake
	}
}

// giveUp lets nobody wait before all that waits was sent.
func (q *publishQueue) giveUp() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.behind = true
}

func (q *publishQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.makeRoomLocked()
	q.poke()
}

func (q *publishQueue) makeRoomLocked() {
	close(q.room)
	q.room = make(chan struct{})
}

// nextBatch is the next batch, and whether it is to be sent under a farewell; none = nothing waits.
func (q *publishQueue) nextBatch() (batch []*pubsub.Message, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < min(len(q.messages), publishBatch) && (n == 0 || size+messageBytes(q.messages[n]) <= publishBatchBytes) {
		size += messageBytes(q.messages[n])
		n++
	}
	batch = q.messages[:n:n]
	q.messages = q.messages[n:]
	if q.bytes -= size; len(q.messages) == 0 {
		q.messages, q.behind = nil, false
	}
	q.makeRoomLocked()
	return batch, q.ended
}

// fail drops what waits, and all that comes in the next moment.
func (q *publishQueue) fail(batch int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.p.core.Count.Undelivered.Add(uint64(batch + len(q.messages)))
	q.messages, q.bytes, q.behind, q.failed = nil, 0, false, true
	q.away = q.p.core.Env.Now() + q.p.pause
	q.makeRoomLocked()
}

func (q *publishQueue) succeed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed = false
}

func (q *publishQueue) run() {
	farewell := time.Duration(0)
	for {
		batch, ended := q.nextBatch()
		now := q.p.core.Env.Now()
		if ended && farewell == 0 {
			farewell = now + publishFarewell
		}
		switch {
		case len(batch) == 0 && ended:
			return
		case len(batch) == 0:
			<-q.wake
			continue
		case ended && now >= farewell:
			q.fail(len(batch))
			return
		}
		limit := q.p.limit
		if ended {
			limit = min(limit, farewell-now)
		}
		err := q.send(batch, limit)
		if err == nil {
			q.succeed()
			continue
		}
		q.p.core.Log.Debug("messages did not get to another server", "server", q.id, "error", err)
		if q.fail(len(batch)); ended {
			return
		}
	}
}

// send sends a batch. One that was refused for the certificate of the connection goes out again, as
// nobody has it.
func (q *publishQueue) send(batch []*pubsub.Message, limit time.Duration) error {
	m := q.p.core.View.Current()
	if m == nil {
		return engine.ErrStopped
	}
	to, there := m.Server(q.id)
	if !there {
		return engine.ErrStopped
	}
	req := &rpcv1.PublishRequest{Server: q.p.core.Self, Process: q.p.process, Number: q.p.number.Add(1)}
	for _, of := range batch {
		req.Messages = append(req.Messages, &rpcv1.PublishedMessage{Channel: of.Channel, Payload: of.Payload, Sharded: of.Sharded})
	}
	err := q.p.peers.publish(to, req, limit)
	if status.Code(err) == codes.Unauthenticated {
		err = q.p.peers.publish(to, req, limit)
	}
	return err
}

// publish calls Publish of another server.
func (p *grpcPeers) publish(to partition.Server, req *rpcv1.PublishRequest, limit time.Duration) error {
	l, err := p.link(to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err = l.client.Publish(ctx, req)
	p.refused(to, l, err)
	return err
}

// askSubscriptions asks all other servers, side by side, and returns what those said that answered.
func (p *publisher) askSubscriptions(ask *rpcv1.ListSubscriptionsRequest) (all []*rpcv1.ListSubscriptionsReply) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, to := range p.others() {
		group.Go(func() {
			l, err := p.peers.link(to)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), subscriptionLimit)
			defer cancel()
			reply, err := l.client.ListSubscriptions(ctx, ask)
			if err != nil {
				p.peers.refused(to, l, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, reply)
		})
	}
	group.Wait()
	return all
}
