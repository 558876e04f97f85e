package resp

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// clientInfo is what CLIENT LIST shows of a connection; other connections read it.
type clientInfo struct {
	address, local string
	user           atomic.Pointer[string] // nil before it has authenticated
	name           atomic.Pointer[string]
	library        atomic.Pointer[string]
	last           atomic.Pointer[command]
	subscriptions  [pubsub.Kinds]atomic.Int32
}

func (w *clientInfo) start(nc net.Conn) {
	w.address, w.local = nc.RemoteAddr().String(), nc.LocalAddr().String()
}

// listens reports whether the connection has subscriptions.
func (w *clientInfo) listens() bool {
	for kind := range w.subscriptions {
		if w.subscriptions[kind].Load() > 0 {
			return true
		}
	}
	return false
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
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s db=0 sub=%d psub=%d ssub=%d cmd=%s user=%s lib-name=%s\n",
		c.id, c.who.address, c.who.local, text(&c.who.name),
		c.who.subscriptions[pubsub.Channels].Load(), c.who.subscriptions[pubsub.Patterns].Load(), c.who.subscriptions[pubsub.Shards].Load(), cmd, text(&c.who.user), text(&c.who.library))
}

// clientLines is CLIENT LIST: a line a connection, in the order in which they came, as many as half
// a reply has.
func (c *conn) clientLines() string {
	var b strings.Builder
	for _, of := range c.s.connections() {
		if b.Len() > c.s.maxReply/2 {
			break
		}
		if c.maySee(of) {
			b.WriteString(of.line())
		}
	}
	return b.String()
}

// maySee reports whether the user may know, and end, a connection. A user that may not read every
// key knows those of its own name.
func (c *conn) maySee(of *conn) bool {
	u := c.login.User()
	return u.ReadsAll() || text(&of.who.user) == u.Name()
}

func (c *conn) cmdClient(args [][]byte) {
	sub := args[1]
	switch {
	case isWord(sub, "SETNAME") && len(args) == 3:
		if !printable(args[2]) {
			c.replyError("ERR Client names cannot contain spaces, newlines or special characters, and have at most 128 bytes.")
			return
		}
		name := string(args[2])
		c.who.name.Store(&name)
		c.replyOK()
	case isWord(sub, "GETNAME") && len(args) == 2:
		if name := text(&c.who.name); name != "" {
			c.replyBulk([]byte(name))
		} else {
			c.replyNull()
		}
	case isWord(sub, "ID") && len(args) == 2:
		c.replyInt(int64(c.id))
	case isWord(sub, "INFO") && len(args) == 2:
		c.replyBulk([]byte(c.line()))
	case isWord(sub, "LIST"):
		c.replyBulk([]byte(c.clientLines()))
	case isWord(sub, "SETINFO") && len(args) == 4:
		if isWord(args[2], "LIB-NAME") && printable(args[3]) {
			library := string(args[3])
			c.who.library.Store(&library)
		}
		c.replyOK()
	case isWord(sub, "REPLY") && len(args) == 3:
		c.clientReply(args[2])
	case (isWord(sub, "NO-EVICT") || isWord(sub, "NO-TOUCH")) && len(args) == 3:
		c.replyOK() // nothing is ever evicted
	case isWord(sub, "CAPA") && len(args) > 2: // what the client can do is not needed
		c.replyOK()
	case isWord(sub, "MAINT_NOTIFICATIONS") && len(args) > 2: // there is none to tell of
		c.replyOK()
	case isWord(sub, "KILL") && len(args) > 2:
		c.clientKill(args[2:])
	case isWord(sub, "TRACKING") && len(args) > 2:
		c.clientTracking(args[2:])
	case isWord(sub, "CACHING") && len(args) == 3:
		if !c.tracking {
			c.replyError("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
			return
		}
		c.replyOK()
	case isWord(sub, "GETREDIR") && len(args) == 2:
		redirect := int64(-1)
		if c.tracking {
			redirect = 0
		}
		c.replyInt(redirect)
	default:
		c.replyError(unknownSubcommand(sub, "CACHING, CAPA, GETNAME, GETREDIR, ID, INFO, KILL, LIST, MAINT_NOTIFICATIONS, NO-EVICT, NO-TOUCH, REPLY, SETINFO, SETNAME, TRACKING"))
	}
}
