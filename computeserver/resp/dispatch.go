package resp

import (
	"fmt"
	"strings"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// dispatch runs one command and appends its reply.
func (c *conn) dispatch(p *pending) {
	k, args := p.k, p.args
	if k == nil {
		c.tally.Slot = len(CommandNames) - 1
		switch {
		case isHTTP(args[0]):
			c.endHTTP()
		case !c.authed():
			c.reject("NOAUTH Authentication required.")
		default:
			c.reject(unknownCommand(args))
		}
		return
	}
	c.tally.Slot = k.slot
	switch {
	case !k.allowsArgs(len(args)):
		if k.name == "exec" {
			c.discard()
			c.replyError("EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command")
			return
		}
		c.reject("ERR wrong number of arguments for '" + k.name + "' command")
	case !c.authed() && !k.open:
		c.reject("NOAUTH Authentication required.")
	case !c.mayRun(k, args):
		c.reject(noPermission(k, c.login.User()))
	case c.sub != nil && !c.resp3 && !k.listening && c.sub.listens():
		why := fmt.Sprintf("Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", k.fullName(args))
		if k.name == "exec" {
			c.discard()
			c.replyError("EXECABORT Transaction discarded because of: " + why)
			return
		}
		c.reject("ERR " + why)
	case c.sub != nil && c.sub.monitors && (k.data || k.needs == toPublish):
		c.reject("ERR Replica can't interact with the keyspace") // as Redis says it
	case c.multi.begun && !k.now:
		c.queue(k, args)
	case k.data && !c.mayServe(): // which has replied why
	case k.counted:
		c.s.monitors.show(c.who.address, k, args)
		c.perform(k, args)
	default:
		c.perform(k, args)
		c.s.monitors.show(c.who.address, k, args)
	}
}

// perform runs a command that may be run.
func (c *conn) perform(k *command, args [][]byte) {
	c.touched = c.touched || k.data
	c.who.last.Store(k)
	if c.multi.watched != nil {
		if looks := c.watchedBy(k, args); len(looks) > 0 && c.readWatched(k, args, looks) {
			return
		}
	}
	if k.isOneOperation(len(args)) {
		c.runOnKey(k, args)
		return
	}
	k.run(c, args)
}

// mayServe refuses commands while nothing may be answered.
func (c *conn) mayServe() bool {
	if err := c.refusal(); err != nil {
		c.refuseCommand(err)
		return false
	}
	return true
}

// refusal is why nothing may be answered: an errorReply, or an error of the engine. nil = it may.
func (c *conn) refusal() error {
	switch {
	case c.s.core.Blocked() != nil:
		return c.s.core.Blocked()
	case c.refuse:
		return errorReply("UNAVAILABLE this server is shutting down; connect again")
	case c.database != "":
		return errorReply(fmt.Sprintf("ERR nothing is done on this connection: it asked for database %s, and an index is one database, 0; SELECT 0 goes on", c.database))
	}
	return nil
}

// unknownCommand is the error of Redis, which shows some 128 bytes of the arguments. Where Redis
// has the command, it also says why it is not here.
func unknownCommand(args [][]byte) string {
	const most = 128
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= most {
			break
		}
		fmt.Fprintf(&b, "'%s' ", a[:min(len(a), most-b.Len())])
	}
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", args[0][:min(len(args[0]), most)], b.String()) + whyAbsent(args[0])
}

// The appenders of replies also count their kind.

func (c *conn) replyError(text string) {
	c.out = redcon.AppendError(c.out, text)
	c.tally.Count(count.Error)
}

func (c *conn) replyOK() {
	c.out = append(c.out, "+OK\r\n"...)
	c.tally.Count(count.OK)
}

func (c *conn) replyInt(n int64) {
	c.out = redcon.AppendInt(c.out, n)
	c.tally.Count(count.OK)
}

func (c *conn) replyBulk(b []byte) {
	if len(b) > respBuffer {
		if err := c.reserve(len(b)); err != nil {
			c.fail(err)
			return
		}
	}
	c.out = redcon.AppendBulk(c.out, b)
	c.tally.Count(count.OK)
}

// replyNull is the reply "there is none".
func (c *conn) replyNull() {
	c.out = c.appendNull(c.out)
	c.tally.Count(count.Miss)
}

func (c *conn) appendNull(b []byte) []byte {
	if c.resp3 {
		return append(b, "_\r\n"...)
	}
	return append(b, "$-1\r\n"...)
}

// fail replies an error of the index or of routing.
func (c *conn) fail(err error) {
	o := engine.OutcomeOf(err)
	c.out = c.appendFailure(c.out, o)
	c.tally.Count(count.Error)
}

// appendFailure appends an outcome that is no plain answer. Its message may name keys of others, as
// bounds of ranges: only a user that may read every key sees them.
func (c *conn) appendFailure(b []byte, o *rpcv1.Outcome) []byte {
	message := o.Message
	if u := c.login.User(); u == nil || !u.ReadsAll() {
		message = c.s.hide(message)
	}
	return redcon.AppendError(b, o.Code.Meaning().Word+" "+message)
}
