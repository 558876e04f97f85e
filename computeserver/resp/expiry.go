package resp

import (
	"errors"
	"fmt"
	"math"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// Arguments and replies that are deadlines. A time from now is sent to the key's owner as it is:
// the clock that adds it is the one by which the pair expires.

// Milliseconds of the units of deadlines.
const (
	inSeconds = 1000
	inMillis  = 1
)

// latest is about how many milliseconds from now the last deadline of all is.
const latest = math.MaxInt64 - 1<<41

// expiryOption reads an option that is one of deadlines, and its number.
func expiryOption(word []byte) (expiry rpcv1.Operation_Expiry, unit int64) {
	switch {
	case isWord(word, "EX"):
		return rpcv1.Operation_AFTER, inSeconds
	case isWord(word, "PX"):
		return rpcv1.Operation_AFTER, inMillis
	case isWord(word, "EXAT"):
		return rpcv1.Operation_AT, inSeconds
	case isWord(word, "PXAT"):
		return rpcv1.Operation_AT, inMillis
	}
	return rpcv1.Operation_KEEP, 0
}

// readExpiry reads how long a pair lasts, or until when, into op. Only where it may have passed a
// number below 1 is one.
func readExpiry(op *rpcv1.Operation, expiry rpcv1.Operation_Expiry, number []byte, unit int64, mayPass bool, command string) error {
	n, ok := engine.ParseInteger(number)
	if !ok {
		return errNotInteger
	}
	most := int64(math.MaxInt64)
	if expiry == rpcv1.Operation_AFTER {
		most = latest
	}
	if n > most/unit || n < math.MinInt64/unit || n <= 0 && !mayPass {
		return fmt.Errorf("ERR invalid expire time in '%s' command", command)
	}
	op.Expiry, op.Number = expiry, n*unit
	return nil
}

// readSetEx is SETEX, and readSetPx PSETEX.
func readSetEx(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	return by, readExpiry(op, rpcv1.Operation_AFTER, args[2], inSeconds, false, "setex")
}

func readSetPx(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	return by, readExpiry(op, rpcv1.Operation_AFTER, args[2], inMillis, false, "psetex")
}

// expires reads the deadline and the condition of EXPIRE and its like.
func expires(expiry rpcv1.Operation_Expiry, unit int64, command string) func(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	return func(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
		var nx, xx, gt, lt bool
		for _, o := range args[3:] {
			switch {
			case isWord(o, "NX"):
				nx = true
			case isWord(o, "XX"):
				xx = true
			case isWord(o, "GT"):
				gt = true
			case isWord(o, "LT"):
				lt = true
			default:
				return nil, fmt.Errorf("ERR Unsupported option %.128s", o)
			}
		}
		switch {
		case nx && (xx || gt || lt):
			return nil, errors.New("ERR NX and XX, GT or LT options at the same time are not compatible")
		case gt && lt:
			return nil, errors.New("ERR GT and LT options at the same time are not compatible")
		case nx:
			op.Condition = rpcv1.Operation_ENDLESS
		case gt: // only what expires can expire later
			op.Condition = rpcv1.Operation_LATER_THAN
		case xx && lt:
			op.Condition = rpcv1.Operation_EXPIRES_LATER
		case lt:
			op.Condition = rpcv1.Operation_EARLIER_THAN
		case xx:
			op.Condition = rpcv1.Operation_EXPIRES
		}
		return by, readExpiry(op, expiry, args[2], unit, true, command)
	}
}

// persists is PERSIST.
func persists(_ [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Expiry, op.Condition = rpcv1.Operation_NEVER, rpcv1.Operation_EXPIRES
	return by, nil
}

// getExOptions reads the options of GETEX, which is GET without one.
func getExOptions(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	var number []byte
	var unit int64
	expiry := rpcv1.Operation_KEEP
	for rest := args[2:]; len(rest) > 0; rest = rest[1:] {
		e, u := expiryOption(rest[0])
		switch {
		case isWord(rest[0], "PERSIST") && number == nil:
			expiry = rpcv1.Operation_NEVER
		case u != 0 && len(rest) > 1 && (expiry == rpcv1.Operation_KEEP || expiry == e && unit == u):
			expiry, unit, number, rest = e, u, rest[1], rest[1:]
		default:
			return nil, errSyntax
		}
	}
	switch {
	case number != nil:
		return by, readExpiry(op, expiry, number, unit, false, "getex")
	case expiry == rpcv1.Operation_KEEP:
		op.Kind = rpcv1.Operation_LOOKUP
	}
	op.Expiry = expiry
	return by, nil
}

// asksLeft asks how long a pair still lasts, and asksDeadline until when.
func asksLeft(_ [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Expiry = rpcv1.Operation_AFTER
	return by, nil
}

func asksDeadline(_ [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Expiry = rpcv1.Operation_AT
	return by, nil
}

// replySeconds is a deadline in seconds, and replyMillis in milliseconds: -1 where there is none,
// and -2 where there is no pair.
func replySeconds(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	switch {
	case o.Code != rpcv1.Outcome_OK:
		return append(b, ":-2\r\n"...)
	case o.Number < 0:
		return append(b, ":-1\r\n"...)
	}
	return redcon.AppendInt(b, int64((uint64(o.Number)+inSeconds/2)/inSeconds))
}

func replyMillis(_ *conn, b []byte, o *rpcv1.Outcome) []byte {
	if o.Code != rpcv1.Outcome_OK {
		return append(b, ":-2\r\n"...)
	}
	return redcon.AppendInt(b, o.Number)
}
