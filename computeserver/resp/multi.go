package resp

import (
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// Between MULTI and EXEC commands are queued, as in Redis, and then EXEC refuses them: an index has
// no transactions. Clients that wrap pipelines in MULTI and EXEC unless told otherwise thus learn
// that nothing was done. As nothing is ever run of the queue, the commands themselves are not kept.
type transaction struct {
	begun  bool
	queued bool // a command
	failed bool // a command was refused when it was to be queued
}

// queue takes a command between MULTI and EXEC.
func (c *conn) queue() {
	c.multi.queued = true
	c.out = append(c.out, "+QUEUED\r\n"...)
	c.tally.Count(count.OK)
}

// reject refuses a command before it is run. Between MULTI and EXEC that fails the transaction.
func (c *conn) reject(text string) {
	c.multi.failed = c.multi.begun
	c.replyError(text)
}

func (c *conn) cmdMulti(_ [][]byte) {
	if c.multi.begun {
		c.replyError("ERR MULTI calls can not be nested")
		return
	}
	c.multi.begun = true
	c.replyOK()
}

func (c *conn) cmdExec(_ [][]byte) {
	was := c.multi
	c.multi = transaction{}
	switch {
	case !was.begun:
		c.replyError("ERR EXEC without MULTI")
	case was.failed:
		c.replyError("EXECABORT Transaction discarded because of previous errors.")
	case was.queued:
		c.replyError("EXECABORT Transaction discarded: an index has no transactions. Nothing was done; send the commands without MULTI and EXEC.")
	default: // nothing was asked for
		c.out = append(c.out, "*0\r\n"...)
		c.tally.Count(count.OK)
	}
}

func (c *conn) cmdDiscard(_ [][]byte) {
	if !c.multi.begun {
		c.replyError("ERR DISCARD without MULTI")
		return
	}
	c.multi = transaction{}
	c.replyOK()
}

// cmdWatch notes nothing: EXEC refuses whether the keys changed or not.
func (c *conn) cmdWatch(_ [][]byte) {
	if c.multi.begun {
		c.replyError("ERR WATCH inside MULTI is not allowed")
		return
	}
	c.replyOK()
}

func (c *conn) cmdUnwatch(_ [][]byte) { c.replyOK() }
