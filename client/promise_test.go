package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// ended is a context that a test ends by an error of its choice.
type ended struct {
	context.Context
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func newEnded() *ended { return &ended{Context: context.Background(), done: make(chan struct{})} }

func (e *ended) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (e *ended) Done() <-chan struct{}       { return e.done }

func (e *ended) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *ended) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
		close(e.done)
	}
}

var sentinels = []error{ErrNotFound, ErrExists, ErrMismatch, ErrWrongValue, ErrScript, ErrInvalid, ErrDenied, ErrUnsupported, ErrPoolFull, ErrUnavailable, ErrUnknown, ErrDataLost, ErrUnauthorized, ErrClosed}

// call is one operation of the API.
type call struct {
	name    string
	changes bool
	run     func(c *Client, ctx context.Context) error
}

// theKey is that of the operations. Each call of promises has its own: a request of an earlier one
// may arrive late.
var theKey = []byte("key")

var calls = []call{
	{"get", false, func(c *Client, ctx context.Context) error { _, err := c.Get(ctx, theKey); return err }},
	{"get many", false, func(c *Client, ctx context.Context) error { _, err := c.GetMany(ctx, [][]byte{theKey}); return err }},
	{"put", true, func(c *Client, ctx context.Context) error { return c.Put(ctx, theKey, []byte("new")) }},
	{"put many", true, func(c *Client, ctx context.Context) error {
		return c.PutMany(ctx, []Pair{{Key: theKey, Value: []byte("new")}})
	}},
	{"insert", true, func(c *Client, ctx context.Context) error { return c.Insert(ctx, theKey, []byte("new")) }},
	{"update", true, func(c *Client, ctx context.Context) error { return c.Update(ctx, theKey, []byte("new")) }},
	{"delete", true, func(c *Client, ctx context.Context) error { return c.Delete(ctx, theKey) }},
	{"delete many", true, func(c *Client, ctx context.Context) error {
		n, err := c.DeleteMany(ctx, [][]byte{theKey})
		if err == nil && n == 0 {
			return &Error{Err: ErrNotFound} // as delete says it
		}
		return err
	}},
	{"increment", true, func(c *Client, ctx context.Context) error {
		_, err := c.Increment(ctx, theKey, 1)
		return err
	}},
	{"compare and swap", true, func(c *Client, ctx context.Context) error {
		return c.CompareAndSwap(ctx, theKey, []byte("old"), []byte("new"))
	}},
	{"compare and delete", true, func(c *Client, ctx context.Context) error {
		return c.CompareAndDelete(ctx, theKey, []byte("old"))
	}},
	{"put for", true, func(c *Client, ctx context.Context) error {
		return c.PutFor(ctx, theKey, []byte("new"), time.Second)
	}},
	{"put until", true, func(c *Client, ctx context.Context) error {
		return c.PutMany(ctx, []Pair{{Key: theKey, Value: []byte("new"), Expires: time.UnixMilli(1)}})
	}},
	{"transaction", true, func(c *Client, ctx context.Context) error {
		return c.Transaction(ctx, func(tx *Tx) error { tx.Put(theKey, []byte("new")); return nil })
	}},
	{"eval", true, func(c *Client, ctx context.Context) error {
		_, err := c.Eval(ctx, "return redis.call('SET', KEYS[1], 'new')", [][]byte{theKey})
		return err
	}},
	{"put if absent", true, func(c *Client, ctx context.Context) error {
		_, stored, err := c.PutIfAbsent(ctx, theKey, []byte("new"))
		if err == nil && !stored {
			return &Error{Err: ErrExists} // as insert says it
		}
		return err
	}},
}

// TestErrorsKeepTheirPromise runs every operation against every two ways in which its first
// attempts end, and every way to end a call: what the error says was done must have been done, what
// it says was not must never be, and "unknown" is said only where nothing better is known.
func TestErrorsKeepTheirPromise(t *testing.T) { promises(t, time.Hour, 0, endings) }

// TestSilenceIsInDoubt: attempts that are not answered in time are given up for others.
func TestSilenceIsInDoubt(t *testing.T) { promises(t, 5*time.Millisecond, silent, endings) }

// promises tries the endings from one up to another as the first.
func promises(t *testing.T, attempt time.Duration, from, to ending) {
	f := newFake(t)
	f.patient = attempt == time.Hour
	closing := errors.New("the client is closed")
	ways := []error{context.Canceled, context.DeadlineExceeded, closing}
	n := 0
	for _, k := range calls {
		c := f.connect(t, attempt)
		for first := from; first < to; first++ {
			for second := range endings {
				way, there := ways[n%3], n/3%4 > 0
				if k.name == "insert" || k.name == "put if absent" {
					there = !there
				}
				n++
				theKey = fmt.Appendf(nil, "key %d", n)
				ctx := newEnded()
				over := func() { ctx.end(way) }
				if way == closing {
					closes := c
					// who calls it answers this client
					over = func() { go func() { _ = closes.Close() }() }
				}
				var value []byte
				if there {
					value = []byte("old")
				}
				f.begin(value, over, first, second)
				err := k.run(c, ctx)
				effects, doubts := f.end()
				if !f.patient {
					doubts++ // an attempt may be given up before its request arrives
				}
				fault := judge(k, err, effects, doubts)
				if over := ctx.Err(); fault == "" && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown)) && over != nil && !errors.Is(err, over) {
					fault = fmt.Sprintf("the context ended by %v", over)
				}
				if fault == "" && errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
					fault = "there was time to go on"
				}
				if fault != "" {
					t.Errorf("%s, there %v, %v, then %v, then %v: %d changes made, %d attempts in doubt: %v: %s", k.name, there, first, second, way, effects, doubts, err, fault)
				}
				if c.ctx.Err() != nil {
					c = f.connect(t, attempt)
				}
			}
		}
	}
}

// judge says what is wrong with the error of a call, given what was done.
func judge(k call, err error, effects, doubts int) string {
	if effects > 1 && k.name != "put" && k.name != "put many" && k.name != "put until" {
		return "it was repeated"
	}
	if err == nil {
		if k.changes && effects == 0 {
			return "nothing was done"
		}
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		return "it is no *Error"
	}
	said := 0
	for _, s := range sentinels {
		if errors.Is(err, s) {
			said++
		}
	}
	switch {
	case said != 1:
		return fmt.Sprintf("it wraps %d of the package's errors", said)
	case !errors.Is(err, ErrUnknown):
		if effects > 0 {
			return "something was done, or is done later"
		}
	case !k.changes:
		return "of a read everything is known"
	case doubts == 0:
		return "every attempt was certain"
	}
	return ""
}

// TestNothingIsSentTooLate: a call whose context has ended does nothing, and says so.
func TestNothingIsSentTooLate(t *testing.T) {
	f := newFake(t)
	c := f.connect(t, time.Hour)
	for _, k := range calls {
		for _, why := range []error{context.Canceled, context.DeadlineExceeded} {
			ctx := newEnded()
			ctx.end(why)
			f.begin([]byte("old"), func() {}, answers)
			err := k.run(c, ctx)
			if effects, _ := f.end(); effects > 0 || !errors.Is(err, ErrUnavailable) || !errors.Is(err, why) {
				t.Errorf("%s: %v, and %d changes were made", k.name, err, effects)
			}
		}
	}
}

// TestLargeOperationsAreRefused: what fits no index is refused before it is sent, so it ends no
// stream that others use.
func TestLargeOperationsAreRefused(t *testing.T) {
	f := newFake(t)
	c := f.connect(t, time.Hour)
	ctx, large := context.Background(), make([]byte, 20<<20)
	f.begin(nil, func() {})
	_, get := c.Get(ctx, large)
	_, many := c.GetMany(ctx, [][]byte{theKey, large})
	errs := []error{get, many, c.Put(ctx, theKey, large), c.Insert(ctx, theKey, large), c.Update(ctx, theKey, large), c.Delete(ctx, large), c.PutMany(ctx, []Pair{{Key: theKey}, {Key: theKey, Value: large}})}
	_, sum := c.Increment(ctx, large, 1)
	_, _, absent := c.PutIfAbsent(ctx, theKey, large)
	errs = append(errs, sum, absent, c.CompareAndSwap(ctx, theKey, large, nil), c.CompareAndSwap(ctx, theKey, nil, large), c.CompareAndDelete(ctx, theKey, large))
	for _, err := range c.Scan(ctx, large, nil, ScanOptions{}) {
		errs = append(errs, err)
	}
	for i, err := range errs {
		if !errors.Is(err, ErrInvalid) || len(err.Error()) > 1000 {
			t.Errorf("call %d: %.300v", i, err)
		}
	}
}
