package resp

import (
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// An index has no transactions. Between MULTI and EXEC each command is answered with an error, as
// Redis answers one that it cannot queue, and EXEC says that nothing was done.
//
//   - MULTI itself is accepted: clients send the commands behind it without waiting for its
//     reply, and after an error they would be run one by one.
//   - No command is answered QUEUED: clients exist that then wait for results of EXEC, whatever
//     EXEC answers.
type transaction struct {
	begun  bool
	failed bool // a command was refused
}

const noTransactions = "ERR an index has no transactions: between MULTI and EXEC nothing is done; send the commands without them"

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
		c.replyError("EXECABORT Transaction discarded because of previous errors. Nothing was done: an index has no transactions; send the commands without MULTI and EXEC.")
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
