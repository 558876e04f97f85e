package computeserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/client"
)

// chain is what a program was told of the commands on one key that it sent in one pipeline, in
// their order.
type chain []told

// broken says what in a chain does not follow from its commands in their order; nothing if all
// does. The states of the key are numbered, a change leads from one to the next. Each command that
// was answered takes the earliest place behind that of the one before it, so if there are places
// for all, these are some. A change in doubt may be made later than what follows it, or never, but
// not earlier than what was answered before it.
func (j *judge) broken(c chain) string {
	changes := j.changes[c[0].key]
	next := 0
	for next < len(changes) && changes[next].at < c[0].call {
		next++
	}
	state := func(match func(v version) bool) bool { // a read
		for s := next; s <= len(changes); s++ {
			v := version{}
			if s > 0 {
				v = changes[s-1]
			}
			if match(v) {
				next = s
				return true
			}
		}
		return false
	}
	change := func(t told) (there, made bool) { // one that was made, and whether in its place
		for s, v := range changes {
			if v.there == (t.op != "delete") && v.value == t.value {
				there = true
				if s >= next {
					if !errors.Is(t.err, client.ErrUnknown) {
						next = s + 1
					}
					return true, true
				}
			}
		}
		return there, false
	}
	for i, t := range c {
		ok := true
		switch {
		case errors.Is(t.err, client.ErrNotFound):
			ok = state(func(v version) bool { return !v.there })
		case errors.Is(t.err, client.ErrExists):
			ok = state(func(v version) bool { return v.there })
		case t.op == "get" && t.err == nil:
			ok = state(func(v version) bool { return v.there && v.value == t.value })
		case t.op == "get":
		case t.err == nil:
			_, ok = change(t)
		case errors.Is(t.err, client.ErrUnknown) && t.op != "delete":
			there, placed := change(t)
			ok = placed || !there
		}
		if !ok {
			return fmt.Sprintf("%s %q, command %d of the pipeline, has no place behind those before it: %v", t.op, t.value, i, c)
		}
	}
	return ""
}

// pipeline sends several commands on one or two keys together.
func (p *program) pipeline(ctx context.Context) {
	keys := []string{p.key(), p.key()}
	pipe := p.redis.Pipeline()
	var sent []told
	var cmds []redis.Cmder
	for range 3 + p.rnd.IntN(6) {
		t := told{key: keys[p.rnd.IntN(2)]}
		var cmd redis.Cmder
		switch choice := p.rnd.IntN(5); {
		case choice == 0 || choice == 2 && lasting(t.key):
			t.op, t.value = "put", p.value()
			cmd = pipe.Set(ctx, t.key, t.value, 0)
		case choice == 1:
			t.op, t.value = "insert", p.value()
			cmd = pipe.SetNX(ctx, t.key, t.value, 0)
		case choice == 2:
			t.op = "delete"
			cmd = pipe.Del(ctx, t.key)
		default:
			t.op = "get"
			cmd = pipe.Get(ctx, t.key)
		}
		sent, cmds = append(sent, t), append(cmds, cmd)
	}
	call := p.j.env.Now()
	_, _ = pipe.Exec(ctx) // each command has its own error
	ret := p.j.env.Now()
	chains := map[string]chain{}
	for i := range sent {
		t := &sent[i]
		t.call, t.ret, t.err = call, ret, heard(cmds[i])
		if cmd, ok := cmds[i].(*redis.StringCmd); ok {
			t.value = cmd.Val()
		}
		chains[t.key] = append(chains[t.key], *t)
	}
	p.j.note(sent...)
	p.j.mu.Lock()
	defer p.j.mu.Unlock()
	for _, c := range chains {
		p.j.chains = append(p.j.chains, c)
	}
}

// heard is the outcome of a command in the words of the SDK.
func heard(cmd redis.Cmder) error {
	err := cmd.Err()
	var said redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return client.ErrNotFound
	case err != nil && (!errors.As(err, &said) || redis.HasErrorPrefix(err, "UNKNOWN")):
		return fmt.Errorf("%w: %w", client.ErrUnknown, err)
	case err != nil:
		return err
	}
	switch cmd := cmd.(type) {
	case *redis.BoolCmd:
		if !cmd.Val() {
			return client.ErrExists
		}
	case *redis.IntCmd:
		if cmd.Val() == 0 {
			return client.ErrNotFound
		}
	}
	return nil
}

// scanRESP reads all keys by RANGE, which walks over all owners at one server.
func (p *program) scanRESP(ctx context.Context) {
	args := []any{"RANGE", "", ""}
	if p.rnd.IntN(2) == 0 {
		args = append(args, "REV")
	}
	call, got := p.j.env.Now(), map[string]string{}
	reply, err := p.redis.Do(ctx, args...).StringSlice()
	if err != nil {
		p.j.note(told{op: "get", key: "scan", err: err})
		return
	}
	for i := 0; i < len(reply); i += 2 {
		if i > 0 && (reply[i-2] < reply[i]) == (len(args) > 3) {
			p.j.note(told{op: "get", key: reply[i], value: "out of order"})
		}
		got[reply[i]] = reply[i+1]
	}
	p.read(call, got)
}

// read notes a scan of all keys: it is a read of each, those that are missing too.
func (p *program) read(call time.Duration, got map[string]string) {
	ret := p.j.env.Now()
	for i := range programKeys {
		t := told{op: "get", key: programKey(i), call: call, ret: ret}
		var there bool
		if t.value, there = got[t.key]; !there {
			t.err = client.ErrNotFound
		}
		p.j.note(t)
	}
}
