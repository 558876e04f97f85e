package engine

import (
	"context"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
)

// Counting has the answer to "how many keys are there". One count is under way at a time. Whoever
// asks meanwhile gets its answer or its error, so nobody waits for a queue of counts.
type Counting struct {
	mu    env.Mutex
	run   *keyCount // under way; nil = none is
	value int64
	timed int64 // of value, those that expire
	at    time.Duration
	by    ownership.Opened // the client of this server that counted; nil = none
}

// Last is the last count, and how many of these keys expire; 0 before there was one.
func (m *Counting) Last() (keys, expiring int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value, m.timed
}

// keyCount is one count. Its outcome is written under Counting.mu, before the waiters are woken.
type keyCount struct {
	by      ownership.Opened // the client that was open when it began
	value   int64
	err     error
	waiters []env.Event // one for each that asked meanwhile
}

// NewCounting returns an empty cache.
func NewCounting(e env.Env) *Counting { return &Counting{mu: e.NewMutex()} }

// Counting scans all keys; its answer is good for a moment, and it gives up after a number of keys.
const (
	countKeptFor = time.Second
	countAtMost  = 50_000_000
)

// Size counts the keys of the whole index. wait is that of the scan (ScanRange). A count that began
// with another client of this server, which may have been fenced since, is waited for, and not
// answered.
func (c *Engine) Size(memo *Counting, wait time.Duration) (int64, error) {
	memo.mu.Lock()
	for {
		client := c.Sessions.Opened()
		if client != nil && client == memo.by && client.Alive() == nil && c.Env.Now()-memo.at < countKeptFor {
			defer memo.mu.Unlock()
			return memo.value, nil
		}
		run := memo.run
		if run == nil {
			return c.count(memo, client, wait)
		}
		ended := c.Env.NewEvent()
		run.waiters = append(run.waiters, ended)
		memo.mu.Unlock()
		ended.Wait(env.Forever) // the scan ends: its keys and its waits are limited
		if run.by == client {
			return run.value, run.err
		}
		memo.mu.Lock()
	}
}

// count counts, for all that ask meanwhile. memo.mu is held, and released.
func (c *Engine) count(memo *Counting, client ownership.Opened, wait time.Duration) (int64, error) {
	run := &keyCount{by: client}
	memo.run = run
	memo.mu.Unlock()
	value, timed, err := c.countKeys(wait)
	memo.mu.Lock()
	run.value, run.err, memo.run = value, err, nil
	if err == nil {
		memo.value, memo.timed, memo.at, memo.by = value, timed, c.Env.Now(), client
	}
	memo.mu.Unlock()
	for _, ended := range run.waiters {
		ended.Set()
	}
	return value, err
}

func (c *Engine) countKeys(wait time.Duration) (n, timed int64, err error) {
	err = c.Scan(context.Background(), ScanRange{KeysOnly: true, Wait: wait}, false, func(_, _ []byte, is expiry.Mark) bool {
		n++
		if is.Deadline != 0 {
			timed++
		}
		return n <= countAtMost
	}, func() error { return nil })
	if err == nil && n > countAtMost {
		err = &Failure{Code: rpcv1.Outcome_INVALID, Message: "the index has more than 50,000,000 keys, which takes too long to count; ask the operator's metrics"}
	}
	if err != nil {
		return 0, 0, err
	}
	return n, timed, nil
}
