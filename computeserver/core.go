package computeserver

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/partition"
)

// core is the server without its network: it takes operations and scans, runs those that are this
// server's and sends the others to their owners. Both front ends stand on it. Safe for concurrent
// use.
type core struct {
	env     env.Env
	index   *config.Index
	self    uint32
	version string
	paths   []MemoryPath
	limit   time.Duration // of each request
	own     *ownership
	eng     *engine
	peers   peers
	// of the open index, with a design whose ranges have owners; else nil
	holder atomic.Pointer[rangeManager]
	taken  takeOvers
	seeker seeker
	log    *slog.Logger

	heldMost  int // holdings of the client before it joins some; 0 = the default
	scanPiece int // bytes of a piece of a scan, and of its messages; 0 = the defaults
	count     *counters

	draining atomic.Bool
	stopped  atomic.Bool
	// the time of draining is over: what goes on in steps ends at the next one
	cut    atomic.Bool
	stop   env.Event              // wakes follow
	mapErr atomic.Pointer[string] // why the map may be old; nil when it is not
}

// peers are the other compute servers, as they are reached over the network.
type peers interface {
	// do runs operations at another server, marked as forwarded. An error is for all of them.
	do(to partition.Server, ops []*rpcv1.Operation, limit time.Duration) ([]*rpcv1.Outcome, error)

	// scan runs a scan at another server, marked as forwarded, until visit returns false, or
	// between, which is called now and then and may wait, an error, which is then returned.
	scan(to partition.Server, r scanRange, limit time.Duration, visit func(key, value []byte) bool, between func() error) error

	// keep closes connections to all but these servers.
	keep(servers []partition.Server)
}

func (c *core) setMapError(err error) {
	if err == nil {
		c.mapErr.Store(nil)
		return
	}
	text := err.Error()
	if was := c.mapErr.Swap(&text); was == nil || *was != text {
		c.log.Warn("the partition map cannot be followed", "error", text)
	}
}

// checkKey refuses keys that the index cannot have.
func (c *core) checkKey(key []byte) error {
	if c.index.KeyType == config.KeyUint64 {
		if len(key) != 8 {
			return &failure{code: rpcv1.Outcome_INVALID, message: fmt.Sprintf("key is %d bytes; this index has Uint64 keys, which are 8 bytes, big-endian", len(key))}
		}
		return nil
	}
	if len(key) > c.index.MaxKeyBytes {
		return &failure{code: rpcv1.Outcome_INVALID, message: fmt.Sprintf("key is %d bytes; this index takes at most %d", len(key), c.index.MaxKeyBytes)}
	}
	return nil
}

// checkBound refuses ends of scans that are no keys; an empty one stands for the end of the key
// space.
func (c *core) checkBound(bound []byte) error {
	if len(bound) == 0 {
		return nil
	}
	return c.checkKey(bound)
}

// checkValue refuses values that the index cannot have.
func (c *core) checkValue(value []byte) error {
	if len(value) > c.index.MaxValueBytes {
		return &failure{code: rpcv1.Outcome_INVALID, message: fmt.Sprintf("value is %d bytes; this index takes at most %d", len(value), c.index.MaxValueBytes)}
	}
	return nil
}

// blocked says why nothing may be answered; nil when all is well.
func (c *core) blocked() error {
	if lost := c.eng.lost.Load(); lost != nil {
		return &failure{code: rpcv1.Outcome_DATA_LOST, message: *lost}
	}
	return nil
}

// ending says whether nothing that takes long goes on any more.
func (c *core) ending() bool { return c.stopped.Load() || c.cut.Load() }

// ready says why programs should be sent elsewhere; nil when all is well.
func (c *core) ready() error {
	if err := c.blocked(); err != nil {
		return err
	}
	if c.draining.Load() {
		return errStopped
	}
	if err := c.eng.state(); err != nil {
		return notOpen(err)
	}
	if !c.own.any && c.own.current() == nil {
		if why := c.mapErr.Load(); why != nil {
			return errors.New(*why)
		}
		return c.unowned()
	}
	return nil
}

// apply runs one operation in a session. The value of a lookup is appended to dst.
func apply(s index.Session, op *rpcv1.Operation, dst []byte) ([]byte, error) {
	switch op.Kind {
	case rpcv1.Operation_LOOKUP:
		return s.Lookup(op.Key, dst)
	case rpcv1.Operation_INSERT:
		return dst, s.Insert(op.Key, op.Value)
	case rpcv1.Operation_UPDATE:
		return dst, s.Update(op.Key, op.Value)
	case rpcv1.Operation_UPSERT:
		return dst, s.Upsert(op.Key, op.Value)
	case rpcv1.Operation_DELETE:
		return dst, s.Delete(op.Key)
	}
	return dst, &failure{code: rpcv1.Outcome_INVALID, message: fmt.Sprintf("operation kind %d is unknown to this server", op.Kind)}
}

// unowned is the error of a request whose key has no owner that is known.
func (c *core) unowned() error {
	return &failure{code: rpcv1.Outcome_UNAVAILABLE, message: "this server has not seen a partition map yet; try again"}
}

// at words an error of a request for key as one at its range and server.
func (c *core) at(m *partition.Map, key []byte, what string) string {
	if m == nil {
		return what
	}
	span := m.Range(key)
	s, _ := m.Server(span.Owner)
	return fmt.Sprintf("keys %s at server %d (%s): %s", span, span.Owner, s.Name, what)
}
