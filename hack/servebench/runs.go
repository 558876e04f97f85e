package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/dmindex/dmindex/client"
)

// pipelines is a run of our own client: pipelines of commands on several connections, of which a
// share are GETs and the others SETs. A target with a replica gets a WAIT 1 behind each pipeline
// that changes something.
func pipelines(connections, depth int, reads float64) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		pickers := make([]*picker, connections)
		for i := range pickers {
			pickers[i] = newPicker(nearKeys, m.o.keys, i)
		}
		get, set, value := []byte("GET"), []byte("SET"), []byte("xxx")
		began := time.Now()
		err := crowd(t.resp[:1], connections, operations, func(c *client, of int) (int, error) {
			p, replies := pickers[of], depth
			for range depth {
				if reads > 0 && p.random.Float64() < reads {
					c.begin(2)
					c.arg(get)
					c.arg(p.next())
					continue
				}
				c.begin(3)
				c.arg(set)
				c.arg(p.next())
				c.arg(value)
			}
			if t.replica && reads < 1 {
				c.command("WAIT", "1", "1000")
				replies++
			}
			return depth, c.send(replies)
		})
		return time.Since(began), err
	}
}

// msets is a run of MSETs of so many random keys.
func msets(keys int) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		p := newPicker(nearKeys, m.o.keys, 1)
		began := time.Now()
		err := crowd(t.resp[:1], 1, operations-1, func(c *client, _ int) (int, error) {
			n := min(keys, operations)
			c.begin(1 + 2*n)
			c.arg([]byte("MSET"))
			for range n {
				c.arg(p.next())
				c.arg([]byte("xxx"))
			}
			return n, c.send(1)
		})
		return time.Since(began), err
	}
}

// set stores a key; the empty argument is the key.
var set = []string{"SET", "", "xxx"}

// load makes keys that are to be read or changed, once, each by a command whose empty argument is
// the key.
func (m *machine) load(t *target, prefix string, command []string) error {
	if prefix == "" || t.loaded[prefix] {
		return nil
	}
	err := fill(t.resp[:1], prefix, m.o.keys, command)
	t.loaded[prefix] = err == nil
	return err
}

// fill makes so many keys by servers.
func fill(servers []string, prefix string, keys int, command []string) error {
	const connections, depth = 16, 64
	var next atomic.Int64
	return crowd(servers, connections, keys, func(c *client, _ int) (int, error) {
		for range depth {
			c.command(withKey(command, spreadKey(prefix, int(next.Add(1)-1)))...)
		}
		return depth, c.send(depth)
	})
}

// withKey is a command with a key in place of its empty argument.
func withKey(command []string, key string) []string {
	command = slices.Clone(command)
	command[slices.Index(command, "")] = key
	return command
}

// sdkCalls is a run of calls of the SDK on so many keys each, several at a time.
func sdkCalls(callers, keys int, call func(ctx context.Context, c *sdk.Client, p *picker) error) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		c, err := sdk.Connect(m.ctx, sdk.Options{Endpoints: t.rpc, Insecure: true})
		if err != nil {
			return 0, err
		}
		var group sync.WaitGroup
		errs := make([]error, callers)
		left := int64(operations)
		began := time.Now()
		for i := range callers {
			group.Go(func() {
				p := newPicker(nearKeys, m.o.keys, i)
				for errs[i] == nil && atomic.AddInt64(&left, -int64(keys)) > -int64(keys) {
					errs[i] = call(m.ctx, c, p)
				}
			})
		}
		group.Wait()
		elapsed := time.Since(began)
		return elapsed, errors.Join(append(errs, c.Close())...)
	}
}

const sdkBatch = 1000

var putMany = sdkCalls(8, sdkBatch, func(ctx context.Context, c *sdk.Client, p *picker) error {
	pairs := make([]sdk.Pair, sdkBatch)
	for i := range pairs {
		pairs[i] = sdk.Pair{Key: append([]byte(nil), p.next()...), Value: []byte("xxx")}
	}
	return c.PutMany(ctx, pairs)
})

var getMany = sdkCalls(8, sdkBatch, func(ctx context.Context, c *sdk.Client, p *picker) error {
	keys := make([][]byte, sdkBatch)
	for i := range keys {
		keys[i] = append([]byte(nil), p.next()...)
	}
	values, err := c.GetMany(ctx, keys)
	if err == nil && string(values[0]) != "xxx" {
		err = fmt.Errorf("GetMany found %q under %s", values[0], keys[0])
	}
	return err
})

var getOne = sdkCalls(32, 1, func(ctx context.Context, c *sdk.Client, p *picker) error {
	_, err := c.Get(ctx, p.next())
	return err
})

func loadPairs(m *machine, t *target, operations int) (time.Duration, error) {
	c, err := sdk.Connect(m.ctx, sdk.Options{Endpoints: t.rpc, Insecure: true})
	if err != nil {
		return 0, err
	}
	prefix := fmt.Sprintf("%sload-%d-", nearKeys, time.Now().UnixNano())
	began := time.Now()
	_, err = c.Load(m.ctx, func(yield func(sdk.Pair) bool) {
		for i := range operations {
			if !yield(sdk.Pair{Key: []byte(spreadKey(prefix, i)), Value: []byte("xxx")}) {
				return
			}
		}
	}, sdk.LoadOptions{})
	elapsed := time.Since(began)
	return elapsed, errors.Join(err, c.Close())
}
