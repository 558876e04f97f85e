//env:real the wall clock, which each line begins with

package resp

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/users"
)

// MONITOR sends a line for each command that this server runs, as Redis 7.0 does: after the command
// was run, a script before what it calls. Administrative commands, and commands that were refused
// before they were run or queued, have no line. The commands of a transaction have theirs when EXEC
// has done them, also those that it refused: a script there behind what it called.
//
// A line is pushed into the buffer of each monitor as a message is into that of a subscriber, so
// commands wait for no monitor, and one that does not read is cut (subscriber). Where nobody
// monitors, a command costs one atomic load.
//
// A connection may be a monitor and have subscriptions. One monitor is shown what all others do, so
// its user needs every right that there is.

// Bounds of monitors.
const (
	maxMonitors  = 16       // of a server: each of them takes a copy of each line
	monitorBytes = 16 << 10 // of a command's arguments that its line has
)

// monitors are the connections that are sent each command. Safe for concurrent use.
type monitors struct {
	all atomic.Pointer[[]*subscriber] // nil = there are none. A list is not changed
	mu  sync.Mutex                    // to set it
}

// add adds a monitor. It reports false if there are as many as possible.
func (m *monitors) add(s *subscriber) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*subscriber
	if of := m.all.Load(); of != nil {
		all = *of
	}
	if len(all) >= maxMonitors {
		return false
	}
	all = append(slices.Clip(all), s)
	m.all.Store(&all)
	return true
}

func (m *monitors) remove(s *subscriber) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.all.Load()
	if of == nil {
		return
	}
	all := slices.DeleteFunc(slices.Clone(*of), func(other *subscriber) bool { return other == s })
	if len(all) == 0 {
		m.all.Store(nil)
		return
	}
	m.all.Store(&all)
}

// show shows a command to the monitors, if there are any.
func (m *monitors) show(from string, k *command, args [][]byte) {
	if all := m.all.Load(); all != nil && !unshown(k, args) {
		line := appendMonitored(nil, time.Now(), from, secretsOf(k, args), args)
		for _, s := range *all {
			s.pushLine(line)
		}
	}
}

// unshown reports whether a command is administrative, in Redis' words.
func unshown(k *command, args [][]byte) bool {
	switch k.name {
	case "monitor", "config":
		return true
	case "slowlog", "latency":
		return !isWord(args[1], "HELP")
	case "acl":
		return !isWord(args[1], "WHOAMI")
	case "client":
		return isWord(args[1], "LIST") || isWord(args[1], "KILL") || isWord(args[1], "NO-EVICT")
	}
	return false
}

// secretsOf says which arguments are not shown: names and passwords. Where the arguments are wrong
// it rather says too many.
func secretsOf(k *command, args [][]byte) func(i int) bool {
	switch k.name {
	case "auth":
		return func(i int) bool { return i > 0 }
	case "hello":
		return func(i int) bool { return i > 1 && isWord(args[i-1], "AUTH") || i > 2 && isWord(args[i-2], "AUTH") }
	}
	return nil
}

// appendMonitored appends the line of a command, with up to monitorBytes of its arguments.
func appendMonitored(b []byte, at time.Time, from string, secret func(i int) bool, args [][]byte) []byte {
	us := at.UnixMicro()
	b = fmt.Appendf(b, "+%d.%06d [0 %s]", us/1e6, us%1e6, from)
	left := monitorBytes
	for i, a := range args {
		if left <= 0 {
			b = fmt.Appendf(b, ` "... (%d more arguments)"`, len(args)-i)
			break
		}
		b = append(b, ' ', '"')
		switch {
		case secret != nil && secret(i):
			b = append(b, "(redacted)"...)
		case len(a) > left:
			b = fmt.Appendf(appendEscaped(b, a[:left]), "... (%d more bytes)", len(a)-left)
		default:
			b = appendEscaped(b, a)
		}
		b = append(b, '"')
		left -= len(a) + 1 // so there is an end to empty ones
	}
	return append(b, '\r', '\n')
}

// appendEscaped appends bytes as Redis writes them between quotes.
func appendEscaped(b, text []byte) []byte {
	const digits = "0123456789abcdef"
	for _, c := range text {
		switch c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\a':
			b = append(b, '\\', 'a')
		case '\b':
			b = append(b, '\\', 'b')
		default:
			if c >= ' ' && c <= '~' {
				b = append(b, c)
				continue
			}
			b = append(b, '\\', 'x', digits[c>>4], digits[c&15])
		}
	}
	return b
}

// cmdMonitor is MONITOR. A monitor that says it again is not replied, as in Redis.
func (c *conn) cmdMonitor(_ [][]byte) {
	switch {
	case c.execFrom > 0:
		c.replyError("ERR MONITOR isn't allowed for DENY BLOCKING client")
		return
	case c.sub != nil && c.sub.monitors:
		c.tally.Count(count.OK)
		return
	}
	s := c.subscribes()
	if !c.s.monitors.add(s) {
		c.leaveIfNone()
		c.replyError("ERR this server has as many monitors as possible, which is " + strconv.Itoa(maxMonitors) + "; end one of them")
		return
	}
	s.monitors = true
	c.replyOK()
}

// endMonitor ends what MONITOR began.
func (c *conn) endMonitor() {
	if s := c.sub; s != nil && s.monitors {
		c.s.monitors.remove(s)
		s.monitors = false
		c.takePushes()
	}
}

// seesAll reports whether a user may see every command: all keys, and all messages.
func seesAll(user *users.User) bool { return changesAll(user) && user.MayUseChannelsFrom(nil) }

// pushLine pushes a line of MONITOR.
func (s *subscriber) pushLine(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roomLocked(len(line)) {
		s.mu.pending = append(s.mu.pending, line...)
		s.wakeLocked()
	}
}
