package resp

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/expiry"
)

// Commands on every key, or on any.

var errKeysMany = errors.New("ERR KEYS found more keys than one reply takes, or looked at more than 1,000,000; use SCAN, or a pattern that begins with plain bytes")

// keysAtMost is how many keys KEYS looks at.
const keysAtMost = 1_000_000

// cmdKeys is KEYS pattern: the keys that match, of those that the user may read.
func (c *conn) cmdKeys(args [][]byte) {
	c.settle()
	w := walk{c: c, b: c.newBody(), more: true, pattern: newGlob(args[1], c.s.core.Index.MaxKeyBytes)}
	for w.more {
		if w.full || w.seen >= keysAtMost {
			w.b.drop()
			c.replyError(errKeysMany.Error())
			return
		}
		if err := w.step(min(scanCountMost, keysAtMost-w.seen)); err != nil {
			w.b.fail(err)
			return
		}
	}
	w.b.send(appendHead(nil, w.keys))
}

// someKeys returns up to most keys from start on, or with reverse the last ones of all.
func (c *conn) someKeys(start []byte, most uint64, reverse bool) (keys [][]byte, err error) {
	r := engine.ScanRange{Start: start, Limit: most, Reverse: reverse, KeysOnly: true, Wait: c.patience()}
	err = c.s.core.Scan(context.Background(), r, false, func(key, _ []byte, _ expiry.Mark) bool {
		keys = append(keys, bytes.Clone(key))
		return true
	}, func() error { return nil })
	c.noteWait(engine.CodeOf(err))
	return keys, err
}

// randomOf is how many keys RANDOMKEY selects one of.
const randomOf = 32

// cmdRandomKey is RANDOMKEY: one of the keys behind a random place between the first key and the
// last one. Keys that are alone where others are dense come more often.
func (c *conn) cmdRandomKey(_ [][]byte) {
	c.settle()
	keys, err := c.someKeys(nil, 1, false)
	if err == nil && len(keys) > 0 {
		var last [][]byte
		if last, err = c.someKeys(nil, 1, true); err == nil && len(last) > 0 {
			if near, why := c.someKeys(c.randomBetween(keys[0], last[0]), randomOf, false); why != nil || len(near) > 0 {
				keys, err = near, why
			}
		}
	}
	switch {
	case err != nil:
		c.fail(err)
	case len(keys) == 0:
		c.replyNull()
	default:
		c.replyBulk(keys[c.s.core.Env.Uint64()%uint64(len(keys))])
	}
}

// randomBetween is a random key that is not below low, and hardly above high. Where high is not
// above low, as when keys came and went after low was read, it is low.
func (c *conn) randomBetween(low, high []byte) []byte {
	if bytes.Compare(low, high) >= 0 {
		return low
	}
	longest, random := c.s.core.Index.MaxKeyBytes, c.s.core.Env.Uint64()
	n := 0
	for n < len(low) && low[n] == high[n] {
		n++
	}
	key, least := bytes.Clone(high[:n]), uint64(0)
	if n < len(low) {
		least = uint64(low[n])
	}
	key = append(key, byte(least+random%(uint64(high[n])-least+1)))
	for random >>= 8; len(key) < longest && random > 0; random >>= 8 {
		key = append(key, byte(random))
	}
	key = c.s.core.Bound(key)
	if bytes.Compare(key, low) < 0 {
		return low
	}
	return key
}

// flushPart is how many keys FLUSHALL deletes at a time.
const flushPart = 256

// cmdFlush is FLUSHALL and FLUSHDB: a scan whose keys are deleted, part by part and in their order.
// It is no single step: others see it half done, and a key that is written behind it stays. It ends
// within the limit of every change, since a client that has given up may write new pairs.
func (c *conn) cmdFlush(args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !isWord(args[1], "SYNC") && !isWord(args[1], "ASYNC") {
		c.replyError(errSyntax.Error())
		return
	}
	c.settle()
	deleted := 0
	var start []byte
	for more := true; more; {
		var n several
		keys, err := c.someKeys(start, flushPart, false)
		if err == nil && len(keys) > 0 {
			n, err = c.multiKey(rpcv1.Operation_DELETE, keys, 1, nil)
			deleted += n.done
		}
		if err != nil {
			n.failed = engine.OutcomeOf(err)
		}
		if n.failed != nil {
			c.fail(halfFlushed(n.failed, deleted, n.doubt))
			return
		}
		if more = len(keys) == flushPart; more {
			start, more = c.s.core.Successor(nil, keys[len(keys)-1])
		}
	}
	c.replyOK()
}

// halfFlushed is the error of a FLUSHALL that an outcome ended.
func halfFlushed(by *rpcv1.Outcome, deleted int, doubt bool) error {
	switch {
	case doubt:
		return halfDone(by, fmt.Sprintf("%d keys were deleted, the others may have been, too; send it again", deleted))
	case deleted > 0:
		return halfDone(by, fmt.Sprintf("%d keys were deleted, the others were not; send it again", deleted))
	}
	return engine.FailureOf(by)
}
