package resp

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

func (c *conn) cmdPing(args [][]byte) {
	switch {
	case len(args) <= 2 && c.sub.listens() && !c.resp3: // a client that listens takes arrays only
		var text []byte
		if len(args) == 2 {
			text = args[1]
		}
		c.out = redcon.AppendBulk(redcon.AppendBulkString(redcon.AppendArray(c.out, 2), "pong"), text)
		c.tally.Count(count.OK)
	case len(args) == 1:
		c.out = append(c.out, "+PONG\r\n"...)
		c.tally.Count(count.OK)
	case len(args) == 2:
		c.replyBulk(args[1])
	default:
		c.replyError("ERR wrong number of arguments for 'ping' command")
	}
}

func (c *conn) cmdEcho(args [][]byte) { c.replyBulk(args[1]) }

func (c *conn) cmdQuit(_ [][]byte) {
	c.endMonitor() // OK is the last line
	c.replyOK()
	c.closing = true
}

func (c *conn) cmdReset(_ [][]byte) {
	if c.replies == repliesOff {
		c.replies = repliesOn
		c.unmute()
	}
	c.settle()
	c.unsubscribeAll()
	c.s.demote(c)
	c.resp3, c.database, c.tracking = false, "", false
	c.discard()
	c.who.name.Store(nil)
	c.out = append(c.out, "+RESET\r\n"...)
	c.tally.Count(count.OK)
}

// cmdSelect is SELECT 0. After another one, commands that touch the index are refused until SELECT
// 0 or RESET. Clients send SELECT and commands behind it in one pipeline, or ignore its error: what
// is meant for another database must not change this one.
func (c *conn) cmdSelect(args [][]byte) {
	if c.database = ""; string(args[1]) != "0" {
		c.database = fmt.Sprintf("%.20q", args[1])
		c.replyError("ERR DB index is out of range; an index is one database, 0")
		return
	}
	c.replyOK()
}

func (c *conn) cmdTime(_ [][]byte) {
	now := time.Now().UnixMicro() //env:real the wall clock is what is asked for
	c.out = redcon.AppendArray(c.out, 2)
	c.out = redcon.AppendBulkString(c.out, strconv.FormatInt(now/1e6, 10))
	c.out = redcon.AppendBulkString(c.out, strconv.FormatInt(now%1e6, 10))
	c.tally.Count(count.OK)
}

// cmdAuth is AUTH [username] password.
func (c *conn) cmdAuth(args [][]byte) {
	if len(args) > 3 {
		c.replyError("ERR syntax error")
		return
	}
	if !c.s.users.Required() && len(args) == 2 {
		c.replyError("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return
	}
	if c.logIn(args[1:]) {
		c.replyOK()
	}
}

// cmdHello is HELLO [protover [AUTH username password] [SETNAME name]].
func (c *conn) cmdHello(args [][]byte) {
	resp3, name := c.resp3, []byte(nil)
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			resp3 = false
		case "3":
			resp3 = true
		default:
			if _, err := strconv.Atoi(string(args[1])); err != nil {
				c.replyError("ERR Protocol version is not an integer or out of range")
				return
			}
			c.replyError("NOPROTO unsupported protocol version")
			return
		}
		for rest := args[2:]; len(rest) > 0; {
			switch {
			case isWord(rest[0], "AUTH") && len(rest) > 2:
				if !c.logIn(rest[1:3]) {
					return
				}
				rest = rest[3:]
			case isWord(rest[0], "SETNAME") && len(rest) > 1 && printable(rest[1]):
				name = rest[1]
				rest = rest[2:]
			default:
				c.replyError(fmt.Sprintf("ERR Syntax error in HELLO option '%.64s'", rest[0]))
				return
			}
		}
	}
	if !c.authed() {
		c.replyError("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if c.resp3 != resp3 {
		c.settle() // replies of commands before this one are in the former protocol
		if c.sub != nil {
			c.sub.setProtocol(resp3)
		}
	}
	c.resp3 = resp3
	if name != nil {
		text := string(name)
		c.who.name.Store(&text)
	}
	proto := int64(2)
	if resp3 {
		proto = 3
	}
	c.out = c.appendMap(c.out, 7)
	c.out = appendPair(c.out, "server", "redis") // clients look at it; INFO says what this is
	c.out = appendPair(c.out, "version", respVersion)
	c.out = redcon.AppendBulkString(c.out, "proto")
	c.out = redcon.AppendInt(c.out, proto)
	c.out = redcon.AppendBulkString(c.out, "id")
	c.out = redcon.AppendInt(c.out, int64(c.id))
	c.out = appendPair(c.out, "mode", "standalone")
	c.out = appendPair(c.out, "role", "master")
	c.out = redcon.AppendBulkString(c.out, "modules")
	c.out = redcon.AppendArray(c.out, 0)
	c.tally.Count(count.OK)
}

// respVersion is the version of Redis whose commands these are, for clients that ask.
const respVersion = "7.2.0"

func (c *conn) appendMap(b []byte, pairs int) []byte {
	if c.resp3 {
		return append(strconv.AppendInt(append(b, '%'), int64(pairs), 10), '\r', '\n')
	}
	return redcon.AppendArray(b, 2*pairs)
}

func appendPair(b []byte, key, value string) []byte {
	return redcon.AppendBulkString(redcon.AppendBulkString(b, key), value)
}
