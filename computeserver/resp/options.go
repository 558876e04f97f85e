package resp

import (
	"errors"
	"fmt"
	"math"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// Arguments behind the key of commands on one key: see command.read. The errors are those of Redis.

var (
	errSyntax     = errors.New("ERR syntax error")
	errNotInteger = errors.New("ERR value is not an integer or out of range")
)

// setOptions reads the options of SET. Only one condition may be given. With GET, and with a
// condition on the value, SET is an exchange.
func setOptions(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	switch len(args) { // the usual cases
	case 3:
		return by, nil
	case 5:
		if expiry, unit := expiryOption(args[3]); unit != 0 {
			return setUntil(op, rpcv1.Operation_ALWAYS, false, expiry, args[4], unit, by)
		}
	}
	condition, get := rpcv1.Operation_ALWAYS, false
	var number []byte // of the deadline
	var unit int64
	expiry := rpcv1.Operation_NEVER
	only := func(this rpcv1.Operation_Condition) bool {
		if condition == this && this <= rpcv1.Operation_PRESENT {
			return true
		}
		was := condition
		condition = this
		return was == rpcv1.Operation_ALWAYS
	}
	for rest := args[3:]; len(rest) > 0; rest = rest[1:] {
		o := rest[0]
		switch {
		case isWord(o, "NX") && only(rpcv1.Operation_ABSENT), isWord(o, "XX") && only(rpcv1.Operation_PRESENT):
		case len(rest) > 1 && (isWord(o, "IFEQ") && only(rpcv1.Operation_EQUAL) || isWord(o, "IFNE") && only(rpcv1.Operation_DIFFERENT)):
			op.Operand, rest = rest[1], rest[1:]
		case isWord(o, "KEEPTTL") && number == nil:
			expiry = rpcv1.Operation_KEEP
		case isWord(o, "GET"):
			get = true
		default:
			if e, u := expiryOption(o); u != 0 && len(rest) > 1 && (expiry == rpcv1.Operation_NEVER || expiry == e && unit == u) {
				expiry, unit, number, rest = e, u, rest[1], rest[1:]
				continue
			}
			return nil, errSyntax
		}
	}
	if expiry != rpcv1.Operation_NEVER {
		return setUntil(op, condition, get, expiry, number, unit, by)
	}
	switch {
	case get:
		op.Kind, op.Condition, by = rpcv1.Operation_EXCHANGE, condition, replyOld
	case condition == rpcv1.Operation_ABSENT:
		op.Kind = rpcv1.Operation_INSERT
	case condition == rpcv1.Operation_PRESENT:
		op.Kind = rpcv1.Operation_UPDATE
	case condition != rpcv1.Operation_ALWAYS:
		op.Kind, op.Condition = rpcv1.Operation_EXCHANGE, condition
	}
	return by, nil
}

// setUntil is SET with a deadline, or with KEEPTTL.
func setUntil(op *rpcv1.Operation, condition rpcv1.Operation_Condition, get bool, expiry rpcv1.Operation_Expiry, number []byte, unit int64, by reply) (reply, error) {
	op.Kind, op.Condition = rpcv1.Operation_STORE, condition
	if get {
		by = replyOld
	}
	if get || condition > rpcv1.Operation_PRESENT {
		op.Kind = rpcv1.Operation_SWAP
	}
	if number == nil {
		return by, nil
	}
	return by, readExpiry(op, expiry, number, unit, false, "set")
}

// delOptions reads the condition of DELEX.
func delOptions(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	switch {
	case len(args) == 2:
		op.Kind = rpcv1.Operation_DELETE
		return by, nil
	case len(args) != 4:
		return nil, errors.New("ERR wrong number of arguments for 'delex' command")
	case isWord(args[2], "IFEQ"):
		op.Condition = rpcv1.Operation_EQUAL
	case isWord(args[2], "IFNE"):
		op.Condition = rpcv1.Operation_DIFFERENT
	default:
		return nil, fmt.Errorf("ERR syntax error: DELEX with '%.64s'; IFEQ and IFNE are possible", args[2])
	}
	op.Operand = args[3]
	return by, nil
}

// delIfEqual reads the value of DELIFEQ.
func delIfEqual(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Condition, op.Operand = rpcv1.Operation_EQUAL, args[2]
	return by, nil
}

// addsOne is INCR, and addsMinusOne DECR.
func addsOne(_ [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Number = 1
	return by, nil
}

func addsMinusOne(_ [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Number = -1
	return by, nil
}

// readNumber reads the number behind the key, and the value behind that if there is one: INCRBY and
// SETRANGE.
func readNumber(args [][]byte, op *rpcv1.Operation, by reply) (_ reply, err error) {
	var ok bool
	if op.Number, ok = engine.ParseInteger(args[2]); !ok {
		err = errNotInteger
	}
	if len(args) > 3 {
		op.Value = args[3]
	}
	return by, err
}

// readNegated is readNumber of DECRBY.
func readNegated(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	by, err := readNumber(args, op, by)
	if op.Number == math.MinInt64 {
		err = errors.New("ERR decrement would overflow")
	}
	op.Number = -op.Number
	return by, err
}

// readValue reads the value behind the key of an operation that does not store it as it is.
func readValue(args [][]byte, op *rpcv1.Operation, by reply) (reply, error) {
	op.Value = args[2]
	return by, nil
}
