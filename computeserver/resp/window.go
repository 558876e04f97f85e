package resp

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// A window is some commands of a pipeline that were parsed and did not run yet. They run one after
// the other, in their order. But what they READ from memory servers is READ side by side, as far as
// the window shows it before:
//
//   - At the first GET of a run of GETs, all keys of the run are looked up in one batch
//     (index.Session.LookupBatch). Each GET is answered from that when its turn comes. Nothing that
//     this connection changes lies between the batch and the last of them, so each answer is right
//     at a moment between the arrival of the pipeline and its replies, and behind all earlier
//     changes of the connection. The GETs of a run have no order among themselves.
//   - At the first change, the session prepares for the keys of all changes of the window
//     (index.Session.Prepare), which then take effect one by one.
//   - If the design shares all keys, so that changes wait and nothing can be prepared, commands on
//     one key are set aside from the first change on, until settle. Engine.Do divides them among
//     sessions by their keys (engine/divide.go).
//
// Answers belong to the held session: they are forgotten when it is returned, and then a GET looks
// its key up by itself. So does a GET whose lookup failed, to say why.
type window struct {
	commands []pending
	at       int       // the command that runs
	behind   []pending // those behind it
	upTo     int       // commands before this one need no look ahead
	prepared bool

	answers []answer
	values  []byte // of answers, one after the other
	keys    [][]byte
	put     [][]byte // the value that a key gets; nil if it is read or deleted
	of      []uint8  // the command of a key
	n       int      // keys

	adds addRun

	visit func(i int, value []byte, err error) // made once
}

// pending is a command that was parsed.
type pending struct {
	k    *command // nil if there is no such command
	args [][]byte // they lie in the read buffer
}

// answer is what a GET of the window found.
type answer struct {
	known    bool
	found    bool
	from, to int // of its value in values
}

// A connection begins with windows of windowLeast commands. Where pipelines are longer, it gets
// larger ones.
const (
	windowLeast  = 64
	windowMost   = 256
	windowArgs   = 4        // arguments of a command on average, unless one alone has more
	windowValues = 16 << 10 // bytes of answers; keys beyond are looked up alone
	windowBytes  = 128      // about what one takes for each command, without values
)

func newWindow(commands int) *window {
	w := &window{commands: make([]pending, commands), answers: make([]answer, commands),
		keys: make([][]byte, commands), put: make([][]byte, commands), of: make([]uint8, commands)}
	w.visit = func(i int, value []byte, err error) {
		if len(w.values)+len(value) > windowValues || engine.CodeOf(err) == rpcv1.Outcome_WRONG_TYPE {
			return // it is looked up alone
		}
		from := len(w.values)
		w.values = append(w.values, value...)
		w.answers[w.of[i]] = answer{known: true, found: err == nil, from: from, to: len(w.values)}
	}
	return w
}

// bytes is what a window takes.
func (w *window) bytes() int {
	if w == nil {
		return 0
	}
	return windowBytes*len(w.commands) + cap(w.values)
}

// begin makes the window one of new commands.
func (w *window) begin() {
	w.forget()
	w.at, w.behind, w.adds = 0, nil, addRun{}
}

// forget forgets what came of looking ahead.
func (w *window) forget() {
	clear(w.answers)
	w.upTo, w.prepared, w.values = 0, false, w.values[:0]
}

// release drops what refers to the read buffer.
func (w *window) release() {
	if w != nil {
		w.behind, w.adds = nil, addRun{}
		clear(w.commands)
		clear(w.keys)
		clear(w.put)
	}
}

// gather parses the next commands of the read buffer. Commands are parsed once, as that may write
// their text over. An error is of what follows the commands that it returns.
func (c *conn) gather() (commands []pending, err error) {
	commands = c.alone[:0]
	if w := c.window; w != nil {
		w.begin()
		commands = w.commands[:0]
	}
	for args := c.args[:0]; len(commands) < cap(commands); {
		b := c.in[c.begin:]
		n, err := c.frames.next(b, !c.authed())
		if err != nil {
			return commands, err
		}
		if n == 0 {
			break
		}
		if len(commands) > 0 && len(args)+arguments(b[:n]) > cap(args) {
			break // in the next window, where there is room
		}
		c.begin += n
		if !c.authed() {
			if c.anonymous += n; c.anonymous > maxAnonymousBytes {
				return commands, errAnonymous
			}
		}
		these, ok := split(b[:n], args[len(args):])
		if !ok {
			return commands, protocolError("unbalanced quotes in request")
		}
		if len(these) == 0 {
			continue
		}
		if len(args)+len(these) <= cap(args) {
			args = args[:len(args)+len(these)]
		} else { // it is the first one
			c.args = these[:0]
			args = these
		}
		k := lookupCommand(these[0])
		commands = append(commands, pending{k, these})
		if k == nil || k.open || len(these) > respArgs {
			break // it may change how the next ones are read
		}
	}
	if c.begin < len(c.in) && len(commands) > 0 {
		c.widen(len(commands))
	}
	return commands, nil
}

// widen makes room for a window of several commands, if there is none, or for one of more if so
// many filled it.
func (c *conn) widen(commands int) {
	switch w := c.window; {
	case w == nil:
		c.window = newWindow(windowLeast)
	case commands == len(w.commands) && commands < windowMost:
		c.window = newWindow(windowMost)
	}
	if most := windowArgs * len(c.window.commands); cap(c.args) < most {
		c.args = make([][]byte, 0, most)
	}
}

// arguments is how many arguments a complete command has at most.
func arguments(b []byte) int {
	if b[0] != '*' {
		return len(b)/2 + 1
	}
	n, _, _ := header(b, 0, "") // it was looked at before
	return n
}

// lookAhead READs what commands from at on need, if that was not done before.
func (c *conn) lookAhead(commands []pending, at int) {
	w := c.window
	if w == nil {
		return
	}
	w.at, w.behind = at, commands[at+1:]
	if at < w.upTo || len(commands)-at < 2 || c.multi.begun || c.multi.watched != nil || c.refuse || !c.authed() {
		return
	}
	k := commands[at].k
	switch {
	case k == nil || k.is.Changes && w.prepared || !k.isOneOperation(len(commands[at].args)):
	case !k.is.Changes && !k.is.Looks: // it reads for itself
	case !k.is.Changes:
		upTo := at + 1
		for upTo < len(commands) && commands[upTo].k == k {
			upTo++
		}
		if upTo-at > 1 {
			if s := c.keysAhead(commands[:upTo], at); s != nil {
				c.returnBroken(s.LookupBatch(w.keys[:w.n], w.visit))
			}
		}
		w.upTo = upTo
	default:
		w.prepared = true
		if c.divided = c.divided || c.s.core.Divides(changesFrom(commands[at:])); c.divided || !c.s.core.Sessions.Prepares() {
			return
		}
		if s := c.keysAhead(commands, at); s != nil {
			c.returnBroken(s.Prepare(w.keys[:w.n], w.put[:w.n]))
		}
	}
}

// changesFrom is how many commands change one key.
func changesFrom(commands []pending) (n int) {
	for i := range commands {
		if p := &commands[i]; p.k != nil && p.k.isOneOperation(len(p.args)) && p.k.is.Changes {
			n++
		}
	}
	return n
}

// keysAhead selects the keys of the commands from at on that are like that at at: reads of one key,
// or changes of one. It returns the session that may use them; nil if they are less than two.
func (c *conn) keysAhead(commands []pending, at int) *engine.Session {
	w := c.window
	w.n = 0
	if c.s.core.Blocked() != nil || c.database != "" {
		return nil
	}
	before, changes := c.session, commands[at].k.is.Changes
	for i := at; i < len(commands); i++ {
		p := &commands[i]
		if p.k == nil || !p.k.isOneOperation(len(p.args)) || p.k.is.Changes != changes || !c.mayRun(p.k, p.args) {
			continue
		}
		key := p.args[1]
		if c.s.core.CheckKey(key) != nil || c.setsAside(key) {
			continue
		}
		if c.session != before && w.n > 0 { // they were served by another one
			return nil
		}
		before = c.session
		w.keys[w.n], w.of[w.n] = key, uint8(i)
		w.put[w.n] = engine.Stored(p.k.is, p.args[min(p.k.value, len(p.args)-1)])
		w.n++
	}
	if w.n < 2 {
		return nil
	}
	if c.session == nil && c.borrow() != nil {
		return nil // the commands themselves are told
	}
	return c.session
}

// returnBroken returns a session that died while it looked ahead.
func (c *conn) returnBroken(err error) {
	if engine.Kills(err) {
		c.noteError(err)
	}
}

// answered gives o what the command that runs found ahead. It reports whether it is there.
func (c *conn) answered(o *rpcv1.Outcome) bool {
	w := c.window
	if w == nil || !w.answers[w.at].known {
		return false
	}
	a := w.answers[w.at]
	w.answers[w.at] = answer{}
	if !a.found {
		o.Code = rpcv1.Outcome_NOT_FOUND
	} else {
		o.Value = w.values[a.from:a.to]
	}
	return true
}
