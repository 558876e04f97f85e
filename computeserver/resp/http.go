//env:real the log of a network's connections

package resp

import (
	"time"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// isHTTP reports whether a command is part of an HTTP request: its first line, or the header that
// every browser sends next. A web page can make a browser send such a request to any address that
// the browser reaches, with commands in its body; nothing of the body may be run.
func isHTTP(name []byte) bool { return isWord(name, "POST") || isWord(name, "HOST:") }

// httpLogEvery is how often such a request is worth a line of the log.
const httpLogEvery = time.Minute

// endHTTP ends the connection, as Redis does: without a reply, and before any other command of it.
func (c *conn) endHTTP() {
	c.closing = true
	c.tally.Count(count.Error)
	now := time.Now().UnixNano()
	if last := c.s.httpSeen.Load(); now-last > int64(httpLogEvery) && c.s.httpSeen.CompareAndSwap(last, now) {
		c.s.core.Log.Warn("a RESP connection was ended, since it speaks HTTP: somebody may try to send commands through a browser", "client", c.who.address)
	}
}
