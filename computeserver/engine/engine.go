package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Engine is the server without its network. It runs operations and scans for its own keys and
// forwards the others to their owners. Both front ends use it. Safe for concurrent use.
type Engine struct {
	// These are set before the engine is used, and not changed afterwards.

	Env       env.Env
	Index     *config.Index
	Self      uint32        // the server's ID in partition maps
	sets      bool          // Options.SortedSets
	Limit     time.Duration // of each request
	ScanPiece int           // bytes of a piece of a scan, and of its messages; 0 = the defaults
	Peers     Peers
	Log       *slog.Logger

	View     *ownership.View
	Sessions *Sessions
	Count    *count.Counters

	// of the open index, in a design whose ranges have owners; else nil
	manager  atomic.Pointer[ownership.Manager]
	taken    *ownership.TakeOvers
	heldMost int // holdings of the client before it joins some; 0 = the default
	seeker   seeker

	// When changes are divided.
	divideLeast int
	divideSlow  time.Duration

	ends    atomic.Bool
	stopped atomic.Bool
	// The time of draining is over: scans and other operations in steps end at the next one.
	cut       atomic.Bool
	stop      env.Event              // wakes follow
	stopSweep env.Event              // wakes the sweeper
	stopSets  env.Event              // wakes CollectSets
	mapErr    atomic.Pointer[string] // why the map may be old; nil if it is not

	spare [spareScans]atomic.Pointer[scan] // memory for scans
}

// Options of an Engine.
type Options struct {
	Env   env.Env
	Index *config.Index
	Self  uint32 // the server's ID in partition maps
	// SharesAll is index.Design.SharesAll. Without it the server serves only ranges that it holds.
	SharesAll bool
	// Open opens the index. It is called again after a pause if it fails, and when the open index
	// cannot be used any more.
	Open func() (ownership.Opened, error)
	// Clock is the machine's, in milliseconds since 1970. Pairs expire by an expiry.Clock over it.
	// It must be set if they do.
	Clock func() int64
	// TrustsClock lets pairs expire by Clock as it is, wherever it jumps to, for tests.
	TrustsClock bool
	Limit       time.Duration // of each request
	MaxSessions int
	MaxWaiting  int // requests that wait for a session
	HeldMost    int // holdings of the client before it joins some; 0 = the default
	// DivideAlways divides the changes of small batches, too, and those that hardly wait, for
	// tests.
	DivideAlways bool
	// SortedSets lets the index have sorted sets, if pairs expire and keys are bytes: keys that
	// begin with sortedset.Prefix are not for programs then.
	SortedSets bool
	Log        *slog.Logger
}

// New returns an engine. Its peers must be set before it is used.
func New(o Options) *Engine {
	c := &Engine{Env: o.Env, Index: o.Index, Self: o.Self, Limit: o.Limit, Log: o.Log, sets: o.SortedSets, heldMost: o.HeldMost, Count: &count.Counters{}, stop: o.Env.NewEvent(), stopSweep: o.Env.NewEvent(), stopSets: o.Env.NewEvent(),
		divideLeast: divideLeast, divideSlow: divideSlow}
	c.View = ownership.NewView(o.Env, o.Self, o.SharesAll && o.Index.Routing == config.RoutingAny)
	c.Sessions = newSessions(o.Env, o.Open, o.Limit, o.MaxSessions, o.MaxWaiting, o.Log)
	c.Sessions.count, c.Sessions.mostValue = c.Count, o.Index.MaxValueBytes
	if o.Index.Expires() {
		c.Sessions.clock = expiry.NewClock(o.Env, o.Clock)
		if c.Sessions.now = c.Sessions.clock.Now; o.TrustsClock {
			c.Sessions.now = o.Clock
		}
	}
	c.Sessions.scripts = newScripts(c, o.Clock)
	if o.DivideAlways {
		c.divideLeast, c.divideSlow = 1, 0
	}
	if !o.SharesAll {
		c.holdRanges()
	}
	return c
}

// Drain makes the server unready, because it will shut down.
func (c *Engine) Drain() { c.ends.Store(true) }

// Draining reports whether Drain was called.
func (c *Engine) Draining() bool { return c.ends.Load() }

// CutShort ends scans and other operations in steps at their next step: the time of draining is
// over.
func (c *Engine) CutShort() { c.cut.Store(true) }

// End ends Follow, Sweep and all long operations.
func (c *Engine) End() {
	c.stopped.Store(true)
	c.stop.Set()
	c.stopSweep.Set()
	c.stopSets.Set()
}

// Peers are the other compute servers, as reached over the network.
type Peers interface {
	// Do runs operations at another server, marked as forwarded. When ctx is done, Do ends at once,
	// and what that server has by then may be done. early, unless nil, is called
	// during Do, by its goroutine, when outcomes came and others are still to come. It gets all
	// that are there, and LATER in place of the others. An error holds for those that it never got.
	Do(ctx context.Context, to partition.Server, ops []*rpcv1.Operation, limit time.Duration, early func(some []*rpcv1.Outcome)) ([]*rpcv1.Outcome, error)

	// Start hands operations to another server, as Do does, and does not wait. ended is told once,
	// by another goroutine, when Take has their end. Take is called before limit is over, or gives
	// up then.
	Start(to partition.Server, ops []*rpcv1.Operation, limit time.Duration, ended Waker) Started

	// Scan runs a scan at another server, marked as forwarded, until visit returns false or
	// between returns an error, which Scan then returns. between is called after each message,
	// and may wait. When ctx is done, Scan ends at once.
	Scan(ctx context.Context, to partition.Server, r ScanRange, limit time.Duration, visit Visit, between func() error) error

	// Keep closes the connections to all other servers.
	Keep(servers []partition.Server)
}

// Waker is told something, and does not wait.
type Waker interface{ Set() }

// Started is a call that Peers.Start began. One goroutine calls Take until the call is over.
type Started interface {
	// Take returns the outcomes, or an error that holds for all of them, and whether the call is
	// over. With giveUp it is over in any case: what was not answered may still be done.
	Take(giveUp bool) (out []*rpcv1.Outcome, err error, over bool)
}

func (c *Engine) setMapError(err error) {
	if err == nil {
		c.mapErr.Store(nil)
		return
	}
	text := err.Error()
	if was := c.mapErr.Swap(&text); was == nil || *was != text {
		c.Log.Warn("the partition map cannot be followed", "error", text)
	}
}

// CheckKey returns an error for keys that the index cannot have.
func (c *Engine) CheckKey(key []byte) error {
	if c.Index.KeyType == config.KeyUint64 {
		if len(key) != 8 {
			return &Failure{Code: rpcv1.Outcome_INVALID, Message: fmt.Sprintf("key is %d bytes; this index has Uint64 keys, which are 8 bytes, big-endian", len(key))}
		}
		return nil
	}
	if len(key) > c.Index.MaxKeyBytes {
		return &Failure{Code: rpcv1.Outcome_INVALID, Message: fmt.Sprintf("key is %d bytes; this index takes at most %d", len(key), c.Index.MaxKeyBytes)}
	}
	return nil
}

// Bound is the least key that is not below prefix; an empty one stays.
func (c *Engine) Bound(prefix []byte) []byte {
	if c.Index.KeyType == config.KeyUint64 && len(prefix) > 0 && len(prefix) < 8 {
		return append(append(make([]byte, 0, 8), prefix...), make([]byte, 8-len(prefix))...)
	}
	return prefix
}

// Beyond is the least bound above all keys that begin with prefix; empty if nothing is above them.
func (c *Engine) Beyond(prefix []byte) []byte { return keyrange.PrefixEnd(prefix) }

// checkBound returns an error for bounds of scans that cannot be keys. An empty bound is the end of
// the key space.
func (c *Engine) checkBound(bound []byte) error {
	if len(bound) == 0 {
		return nil
	}
	return c.CheckKey(bound)
}

// CheckValue returns an error for values that the index cannot have.
func (c *Engine) CheckValue(value []byte) error { return c.CheckSize(len(value)) }

// CheckSize returns an error for values of so many bytes, if the index cannot have them.
func (c *Engine) CheckSize(bytes int) error {
	if bytes > c.Index.MaxValueBytes {
		return valueTooLong(rpcv1.Outcome_INVALID, uint64(bytes), c.Index.MaxValueBytes)
	}
	return nil
}

// Blocked returns why no request may be answered; nil if requests may be.
func (c *Engine) Blocked() error {
	if lost := c.Sessions.lost.Load(); lost != nil {
		return &Failure{Code: rpcv1.Outcome_DATA_LOST, Message: *lost}
	}
	return nil
}

// ending reports whether long operations must end.
func (c *Engine) ending() bool { return c.stopped.Load() || c.cut.Load() }

// Ready returns why programs should use another server; nil if they need not.
func (c *Engine) Ready() error {
	if err := c.Blocked(); err != nil {
		return err
	}
	if c.ends.Load() {
		return ErrStopped
	}
	if err := c.Sessions.State(); err != nil {
		return notOpen(err)
	}
	if !c.View.Any && c.View.Current() == nil {
		if why := c.mapErr.Load(); why != nil {
			return errors.New(*why)
		}
		return c.unowned()
	}
	return nil
}

// unowned is the error of a request whose key has no known owner.
func (c *Engine) unowned() error {
	return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "this server has not seen a partition map yet; try again"}
}

// At prefixes an error with the key's range and owner.
func (c *Engine) At(m *partition.Map, key []byte, what string) string {
	if m == nil {
		return what
	}
	span := m.Range(key)
	s, _ := m.Server(span.Owner)
	return fmt.Sprintf("keys %s at server %d (%s): %s", span, span.Owner, s.Name, what)
}
