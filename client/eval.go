package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// Eval runs a script in Lua at the server of its keys, in one step, as EVAL of Redis does: no other
// operation on the keys comes in between. The script reaches them by redis.call, and names all of
// them in keys, of which it has one at least. They belong to one server, as those of a
// [Client.Transaction]. The user needs the right to read and to write them.
//
// What the script returns is nil, an int64, a []byte, a string (a status, such as "OK") or a []any
// of these, in which an error is an *[Error]. ErrScript: the script returned an error, or ended
// with one, and what it did before is done. ErrInvalid: it cannot be compiled, or used up its time
// or memory, or its keys belong to several servers; nothing was done. ErrUnknown: it was done or
// not. Nobody repeats it.
func (c *Client) Eval(ctx context.Context, script string, keys [][]byte, args ...[]byte) (returned any, err error) {
	w := c.watch(ctx, "eval", len(keys))
	defer func() { w.reportCall(err) }()
	failed := &Error{Op: "eval", Err: ErrInvalid}
	if len(keys) == 0 {
		failed.Message = "the script names no key; name one at least, at whose server it runs"
		return nil, failed
	}
	failed.Key = bytes.Clone(keys[0])
	value, err := rpcv1.AppendScript(nil, &rpcv1.Script{Text: []byte(script), Keys: keys, Args: args})
	if err != nil {
		failed.Message = err.Error()
		return nil, failed
	}
	outcomes, err := c.group(ctx, []*rpcv1.Operation{{Kind: rpcv1.Operation_SCRIPT, Key: failed.Key, Value: value}})
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Op = failed.Op
		}
		return nil, err
	}
	if o := outcomes[0]; o.Code != rpcv1.Outcome_OK {
		failed.Err, failed.Message = cause(o.Code, true), o.Message
		return nil, failed
	}
	r := replyReader{rest: outcomes[0].Value, key: failed.Key}
	reply, ok := r.next()
	if e, is := reply.(*Error); is {
		return nil, e
	}
	if !ok || len(r.rest) > 0 {
		failed.Err, failed.Message = ErrUnknown, fmt.Sprintf("the script is done, and its reply of %d bytes cannot be read", len(outcomes[0].Value))
		return nil, failed
	}
	return reply, nil
}

// replyReader reads a reply of RESP2.
type replyReader struct {
	rest  []byte
	key   []byte // of the script
	depth int
}

// maxDepth is how many lists are in each other at most. Servers bound it to less.
const maxDepth = 256

// next is the next value; false if it is none. Its bytes are copies.
func (r *replyReader) next() (value any, ok bool) {
	line, rest, ok := bytes.Cut(r.rest, []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, false
	}
	r.rest = rest
	kind, text := line[0], string(line[1:])
	switch kind {
	case '+':
		return text, true
	case '-':
		return &Error{Op: "eval", Key: r.key, Err: ErrScript, Message: text}, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, false
	case kind == ':':
		return n, true
	case n == -1 && (kind == '$' || kind == '*'):
		return nil, true
	case n < 0 || n > int64(len(r.rest)):
		return nil, false
	case kind == '*' && r.depth < maxDepth:
		r.depth++
		all := []any{}
		for range n {
			value, ok := r.next()
			if !ok {
				return nil, false
			}
			all = append(all, value)
		}
		r.depth--
		return all, true
	case kind == '$' && bytes.HasPrefix(r.rest[n:], []byte("\r\n")):
		value := bytes.Clone(r.rest[:n:n])
		if value == nil {
			value = []byte{}
		}
		r.rest = r.rest[n+2:]
		return value, true
	}
	return nil, false
}
