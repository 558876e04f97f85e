package engine

import (
	"fmt"
	"sync/atomic"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/script"
	"github.com/dmindex/dmindex/pkg/env"
)

// A script is an operation of a group: it runs where its keys are served, on the copies of the
// pairs that the group has, and what it changes there becomes, with what the other operations
// changed, one step. So all that is true of a group is true of a script:
//
//	1  the group's pairs are read: those of the keys that its scripts declare, too
//	2  the script runs on the copies; nothing that it does is seen by anybody
//	3  the index compares the pairs with what 1 read, and makes the changes, in one step; or, if
//	   one is another by now, all begins again at 1
//
// The script names its keys before it runs, and a call on another key is an error. So the keys are
// known at 1, the rights to them were checked when the script was sent, and they are all of one
// server (placeOf, servesAll).
//
// # Why it runs without a lock
//
// A script takes up to DefaultSteps, some 70 ms, and a decision of Modify runs while others wait
// for the leaf, also other servers. So a group with a script never runs in Modify: a group of one
// key looks the pair up, runs, and has Modify compare (groupPairs.compared). Comparing bytes is
// enough, although a pair may have changed and changed back: the script's answer and its changes
// follow from what it read, and that is what the pairs have at the moment of 3.
//
// A script that changed nothing takes effect when the pairs were compared, or, of one key, when it
// was looked up.
//
// # Why that ends
//
// Each time that 3 begins again, another operation has changed a pair. Scripts on the same keys
// take turns from their second try on (turns). Others, which are quicker, may come in between again
// and again: after mostTries, or when all tries took mostSteps, the script ends with an error, and
// nothing is done.
//
// A turn ends with the script that has it. A group takes all of its turns in their order, and who
// has one waits for no lock of the index, so no two wait for each other. Each that waits has a
// session: at most mostInTurn wait for one turn, and half of the sessions for any. Where that is
// too many a script tries again without a turn.
//
// A script is repeated here only, before anything is done. One whose answer is lost is UNKNOWN, as
// every change.

// Bounds of a group with scripts.
const (
	mostTries   = 64
	mostSteps   = 4 * script.DefaultSteps // of all tries
	mostInTurn  = 8
	turnsAtOnce = 64
)

// Commands are what scripts call.
type Commands interface {
	// Call runs a command of a script, and returns its reply in RESP2. What the command does is
	// done by host.
	Call(args [][]byte, host ScriptHost) (reply []byte)
}

// ScriptHost does what a command of a script asks for.
type ScriptHost interface {
	// Do runs an operation on the script's pairs.
	Do(op *rpcv1.Operation) *rpcv1.Outcome
	// Now is the time at which the script runs, in milliseconds since 1970. It stands still while
	// it does.
	Now() int64
	// Publish notes a message, which is published when the script was done. An error is what the
	// script is told.
	Publish(m *rpcv1.PublishedMessage) error
}

// scripts is what the scripts of a server share. Safe for concurrent use.
type scripts struct {
	c        *Engine
	commands Commands // nil = scripts are refused
	programs *programs
	clock    func() int64
	turns    turns
	waiting  atomic.Int32 // for a turn, with a session each
}

// SetCommands says what scripts call. It is called before the engine is used.
func (c *Engine) SetCommands(to Commands) { c.Sessions.scripts.commands = to }

// checkScript returns an error for a script that no server can run.
func (c *Engine) checkScript(op *rpcv1.Operation) error {
	fail := func(format string, args ...any) error {
		return &Failure{Code: rpcv1.Outcome_INVALID, Message: fmt.Sprintf(format, args...)}
	}
	s, err := op.Script()
	switch {
	case err != nil:
		return fail("%v", err)
	case len(s.Text) > script.MaxText:
		return fail("a script of %d bytes, at most %d are possible; divide it", len(s.Text), script.MaxText)
	case len(s.Keys) == 0 || string(s.Keys[0]) != string(op.Key):
		return fail("a script is sent with the first of its keys")
	case len(s.Keys) > rpcv1.MaxGroup:
		return fail("a script of %d keys, at most %d are possible; divide its work", len(s.Keys), rpcv1.MaxGroup)
	case c.Sessions.scripts.commands == nil:
		return &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: "this server runs no scripts, and nothing was done"}
	}
	for _, key := range s.Keys {
		if err := c.CheckKey(key); err != nil {
			return err
		}
		if c.ofSets(key) {
			return ErrInner
		}
	}
	return nil
}

// CheckMember returns an error for an operation that a group cannot have.
func (c *Engine) CheckMember(op *rpcv1.Operation) error {
	switch {
	case op.Kind.IsScript():
		return c.checkScript(op)
	case op.Kind == rpcv1.Operation_SET_ADD:
		return errSetInGroup
	}
	return c.Check(op)
}

// Program compiles a script, or finds it among those that were. An error says what is wrong with
// it.
func (c *Engine) Program(text []byte) (*script.Program, error) {
	return c.Sessions.scripts.programs.compile(text)
}

// ScriptText is the text of a script that this server has; nil if it has none of that sum.
func (c *Engine) ScriptText(sum string) []byte { return c.Sessions.scripts.programs.text(sum) }

// ForgetScripts drops all scripts that the server has. Those that run are not disturbed.
func (c *Engine) ForgetScripts() { c.Sessions.scripts.programs.forget() }

// scriptRun is a script under way in a group.
type scriptRun struct {
	g      *grouping
	of     *scripts
	keys   map[string]struct{}
	reads  bool // it must change nothing
	answer int  // bytes of the outcomes of the call under way
	steps  int  // that it took
	failed error

	channels  [][]byte // see rpcv1.Script
	published []*rpcv1.PublishedMessage
	room      int // bytes that it may publish
}

// runScript is SCRIPT and SCRIPT_READ, on the copies of a group.
func runScript(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	if s.in == nil || s.scripts == nil || s.scripts.commands == nil {
		return dst, errScriptAlone
	}
	asked, err := op.Script()
	if err != nil {
		return dst, &Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}
	}
	program, err := s.scripts.programs.compile(asked.Text)
	if err != nil {
		return dst, &Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}
	}
	x := &scriptRun{g: s.in, of: s.scripts, keys: make(map[string]struct{}, len(asked.Keys)), reads: program.ReadOnly || op.Kind == rpcv1.Operation_SCRIPT_READ, channels: asked.Channels, room: MostPublished}
	for _, key := range asked.Keys {
		x.keys[string(key)] = struct{}{}
	}
	o.Value, err = x.run(program, asked, &s.in.budget, dst)
	if err == nil && len(x.published) > 0 {
		err = o.AppendPublished(x.published)
	}
	return o.Value, err
}

// errScriptAlone is the error of a script that is in no group.
var errScriptAlone error = &Failure{Code: rpcv1.Outcome_INVALID, Message: "a script stands in a group, and nothing was done; send a GROUP that has it"}

// scriptBudget is what is left for the scripts of a group: in this try, and in all.
type scriptBudget struct{ steps, memory, all int }

func (x *scriptRun) run(program *script.Program, asked *rpcv1.Script, of *scriptBudget, dst []byte) ([]byte, error) {
	r := &script.Run{Keys: asked.Keys, Args: asked.Args, RESP3: asked.Resp3, Steps: min(of.steps, of.all), Memory: of.memory, Seed: uint32(x.of.c.Env.Uint64()), Call: func(args [][]byte) ([]byte, int) {
		x.answer, x.steps = 0, 0
		return x.of.commands.Call(args, x), x.steps
	}}
	had := r.Steps
	dst, err := program.Do(r, dst)
	of.steps, of.all, of.memory = of.steps-(had-r.Steps), of.all-(had-r.Steps), r.Memory
	switch {
	case x.failed != nil:
		return dst, x.failed
	case err != nil:
		return dst, &groupEnd{&Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}}
	}
	return dst, nil
}

// groupEnd wraps an error of an operation that ends its group.
type groupEnd struct{ error }

// Unwrap returns the cause.
func (e *groupEnd) Unwrap() error { return e.error }

// RunWithoutKeys runs a script that has no keys, at the server that was asked for it. It returns
// its reply, and what it published. reads says that it must change nothing.
func (c *Engine) RunWithoutKeys(asked *rpcv1.Script, reads bool) ([]byte, []*rpcv1.PublishedMessage, error) {
	program, err := c.Program(asked.Text)
	if err != nil {
		return nil, nil, &Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}
	}
	of := c.Sessions.scripts
	x := &scriptRun{of: of, g: &grouping{moment: of.now()}, reads: reads || program.ReadOnly, channels: asked.Channels, room: MostPublished}
	reply, err := x.run(program, asked, &scriptBudget{script.DefaultSteps, script.DefaultMemory, script.DefaultSteps}, nil)
	return reply, x.published, read(err)
}

// Now implements ScriptHost.
func (x *scriptRun) Now() int64 { return x.g.moment }

// Do implements ScriptHost.
func (x *scriptRun) Do(op *rpcv1.Operation) *rpcv1.Outcome {
	refuse := func(code rpcv1.Outcome_Code, format string, args ...any) *rpcv1.Outcome {
		return &rpcv1.Outcome{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	_, declared := x.keys[string(op.Key)]
	switch {
	case x.failed != nil:
		return OutcomeOf(x.failed)
	case !declared || op.Kind == rpcv1.Operation_GROUP || op.Kind.IsScript():
		return refuse(rpcv1.Outcome_INVALID, "Script attempted to access a key that it does not declare; name each key in KEYS")
	case x.reads && op.Kind.Traits().Changes:
		return refuse(rpcv1.Outcome_INVALID, errReadOnly)
	}
	if err := x.of.c.Check(op); err != nil {
		return OutcomeOf(err)
	}
	o := &rpcv1.Outcome{}
	_, err := Run(&x.g.over, op, nil, o)
	x.steps += len(x.g.pairs.pairOf(op.Key).value) / pairBytesAStep
	switch means := o.Code.Meaning(); {
	case !means.Healthy:
		x.failed = err
		return OutcomeOf(err)
	case !means.Answer:
		o = OutcomeOf(err)
	}
	if x.answer += len(o.Value) + len(o.Message) + opOverhead; x.answer > MostGroupAnswer {
		return refuse(rpcv1.Outcome_INVALID, "the command answers more than %d bytes; ask for less", MostGroupAnswer)
	}
	return o
}

// pairBytesAStep is about how many bytes of a pair are read, or made anew, in a step.
const pairBytesAStep = 16

// now is the time for scripts.
func (s *scripts) now() int64 {
	if s.clock == nil {
		return 0
	}
	return s.clock()
}

// newScripts makes what the scripts of c share.
func newScripts(c *Engine, clock func() int64) *scripts {
	s := &scripts{c: c, programs: newPrograms(c.Env), clock: clock}
	s.turns.init(c.Env)
	return s
}

// begin prepares a try of a group with scripts. It returns an error if there were too many.
func (s *scripts) begin(g *grouping) error {
	g.tries++
	g.budget.steps, g.budget.memory = script.DefaultSteps, script.DefaultMemory
	switch {
	case g.tries > mostTries || g.budget.all <= 0:
		return &Failure{Code: rpcv1.Outcome_INVALID, Message: fmt.Sprintf("others changed the script's keys each of %d times that it ran, and nothing was done; send it again, or give it fewer keys", g.tries-1)}
	case g.tries > 1 && len(g.turns) == 0 && !s.takeTurns(g):
		s.c.Env.Yield()
	}
	return nil
}

// turns are for scripts that run again. Keys share one where their sums are equal.
type turns [turnsAtOnce]struct {
	mu   env.Mutex // held by the script that has the turn
	look env.Mutex
	all  int // that have it, or wait
}

func (t *turns) init(e env.Env) {
	for i := range t {
		t[i].mu, t[i].look = e.NewMutex(), e.NewMutex()
	}
}

// takeTurns takes the turns of the group's keys, in their order. It returns false, and takes none,
// if too many wait.
func (s *scripts) takeTurns(g *grouping) bool {
	t := &s.turns
	var wanted [turnsAtOnce]bool
	for i := range g.pairs.members {
		sum := uint32(2166136261)
		for _, b := range g.pairs.members[i].Key {
			sum = (sum ^ uint32(b)) * 16777619
		}
		wanted[sum%turnsAtOnce] = true
	}
	for i := range t {
		if !wanted[i] {
			continue
		}
		waits, ok := s.queue(i)
		if !ok {
			t.leaveAll(g)
			return false
		}
		t[i].mu.Lock()
		if waits {
			s.waiting.Add(-1)
		}
		g.turns = append(g.turns, i)
	}
	return true
}

// queue notes that a script is to have a turn. It returns false if too many wait for that one, or
// so many for any that no session would be left for others. waits says that another one may have
// it.
func (s *scripts) queue(i int) (waits, ok bool) {
	t := &s.turns[i]
	t.look.Lock()
	defer t.look.Unlock()
	if waits = t.all > 0; waits {
		if t.all > mostInTurn {
			return false, false
		}
		if int(s.waiting.Add(1)) > s.c.Sessions.max/2 {
			s.waiting.Add(-1)
			return false, false
		}
	}
	t.all++
	return waits, true
}

// leaveAll leaves the turns that the group has.
func (t *turns) leaveAll(g *grouping) {
	for _, i := range g.turns {
		t[i].mu.Unlock()
		t[i].look.Lock()
		t[i].all--
		t[i].look.Unlock()
	}
	g.turns = g.turns[:0]
}
