package resp

import (
	"bytes"
	"fmt"

	"github.com/tidwall/redcon"
)

// Bounds of what a RESP client may send. A frame beyond them is answered with a protocol error and
// ends the connection, before more of it is read.
const (
	maxInline = 8 << 10 // bytes of a command in plain text
	maxHeader = 16      // bytes of the line that says how much follows
	// bytes of one argument; longer than any key or value, so that those get a better error
	maxBulk        = 1 << 20
	maxArgs        = 1 << 16
	maxFrame       = 8 << 20  // bytes of a command
	maxAnonymous   = 16       // arguments of a command before AUTH
	maxAnonymousIn = 16 << 10 // bytes of a command before AUTH
)

// protocolError ends a connection. Its text is what Redis says, where Redis says it.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// frames finds the ends of commands in a stream of bytes, each byte looked at once. It checks
// lengths and separators, so that the parser proper (redcon.ReadNextCommand) is only given complete
// commands within the bounds.
type frames struct {
	pos   int // up to where the frame under way was looked at
	left  int // arguments that are still to come
	begun bool
}

// next is the length of the first command in b, 0 if it is not complete. Until it is, b must start
// with the same bytes at every call. A command without arguments (an empty line) is a command too.
func (f *frames) next(b []byte, anonymous bool) (int, error) {
	args, size := maxArgs, maxFrame
	if anonymous {
		args, size = maxAnonymous, maxAnonymousIn
	}
	if len(b) == 0 {
		return 0, nil
	}
	if !f.begun {
		if b[0] != '*' {
			return f.inline(b)
		}
		from, negative := 0, len(b) > 1 && b[1] == '-'
		if negative {
			from = 1
		}
		count, end, err := header(b, from, "invalid multibulk length")
		if negative {
			count = 0 // no command, as in Redis
		}
		switch {
		case err != nil:
			return 0, err
		case end == 0:
			return 0, nil
		case count > args:
			if anonymous && count <= maxArgs {
				return 0, protocolError("unauthenticated multibulk length")
			}
			return 0, protocolError("invalid multibulk length")
		}
		f.begun, f.left, f.pos = true, count, end
	}
	for f.left > 0 {
		if f.pos >= len(b) {
			return 0, nil
		}
		if b[f.pos] != '$' {
			return 0, protocolError(fmt.Sprintf("expected '$', got %q", b[f.pos:f.pos+1]))
		}
		length, start, err := header(b, f.pos, "invalid bulk length")
		if err != nil {
			return 0, err
		}
		if start == 0 {
			return 0, nil
		}
		end := start + length + 2
		if length > maxBulk || end > size {
			if anonymous && length <= maxBulk {
				return 0, protocolError("unauthenticated bulk length")
			}
			return 0, protocolError("invalid bulk length")
		}
		if end > len(b) {
			return 0, nil
		}
		if b[end-2] != '\r' || b[end-1] != '\n' {
			return 0, protocolError("invalid bulk length")
		}
		f.pos = end
		f.left--
	}
	n := f.pos
	*f = frames{}
	return n, nil
}

// inline finds the end of a command in plain text.
func (f *frames) inline(b []byte) (int, error) {
	if b[0] == '$' {
		return 0, protocolError("expected '*', got '$'")
	}
	i := bytes.IndexByte(b[f.pos:], '\n')
	n := f.pos + i + 1
	if i < 0 {
		f.pos, n = len(b), len(b)
	}
	if n > maxInline {
		return 0, protocolError("too big inline request")
	}
	if i < 0 {
		return 0, nil
	}
	*f = frames{}
	return n, nil
}

// split is the arguments of a complete command, in args. They lie in b.
func split(b []byte, args [][]byte) ([][]byte, bool) {
	if b[0] != '*' {
		return splitInline(b, args)
	}
	if b[1] == '-' {
		return args[:0], true
	}
	_, args, _, _, err := redcon.ReadNextCommand(b, args)
	return args, err == nil
}

// header reads a line like "*3\r\n" or "$5\r\n" at from, and says where it ends; 0 if it is not
// complete.
func header(b []byte, from int, fault protocolError) (value, end int, err error) {
	for i := from + 1; i < len(b); i++ {
		switch d := b[i]; {
		case d >= '0' && d <= '9' && i-from <= maxHeader-4:
			value = value*10 + int(d-'0')
		case d == '\r' && i > from+1:
			if i+1 == len(b) {
				return 0, 0, nil
			}
			if b[i+1] != '\n' {
				return 0, 0, fault
			}
			return value, i + 2, nil
		default:
			return 0, 0, fault
		}
	}
	return 0, 0, nil
}
