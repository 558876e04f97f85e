package mirror

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Primary sends the changes of a memory server to whoever its member says, asks them for permission
// to answer, and lets the provider execute lists only while the member does. Its fields are set
// before Run; Env, Member, Journal, Shape, Dial, Settle and Walk are required.
type Primary struct {
	Env     env.Env
	Member  *volumes.Member
	Journal *verbs.Journal
	Shape   Shape // of the memory
	// Dial connects to a process within DefaultLimit.
	Dial func(volumes.Proc) (Conn, error)
	// Settle returns when lists that began before are over (verbs.Checked).
	Settle func() error
	// Answered returns when what was executed has been answered (verbs.Answering); nil = nobody
	// knows.
	Answered func() error
	// Walk makes items of the whole memory and ledger for a copy that joins by a feed, and returns
	// the position behind the last one. It waits with w.
	Walk func(f *verbs.Feed, w *verbs.Waiter) (verbs.Position, error)
	// Report is told what goes wrong with a copy, and nil when the stream to it goes on; nil =
	// nobody is.
	Report func(to volumes.Proc, err error)
	// Limit is how long a copy may be silent; 0 = DefaultLimit.
	Limit time.Duration

	halting env.Mutex // guards what follows
	stopped bool
	peers   []*peer
	running *env.WaitGroup
}

const (
	lookEvery   = volumes.AskInterval / 5
	caughtUp    = time.Millisecond // between looks at what a copy lacks that nothing waits for
	askLimit    = time.Second      // for an answer to a request for permission
	drainLimit  = time.Second
	returnLimit = 300 * time.Millisecond
)

// NewPrimary makes a primary without its other fields.
func NewPrimary(e env.Env, m *volumes.Member, j *verbs.Journal) *Primary {
	return &Primary{Env: e, Member: m, Journal: j, halting: e.NewMutex(), running: env.NewWaitGroup(e)}
}

// Run runs until Stop. It returns when all that it began has ended.
func (p *Primary) Run() {
	if p.Limit == 0 {
		p.Limit = DefaultLimit
	}
	for p.updatePeers() {
		p.Env.Sleep(lookEvery)
	}
	// each part looks whether it is to end, and waits for no longer than Limit
	p.running.Wait(env.Forever)
}

// Stop ends Run.
func (p *Primary) Stop() {
	p.halting.Lock()
	defer p.halting.Unlock()
	p.stopped = true
}

// updatePeers makes the peers those that the member wants. False: Stop was called.
func (p *Primary) updatePeers() bool {
	p.halting.Lock()
	defer p.halting.Unlock()
	p.Journal.Halt(!p.Member.Executes())
	targets := p.Member.Targets()
	if p.stopped {
		targets = nil
	}
	p.peers = slices.DeleteFunc(p.peers, func(k *peer) bool {
		gone := !slices.Contains(targets, k.Target)
		if gone {
			k.waiter.Cut()
			k.walker.Cut()
		}
		return gone
	})
	for _, t := range targets {
		if !slices.ContainsFunc(p.peers, func(k *peer) bool { return k.Target == t }) {
			k := &peer{Primary: p, Target: t}
			k.waiter, k.walker = p.Journal.NewWaiter(), p.Journal.NewWaiter()
			p.peers = append(p.peers, k)
			p.running.Go("stream", k.stream)
			p.running.Go("permission", k.permission)
		}
	}
	return !p.stopped
}

// Drain is volumes.Host's: it halts the journal, and returns when lists are over and the backup has
// all of them. The member executes nothing meanwhile, and Run keeps the journal halted as long.
func (p *Primary) Drain(backup volumes.Proc) error {
	p.halting.Lock()
	p.Journal.Halt(true)
	var feed *verbs.Feed
	for _, k := range p.peers {
		if k.Proc == backup {
			feed = k.feed.Load()
		}
	}
	p.halting.Unlock()
	if feed == nil {
		return fmt.Errorf("nothing is sent to %v", backup)
	}
	if err := p.Settle(); err != nil {
		return err
	}
	err := feed.Follow(nil, p.Journal.Last(), drainLimit)
	if err == nil && p.Answered != nil {
		_ = p.Answered() // whoever does not take its answers finds its connection ended
	}
	return err
}

// Return is volumes.Host's.
func (p *Primary) Return(backup volumes.Proc, turn uint64) {
	over := p.Env.NewEvent()
	p.running.Go("return", func() {
		defer over.Set()
		if a, err := p.asker(volumes.Target{Proc: backup}, returnLimit); err == nil {
			_ = a.Return(turn, returnLimit) // what is not heard is waited out
			a.Close()
		}
	})
	over.Wait(returnLimit)
}

// asker connects to a process to ask it for permissions.
func (p *Primary) asker(t volumes.Target, limit time.Duration) (*Asker, error) {
	c, err := p.Dial(t.Proc)
	if err != nil {
		return nil, err
	}
	return NewAsker(p.Env, c, p.hello(t), limit)
}

func (p *Primary) hello(t volumes.Target) Hello {
	return Hello{Shape: p.Shape, View: p.Member.Report().View.Number, Join: t.Join, From: p.Member.Self(), To: t.Proc}
}
