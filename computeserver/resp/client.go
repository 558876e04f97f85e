package resp

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/tidwall/redcon"
)

// clientInfo is what CLIENT LIST shows of a connection; other connections read it.
type clientInfo struct {
	address, local string
	user           atomic.Pointer[string] // nil before it has authenticated
	name           atomic.Pointer[string]
	library        atomic.Pointer[string]
	last           atomic.Pointer[command]
}

func (w *clientInfo) start(nc net.Conn) {
	w.address, w.local = nc.RemoteAddr().String(), nc.LocalAddr().String()
}

func text(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}

// maxNameBytes bounds what a client may say about itself.
const maxNameBytes = 128

// printable reports whether a name may stand in CLIENT LIST.
func printable(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return len(name) <= maxNameBytes
}

func (c *conn) line() string {
	cmd := "NULL"
	if k := c.who.last.Load(); k != nil {
		cmd = k.name
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=0 cmd=%s user=%s lib-name=%s\n",
		c.id, c.who.address, c.who.local, text(&c.who.name), cmd, text(&c.who.user), text(&c.who.library))
}

// clientLines is CLIENT LIST: a line a connection, in the order in which they came, as many as half
// a reply has. A user that may not read every key sees the connections of its own name.
func (c *conn) clientLines() string {
	var b strings.Builder
	for _, of := range c.s.connections() {
		if b.Len() > c.s.maxReply/2 {
			break
		}
		if u := c.login.User(); u.ReadsAll() || text(&of.who.user) == u.Name() {
			b.WriteString(of.line())
		}
	}
	return b.String()
}

func (c *conn) cmdClient(args [][]byte) {
	sub := args[1]
	switch {
	case is(sub, "SETNAME") && len(args) == 3:
		if !printable(args[2]) {
			c.replyError("ERR Client names cannot contain spaces, newlines or special characters, and have at most 128 bytes.")
			return
		}
		name := string(args[2])
		c.who.name.Store(&name)
		c.replyOK()
	case is(sub, "GETNAME") && len(args) == 2:
		if name := text(&c.who.name); name != "" {
			c.replyBulk([]byte(name))
		} else {
			c.replyNull()
		}
	case is(sub, "ID") && len(args) == 2:
		c.replyInt(int64(c.id))
	case is(sub, "INFO") && len(args) == 2:
		c.replyBulk([]byte(c.line()))
	case is(sub, "LIST"):
		c.replyBulk([]byte(c.clientLines()))
	case is(sub, "SETINFO") && len(args) == 4:
		if is(args[2], "LIB-NAME") && printable(args[3]) {
			library := string(args[3])
			c.who.library.Store(&library)
		}
		c.replyOK()
	case is(sub, "REPLY") && len(args) == 3:
		c.clientReply(args[2])
	case (is(sub, "NO-EVICT") || is(sub, "NO-TOUCH")) && len(args) == 3: // nothing is ever evicted
		c.replyOK()
	default:
		c.replyError(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.64s'. SETNAME, GETNAME, ID, INFO, LIST, SETINFO, REPLY, NO-EVICT and NO-TOUCH are possible.", sub))
	}
}

// cmdCommand is COMMAND and its subcommands COUNT, DOCS, INFO and LIST.
func (c *conn) cmdCommand(args [][]byte) {
	switch {
	case len(args) == 1, is(args[1], "INFO"):
		names := CommandNames[:len(commands)]
		if len(args) > 2 {
			names = make([]string, len(args)-2)
			for i, name := range args[2:] {
				names[i] = string(name)
			}
		}
		c.out = redcon.AppendArray(c.out, len(names))
		c.tally.Count(count.OK)
		for _, name := range names {
			k := lookupCommand([]byte(name))
			if k == nil {
				c.out = c.appendNull(c.out)
				continue
			}
			c.out = redcon.AppendArray(c.out, 6)
			c.out = redcon.AppendBulkString(c.out, k.name)
			c.out = redcon.AppendInt(c.out, int64(k.arity))
			c.out = appendFlags(c.out, k)
			c.out = redcon.AppendInt(c.out, int64(k.keys.first))
			c.out = redcon.AppendInt(c.out, int64(k.keys.last))
			c.out = redcon.AppendInt(c.out, int64(k.keys.step))
		}
	case is(args[1], "COUNT"):
		c.replyInt(int64(len(commands)))
	case is(args[1], "LIST"):
		c.out = redcon.AppendArray(c.out, len(commands))
		c.tally.Count(count.OK)
		for _, name := range CommandNames[:len(commands)] {
			c.out = redcon.AppendBulkString(c.out, name)
		}
	case is(args[1], "DOCS"):
		named := CommandNames[:len(commands)]
		if len(args) > 2 {
			named = nil
			for _, name := range args[2:] {
				if k := lookupCommand(name); k != nil {
					named = append(named, k.name)
				}
			}
		}
		c.out = c.appendMap(c.out, len(named))
		c.tally.Count(count.OK)
		for _, name := range named {
			c.out = redcon.AppendBulkString(c.out, name)
			k, group := lookupCommand([]byte(name)), "server"
			if k.data {
				group = "generic"
			}
			c.out = c.appendMap(c.out, 2)
			c.out = appendPair(c.out, "summary", k.does)
			c.out = appendPair(c.out, "group", group) // HELP @GROUP of redis-cli needs it
		}
	default:
		c.replyError(fmt.Sprintf("ERR unknown subcommand '%.64s'. COUNT, DOCS, INFO and LIST are possible.", args[1]))
	}
}

// appendFlags appends what Redis calls the flags of a command.
func appendFlags(b []byte, k *command) []byte {
	switch {
	case !k.data:
		return redcon.AppendArray(b, 0)
	case k.kind.Known() && k.is.Changes:
		return redcon.AppendString(redcon.AppendArray(b, 1), "write")
	}
	return redcon.AppendString(redcon.AppendArray(b, 1), "readonly")
}

// cmdConfig answers what clients ask before they start; there is nothing to set.
func (c *conn) cmdConfig(args [][]byte) {
	if !is(args[1], "GET") || len(args) < 3 {
		c.replyError("ERR CONFIG GET is possible; the configuration of an index is its DMIndex object")
		return
	}
	var found [][2]string
	for _, known := range [][2]string{{"appendonly", "no"}, {"databases", "1"}, {"maxclients", strconv.Itoa(c.s.maxConns)}, {"save", ""}} {
		for _, pattern := range args[2:] {
			if matches, _ := newGlob(bytes.ToLower(pattern), maxNameBytes).match([]byte(known[0])); matches {
				found = append(found, known)
				break
			}
		}
	}
	c.out = c.appendMap(c.out, len(found))
	c.tally.Count(count.OK)
	for _, f := range found {
		c.out = appendPair(c.out, f[0], f[1])
	}
}
