package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest/memindex"
	"github.com/dmindex/dmindex/computeserver/script"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// scriptOn is a group that has a script on one key.
func scriptOn(t *testing.T, text, key string, args ...string) *rpcv1.Operation {
	t.Helper()
	s := &rpcv1.Script{Text: []byte(text), Keys: [][]byte{[]byte(key)}}
	for _, a := range args {
		s.Args = append(s.Args, []byte(a))
	}
	value, err := rpcv1.AppendScript(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	if value, err = rpcv1.AppendGroup(nil, []*rpcv1.Operation{{Kind: rpcv1.Operation_SCRIPT, Key: s.Keys[0], Value: value}}); err != nil {
		t.Fatal(err)
	}
	return &rpcv1.Operation{Kind: rpcv1.Operation_GROUP, Key: s.Keys[0], Value: value}
}

// TestScriptRunsAgain: a script whose key others change while it runs runs again, and adds to what
// they left. One whose key is changed each time ends with an error, and its turn is free then.
func TestScriptRunsAgain(t *testing.T) {
	const add = "redis.call('GETSET', KEYS[1], (redis.call('GET', KEYS[1]) or 0) + 1) return 'done'"
	alone(t, func(p *simenv.Process, c *Engine, store *memindex.Store) {
		commands := &meddling{c: c, p: p}
		c.SetCommands(commands)
		do := func() *rpcv1.Outcome {
			return c.Do([]*rpcv1.Operation{scriptOn(t, add, "k")}, false, time.Minute, 0)[0]
		}
		for _, times := range []int{0, 1, 5, mostTries - 1} {
			commands.left = times
			if o := do(); o.Code != rpcv1.Outcome_OK || !strings.Contains(string(o.Value), "done") {
				t.Fatalf("changed %d times: %v", times, o)
			}
		}
		commands.left = mostTries
		if o := do(); o.Code != rpcv1.Outcome_INVALID || !strings.Contains(o.Message, "others changed the script's keys each of 64 times") {
			t.Errorf("a script whose key was always changed: %v", o)
		}
		want := 4 + 10*(0+1+5+mostTries-1+mostTries)
		o := c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: []byte("k")}}, false, time.Second, 0)[0]
		if string(o.Value) != fmt.Sprint(want) {
			t.Errorf("the key has %s, want %d", o.Value, want)
		}

		// scripts beside each other take turns
		group, wrong := env.NewWaitGroup(p), 0
		for range 3 {
			group.Go("script", func() {
				for range 20 {
					if o := do(); o.Code != rpcv1.Outcome_OK {
						wrong++
						t.Log(o)
					}
				}
			})
		}
		group.Wait(time.Hour)
		o = c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_LOOKUP, Key: []byte("k")}}, false, time.Second, 0)[0]
		if string(o.Value) != fmt.Sprint(want+60) || wrong > 0 {
			t.Errorf("the key has %s, want %d; %d scripts failed", o.Value, want+60, wrong)
		}
		for i := range c.Sessions.scripts.turns {
			if n := c.Sessions.scripts.turns[i].all; n != 0 {
				t.Errorf("turn %d is had, or waited for, by %d", i, n)
			}
		}
		if n := c.Sessions.scripts.waiting.Load(); n != 0 {
			t.Errorf("%d scripts wait for a turn", n)
		}
	})
}

// meddling is Commands under which others change the key before a script's change.
type meddling struct {
	c    *Engine
	p    *simenv.Process
	left int
}

// Call implements Commands.
func (m *meddling) Call(args [][]byte, host ScriptHost) []byte {
	if m.p.Yield(); len(args) > 2 && m.left > 0 {
		m.left--
		m.c.Do([]*rpcv1.Operation{{Kind: rpcv1.Operation_INCREMENT, Key: args[1], Number: 10}}, false, time.Second, 0)
	}
	return simCommands{}.Call(args, host)
}

// TestScriptsAlone: what is no script, or stands in no group, is refused, and nothing is done.
func TestScriptsAlone(t *testing.T) {
	alone(t, func(_ *simenv.Process, c *Engine, store *memindex.Store) {
		value, err := rpcv1.AppendScript(nil, &rpcv1.Script{Text: []byte("return 1"), Keys: [][]byte{[]byte("k")}})
		if err != nil {
			t.Fatal(err)
		}
		group := func(op *rpcv1.Operation) *rpcv1.Operation {
			value, err := rpcv1.AppendGroup(nil, []*rpcv1.Operation{op})
			if err != nil {
				t.Fatal(err)
			}
			return &rpcv1.Operation{Kind: rpcv1.Operation_GROUP, Key: op.Key, Value: value}
		}
		good := &rpcv1.Operation{Kind: rpcv1.Operation_SCRIPT, Key: []byte("k"), Value: value}
		ask := func(op *rpcv1.Operation, code rpcv1.Outcome_Code, message string) {
			t.Helper()
			if o := c.Do([]*rpcv1.Operation{op}, false, time.Second, 0)[0]; o.Code != code || !strings.Contains(o.Message, message) {
				t.Errorf("%v; want %v: %s", o, code, message)
			}
		}
		ask(group(good), rpcv1.Outcome_UNSUPPORTED, "runs no scripts")
		c.SetCommands(simCommands{})
		ask(group(good), rpcv1.Outcome_OK, "")
		ask(good, rpcv1.Outcome_INVALID, "stands in a group")
		ask(group(&rpcv1.Operation{Kind: rpcv1.Operation_SCRIPT, Key: []byte("k"), Value: []byte("\xff")}), rpcv1.Outcome_INVALID, "cannot be read")
		ask(group(&rpcv1.Operation{Kind: rpcv1.Operation_SCRIPT, Key: []byte("k")}), rpcv1.Outcome_INVALID, "the first of its keys")
		ask(group(&rpcv1.Operation{Kind: rpcv1.Operation_SCRIPT, Key: []byte("other"), Value: value}), rpcv1.Outcome_INVALID, "the first of its keys")
		o := c.Do([]*rpcv1.Operation{scriptOn(t, "return return", "k")}, false, time.Second, 0)[0]
		if all, err := o.GroupOutcomes(1); err != nil || all[0].Code != rpcv1.Outcome_INVALID || !strings.Contains(all[0].Message, "Error compiling script") {
			t.Errorf("a script with an error gave %v", o)
		}
		ask(scriptOn(t, "return 1", strings.Repeat("k", 100)), rpcv1.Outcome_INVALID, "key is 100 bytes")
		ask(scriptOn(t, strings.Repeat(" ", script.MaxText+1), "k"), rpcv1.Outcome_INVALID, "a script of 65537 bytes")
		ask(scriptOn(t, "redis.call('GETSET', KEYS[1], 'x') while true do end", "k"), rpcv1.Outcome_INVALID, "too many steps")
		if n := store.Len(); n != 0 {
			t.Errorf("%d keys are stored", n)
		}
	})
}

// TestProgramsAreBounded: a server keeps the scripts that were used last, within its bound.
func TestProgramsAreBounded(t *testing.T) {
	p := newPrograms(env.Real())
	text := func(n int) []byte { return fmt.Appendf(nil, "return %d --%s", n, strings.Repeat("x", 30_000)) }
	for n := range 100 {
		if _, err := p.compile(text(n)); err != nil {
			t.Fatal(err)
		}
		if p.text(script.Sum(text(0))) == nil {
			t.Fatalf("the script that is used always is not kept after %d others", n)
		}
	}
	if p.bytes > programsBytes || len(p.bySum) != p.used.Len() || len(p.bySum) < 20 || p.text(script.Sum(text(1))) != nil || p.text(script.Sum(text(99))) == nil {
		t.Errorf("%d scripts of %d bytes", len(p.bySum), p.bytes)
	}
	p.forget()
	if p.bytes != 0 || p.text(script.Sum(text(99))) != nil {
		t.Error("a script is kept")
	}
}
