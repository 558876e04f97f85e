package resp

// CLIENT TRACKING lets clients keep what they read until the server says that it is not valid any
// more. A server does not know what other servers change, so it never lets a client keep anything:
// behind the replies of each pipeline that touched the index it says that all keys are invalid.
// Clients that ask for tracking to start go on, and read as if they had not asked. That a key is
// invalid may be said at any time, so nothing is told that Redis would not tell.
//
// BCAST and REDIRECT are refused: there, other connections keep what they read, and are told by
// this one.

// invalidateAll is the message that no key is valid.
const invalidateAll = ">2\r\n$10\r\ninvalidate\r\n_\r\n"

// clientTracking is CLIENT TRACKING.
func (c *conn) clientTracking(args [][]byte) {
	on := isWord(args[0], "ON")
	if !on && !isWord(args[0], "OFF") {
		c.replyError(errSyntax.Error())
		return
	}
	for _, option := range args[1:] {
		switch {
		case isWord(option, "OPTIN"), isWord(option, "OPTOUT"), isWord(option, "NOLOOP"):
		case isWord(option, "BCAST"), isWord(option, "REDIRECT"), isWord(option, "PREFIX"):
			c.replyError("ERR CLIENT TRACKING with BCAST, PREFIX or REDIRECT is not possible: a server is not told what others change")
			return
		default:
			c.replyError(errSyntax.Error())
			return
		}
	}
	if on && !c.resp3 {
		c.replyError("ERR CLIENT TRACKING needs RESP3: send HELLO 3 before")
		return
	}
	c.tracking = on
	c.replyOK()
}

// invalidate says that no key is valid, where a command touched the index since it was said last.
// What these read is settled.
func (c *conn) invalidate() {
	if c.touched && c.tracking && c.resp3 && !c.muted {
		c.out = append(c.out, invalidateAll...)
	}
	c.touched = false
}
