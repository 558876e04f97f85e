package resp

import (
	"fmt"
	"strconv"
	"strings"
)

// clientKill is CLIENT KILL: of the connections that the user sees, those for which all that is
// said holds are ended. Its old form names an address, and is answered with OK.
func (c *conn) clientKill(args [][]byte) {
	if len(args) == 1 {
		if c.kill(killed{address: string(args[0])}) == 0 {
			c.replyError("ERR No such client")
			return
		}
		c.replyOK()
		return
	}
	which := killed{others: true}
	for rest := args; len(rest) > 0; rest = rest[2:] {
		if len(rest) == 1 {
			c.replyError(errSyntax.Error())
			return
		}
		value := string(rest[1])
		switch {
		case isWord(rest[0], "ID"):
			id, err := strconv.ParseUint(value, 10, 63)
			if err != nil || id == 0 {
				c.replyError("ERR client-id should be greater than 0")
				return
			}
			which.id = id
		case isWord(rest[0], "ADDR"):
			which.address = value
		case isWord(rest[0], "LADDR"):
			which.local = value
		case isWord(rest[0], "USER"):
			which.user = value
		case isWord(rest[0], "TYPE"):
			switch strings.ToLower(value) {
			case "normal", "pubsub":
				which.kind = strings.ToLower(value)
			case "master", "replica", "slave":
				which.none = true
			default:
				c.replyError(fmt.Sprintf("ERR Unknown client type '%.64s'", value))
				return
			}
		case isWord(rest[0], "SKIPME") && (isWord(rest[1], "YES") || isWord(rest[1], "NO")):
			which.others = isWord(rest[1], "YES")
		default:
			c.replyError(errSyntax.Error())
			return
		}
	}
	c.replyInt(int64(c.kill(which)))
}

// killed says which connections are ended: those that are as all fields say which are set.
type killed struct {
	id                   uint64
	address, local, user string
	others               bool // not the one that asks
	none                 bool
	kind                 string // "normal" or "pubsub": without subscriptions, or with some
}

// kill ends connections, and returns how many. The one that asks ends after its reply.
func (c *conn) kill(which killed) (n int) {
	for _, of := range c.s.connections() {
		w := &of.who
		switch {
		case which.kind != "" && w.listens() != (which.kind == "pubsub"), which.none, !c.maySee(of), which.others && of == c, which.id != 0 && which.id != of.id,
			which.address != "" && which.address != w.address, which.local != "" && which.local != w.local, which.user != "" && which.user != text(&w.user):
			continue
		case of == c:
			c.closing = true
		default:
			of.cut()
		}
		n++
	}
	return n
}
