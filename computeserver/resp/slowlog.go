//env:real the wall clock, which the log shows

package resp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// SLOWLOG shows the pipelines that took long, from their arrival until their replies were ready to
// be sent. Commands of a pipeline wait for the log and for other servers together, so what one of
// them took by itself is not known: an entry has the first command, and how many came with it. A
// pipeline of one command, as most programs send, is that command.
//
// A pipeline that is fast costs one comparison: its text is still in the read buffer when it turns
// out to be slow.

// Bounds of the log, as Redis has them. Limits.SlowAfter is one too.
const (
	slowEntries  = 128
	slowArgs     = 32
	slowArgBytes = 128
)

// slowPipelines is the last slow pipelines. Safe for concurrent use.
type slowPipelines struct {
	mu      sync.Mutex
	next    int64 // number of the next entry
	entries []slowEntry
}

// slowEntry is one slow pipeline. Its arguments are copies.
type slowEntry struct {
	number        int64
	at            time.Time
	took          time.Duration
	commands      uint64
	args          []string
	address, name string
}

// SlowPipeline is one of the pipelines that SLOWLOG shows, without what the client sent.
type SlowPipeline struct {
	At       time.Time // of its end
	Took     time.Duration
	Command  string // the first one, in lower case
	Commands uint64
}

// Slow returns the last slow pipelines, up to n, the last one first.
func (s *Server) Slow(n int) (all []SlowPipeline) {
	for _, e := range s.slow.latest(n) {
		p := SlowPipeline{e.at, e.took, "unknown", e.commands}
		if name := strings.ToLower(e.args[0]); slices.Contains(CommandNames, name) {
			p.Command = name // what is no command may be a key
		}
		all = append(all, p)
	}
	return all
}

func (l *slowPipelines) add(e slowEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.number = l.next
	l.next++
	if len(l.entries) == slowEntries {
		l.entries = append(l.entries[:0], l.entries[1:]...)
	}
	l.entries = append(l.entries, e)
}

// latest are up to n entries, the last one first; n < 0 = all.
func (l *slowPipelines) latest(n int) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > len(l.entries) {
		n = len(l.entries)
	}
	all := make([]slowEntry, n)
	for i := range all {
		all[i] = l.entries[len(l.entries)-1-i]
	}
	return all
}

func (l *slowPipelines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// noteSlow notes the pipeline that begins the read buffer and had so many commands. Those of
// clients that have not authenticated are not noted: they wait for wrong passwords.
func (c *conn) noteSlow(took time.Duration, commands uint64) {
	if !c.authed() || c.begin == 0 || commands == 0 {
		return
	}
	args := shownCommand(c.in[:c.begin])
	if len(args) == 0 {
		return
	}
	if commands > 1 {
		args = append(args[:min(len(args), slowArgs-1)], fmt.Sprintf("... (a pipeline of %d commands)", commands))
	}
	c.s.slow.add(slowEntry{at: time.Now(), took: took, commands: commands, args: args, address: c.who.address, name: text(&c.who.name)})
}

// shownCommand is the first command of what was read, cut as Redis cuts it, and without passwords.
func shownCommand(b []byte) (shown []string) {
	var args [][]byte
	for {
		var f frames
		n, err := f.next(b, false)
		if err != nil || n == 0 {
			return nil
		}
		if b[0] == '*' {
			args, _ = split(b[:n], nil)
		} else { // its quotes are gone already
			args = bytes.Fields(b[:n])
		}
		if b = b[n:]; len(args) > 0 {
			break
		}
	}
	secret := len(args)
	switch {
	case isWord(args[0], "AUTH"):
		secret = 1
	case isWord(args[0], "HELLO"):
		secret = min(2, len(args))
	}
	for i, a := range args {
		switch {
		case i == slowArgs-1 && len(args) > slowArgs:
			return append(shown, fmt.Sprintf("... (%d more arguments)", len(args)-i))
		case i >= secret:
			shown = append(shown, "(redacted)")
		case len(a) > slowArgBytes:
			shown = append(shown, fmt.Sprintf("%s... (%d more bytes)", a[:slowArgBytes], len(a)-slowArgBytes))
		default:
			shown = append(shown, string(a))
		}
	}
	return shown
}

// cmdSlowLog is SLOWLOG.
func (c *conn) cmdSlowLog(args [][]byte) {
	switch sub := args[1]; {
	case isWord(sub, "GET") && len(args) <= 3:
		n := int64(10)
		if len(args) == 3 {
			asked, ok := engine.ParseInteger(args[2])
			if !ok {
				c.replyError(errNotInteger.Error())
				return
			}
			if n = asked; n < -1 {
				c.replyError("ERR count should be greater than or equal to -1")
				return
			}
		}
		c.slowEntries(c.s.slow.latest(int(min(n, slowEntries))))
	case isWord(sub, "LEN") && len(args) == 2:
		c.replyInt(int64(len(c.s.slow.latest(-1))))
	case isWord(sub, "RESET") && len(args) == 2:
		c.s.slow.reset()
		c.replyOK()
	default:
		c.replyError(unknownSubcommand(sub, "GET, LEN, RESET"))
	}
}

func (c *conn) slowEntries(all []slowEntry) {
	if err := c.reserve(len(all) * slowArgs * (slowArgBytes + 64)); err != nil {
		c.fail(err)
		return
	}
	c.out = redcon.AppendArray(c.out, len(all))
	for _, e := range all {
		c.out = redcon.AppendArray(c.out, 6)
		c.out = redcon.AppendInt(c.out, e.number)
		c.out = redcon.AppendInt(c.out, e.at.Unix())
		c.out = redcon.AppendInt(c.out, e.took.Microseconds())
		c.out = redcon.AppendArray(c.out, len(e.args))
		for _, a := range e.args {
			c.out = redcon.AppendBulkString(c.out, a)
		}
		c.out = redcon.AppendBulkString(redcon.AppendBulkString(c.out, e.address), e.name)
	}
	c.tally.Count(count.OK)
}

// cmdLatency is LATENCY, as of a Redis that watches no events, which is its default.
func (c *conn) cmdLatency(args [][]byte) {
	switch sub := args[1]; {
	case isWord(sub, "LATEST") && len(args) == 2, isWord(sub, "HISTORY") && len(args) == 3:
		c.out = redcon.AppendArray(c.out, 0)
		c.tally.Count(count.OK)
	case isWord(sub, "RESET"):
		c.replyInt(0)
	case isWord(sub, "DOCTOR") && len(args) == 2:
		c.replyBulk([]byte("Events are not watched. SLOWLOG GET shows the slowest pipelines of this server, and its metrics have the times of all requests (dmindex_compute_request_seconds).\n"))
	default:
		c.replyError(unknownSubcommand(sub, "DOCTOR, HISTORY, LATEST, RESET"))
	}
}
