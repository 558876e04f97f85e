package resp

import (
	"fmt"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// replies is which commands of a connection are replied, as CLIENT REPLY says.
type replies uint8

const (
	repliesOn       replies = iota
	repliesOff              // none are, until CLIENT REPLY ON or RESET
	repliesSkipNext         // the next one is not
	repliesSkipping         // the one that runs is not
)

// Replies that are not wanted are made like others, errors too, and dropped: what of them is still
// open, in the session or at other servers, has its place among the replies until it is settled.
// mute settles what came before, whose places do not change from then on; unmute settles what came
// since, and drops its replies. In between, flush drops those that are settled.

func (c *conn) mute() {
	if !c.muted {
		c.settle()
		c.muted, c.mutedFrom = true, len(c.out)
	}
}

func (c *conn) unmute() {
	c.settle()
	c.dropMuted()
	c.muted = false
}

// dropMuted drops the replies that are not wanted, all of which are settled.
func (c *conn) dropMuted() {
	if c.muted {
		c.out = c.out[:c.mutedFrom]
	}
}

// runQuietly runs a command whose reply may be skipped.
func (c *conn) runQuietly(p *pending) {
	if c.replies == repliesSkipNext {
		c.mute()
		c.replies = repliesSkipping
	}
	c.dispatchAny(p)
	if c.replies == repliesSkipping {
		c.replies = repliesOn
		c.unmute()
	}
}

// clientReply is CLIENT REPLY. OFF and SKIP have no reply themselves.
func (c *conn) clientReply(how []byte) {
	switch {
	case isWord(how, "ON"):
		if c.replies == repliesOff {
			c.replies = repliesOn
			c.unmute()
		}
		c.replyOK()
		return
	case isWord(how, "OFF"):
		c.mute()
		c.replies = repliesOff
	case isWord(how, "SKIP"):
		if c.replies != repliesOff {
			c.replies = repliesSkipNext
		}
	default:
		c.replyError(fmt.Sprintf("ERR syntax error: CLIENT REPLY '%.64s'; ON, OFF and SKIP are possible", how))
		return
	}
	c.tally.Count(count.OK)
}
