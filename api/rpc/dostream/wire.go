package dostream

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// The fields of the messages, as compute.proto numbers them.
const (
	fieldID         = 1 // of both messages
	fieldElements   = 2 // operations or outcomes
	fieldForwarded  = 3
	fieldLimit      = 4
	fieldInParts    = 5
	fieldGeneration = 3

	fieldKind            = 1
	fieldKey             = 2
	fieldValue           = 3
	fieldCondition       = 4
	fieldOperand         = 5
	fieldOperationNumber = 6
	fieldExpiry          = 7

	fieldCode          = 1
	fieldOutcomeValue  = 2
	fieldMessage       = 3
	fieldOutcomeNumber = 4
	fieldFound         = 5
)

// All fields have numbers below 16, so that their tags are one byte long.
const tagBytes = 1

func sizeOfNumber(v uint64) int {
	if v == 0 { // is not written
		return 0
	}
	return tagBytes + protowire.SizeVarint(v)
}

func sizeOfBytes(n int) int {
	if n == 0 {
		return 0
	}
	return tagBytes + protowire.SizeBytes(n)
}

func appendNumber(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), v)
}

func appendLength(dst []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.BytesType), uint64(n))
}

func appendBytes(dst []byte, field protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(appendLength(dst, field, len(v)), v...)
}

func sizeOfOperation(op *rpcv1.Operation) int {
	return sizeOfNumber(uint64(op.GetKind())) + sizeOfBytes(len(op.GetKey())) + sizeOfBytes(len(op.GetValue())) +
		sizeOfNumber(uint64(op.GetCondition())) + sizeOfBytes(len(op.GetOperand())) + sizeOfNumber(protowire.EncodeZigZag(op.GetNumber())) + sizeOfNumber(uint64(op.GetExpiry()))
}

// Size is how long a batch is on the wire.
func Size(m *rpcv1.DoRequest) int {
	size := sizeOfNumber(m.Id) + sizeOfNumber(uint64(m.LimitMilliseconds)) + sizeOfNumber(protowire.EncodeBool(m.Forwarded)) + sizeOfNumber(protowire.EncodeBool(m.InParts))
	for _, op := range m.Operations {
		size += tagBytes + protowire.SizeBytes(sizeOfOperation(op))
	}
	return size
}

func appendRequest(dst []byte, m *rpcv1.DoRequest) []byte {
	dst = appendNumber(dst, fieldID, m.Id)
	for _, op := range m.Operations {
		dst = appendLength(dst, fieldElements, sizeOfOperation(op))
		dst = appendNumber(dst, fieldKind, uint64(op.GetKind()))
		dst = appendBytes(dst, fieldKey, op.GetKey())
		dst = appendBytes(dst, fieldValue, op.GetValue())
		dst = appendNumber(dst, fieldCondition, uint64(op.GetCondition()))
		dst = appendBytes(dst, fieldOperand, op.GetOperand())
		dst = appendNumber(dst, fieldOperationNumber, protowire.EncodeZigZag(op.GetNumber()))
		dst = appendNumber(dst, fieldExpiry, uint64(op.GetExpiry()))
	}
	dst = appendNumber(dst, fieldForwarded, protowire.EncodeBool(m.Forwarded))
	dst = appendNumber(dst, fieldLimit, uint64(m.LimitMilliseconds))
	return appendNumber(dst, fieldInParts, protowire.EncodeBool(m.InParts))
}

// sizeOfOutcome is at least how long an outcome is, and exactly if its message is UTF-8.
func sizeOfOutcome(o *rpcv1.Outcome) int {
	return sizeOfNumber(uint64(o.GetCode())) + sizeOfBytes(len(o.GetValue())) + sizeOfBytes(len(o.GetMessage())) +
		sizeOfNumber(protowire.EncodeZigZag(o.GetNumber())) + sizeOfNumber(protowire.EncodeBool(o.GetFound()))
}

func sizeOfReply(m *rpcv1.DoReply) int {
	size := sizeOfNumber(m.Id) + sizeOfNumber(m.MapGeneration)
	for _, o := range m.Outcomes {
		size += tagBytes + protowire.SizeBytes(sizeOfOutcome(o))
	}
	return size
}

func appendReply(dst []byte, m *rpcv1.DoReply) []byte {
	dst = appendNumber(dst, fieldID, m.Id)
	for _, o := range m.Outcomes {
		message, size := o.GetMessage(), sizeOfOutcome(o)
		if !utf8.ValidString(message) { // which a receiver refuses, with all answers of the batch
			size -= sizeOfBytes(len(message))
			message = strings.ToValidUTF8(message, "\uFFFD")
			size += sizeOfBytes(len(message))
		}
		dst = appendLength(dst, fieldElements, size)
		dst = appendNumber(dst, fieldCode, uint64(o.GetCode()))
		dst = appendBytes(dst, fieldOutcomeValue, o.GetValue())
		if message != "" {
			dst = append(appendLength(dst, fieldMessage, len(message)), message...)
		}
		dst = appendNumber(dst, fieldOutcomeNumber, protowire.EncodeZigZag(o.GetNumber()))
		dst = appendNumber(dst, fieldFound, protowire.EncodeBool(o.GetFound()))
	}
	return appendNumber(dst, fieldGeneration, m.MapGeneration)
}

// field is one field of a message.
type field struct {
	number protowire.Number // 0 = of a kind that no known field has
	varint bool             // else bytes
	value  uint64
	bytes  []byte
}

func (f *field) isNumber(n protowire.Number) bool { return f.number == n && f.varint }
func (f *field) isBytes(n protowire.Number) bool  { return f.number == n && !f.varint }

// next takes the first field off b. The field's bytes are b's.
func next(b []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	if number > protowire.MaxValidNumber {
		return f, nil, fmt.Errorf("a field has the number %d", number)
	}
	b = b[n:]
	switch kind {
	case protowire.VarintType:
		f.varint = true
		f.value, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
		number = 0
	}
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	f.number = number
	return f, b[n:], nil
}

// elements is how many operations or outcomes a message has.
func elements(b []byte) (n int, err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return 0, err
		}
		if f.isBytes(fieldElements) {
			n++
		}
	}
	return n, nil
}

// own is v with the capacity of its length; nil if it is empty.
func own(v []byte) []byte {
	if len(v) == 0 {
		return nil
	}
	return v[:len(v):len(v)]
}

// decodeMessage decodes a batch, or the answer to one: each operation or outcome of it by element,
// and each other field by other. It returns the elements, which are of one slab.
func decodeMessage[E any](b []byte, element func(b []byte, e *E) error, other func(f field)) ([]*E, error) {
	n, err := elements(b)
	if err != nil || n == 0 && len(b) == 0 {
		return nil, err
	}
	var all []*E
	var slab []E
	if n > 0 {
		all = make([]*E, n)
	}
	if n <= MaxCall {
		slab = make([]E, n)
	}
	for at := 0; len(b) > 0; {
		var f field
		if f, b, err = next(b); err != nil {
			return nil, err
		}
		if !f.isBytes(fieldElements) {
			other(f)
			continue
		}
		if slab != nil {
			all[at] = &slab[at]
			if err := element(f.bytes, &slab[at]); err != nil {
				return nil, err
			}
			at++
		}
	}
	return all, nil
}

// mostPadding is how many bytes of a message that mean nothing are kept with its batch.
const mostPadding = 4 << 10

// decodeRequest decodes a batch, which is empty before. Keys and values lie in b afterwards; where
// much of b is something else, they lie in a copy, so that a batch keeps about as much memory as
// Size says, by which its receiver bounds what it takes.
func decodeRequest(b []byte, m *rpcv1.DoRequest) (err error) {
	m.Operations, err = decodeMessage(b, decodeOperation, func(f field) {
		switch {
		case f.isNumber(fieldID):
			m.Id = f.value
		case f.isNumber(fieldForwarded):
			m.Forwarded = protowire.DecodeBool(f.value)
		case f.isNumber(fieldLimit):
			m.LimitMilliseconds = uint32(f.value)
		case f.isNumber(fieldInParts):
			m.InParts = protowire.DecodeBool(f.value)
		}
	})
	if len(b) > mostPadding && len(b) > 2*Size(m)+mostPadding {
		copied := make([]byte, 0, Size(m))
		for _, op := range m.Operations {
			if op != nil {
				for _, field := range []*[]byte{&op.Key, &op.Value, &op.Operand} {
					from := len(copied)
					copied = append(copied, *field...)
					*field = own(copied[from:])
				}
			}
		}
	}
	return err
}

func decodeOperation(b []byte, op *rpcv1.Operation) (err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return err
		}
		switch {
		case f.isNumber(fieldKind):
			op.Kind = rpcv1.Operation_Kind(f.value)
		case f.isBytes(fieldKey):
			op.Key = own(f.bytes)
		case f.isBytes(fieldValue):
			op.Value = own(f.bytes)
		case f.isNumber(fieldCondition):
			op.Condition = rpcv1.Operation_Condition(f.value)
		case f.isBytes(fieldOperand):
			op.Operand = own(f.bytes)
		case f.isNumber(fieldOperationNumber):
			op.Number = protowire.DecodeZigZag(f.value)
		case f.isNumber(fieldExpiry):
			op.Expiry = rpcv1.Operation_Expiry(f.value)
		}
	}
	return nil
}

// decodeReply decodes the answer to a batch, which is empty before. Values lie in b afterwards.
func decodeReply(b []byte, m *rpcv1.DoReply) (err error) {
	m.Outcomes, err = decodeMessage(b, decodeOutcome, func(f field) {
		switch {
		case f.isNumber(fieldID):
			m.Id = f.value
		case f.isNumber(fieldGeneration):
			m.MapGeneration = f.value
		}
	})
	return err
}

func decodeOutcome(b []byte, o *rpcv1.Outcome) (err error) {
	for len(b) > 0 {
		var f field
		if f, b, err = next(b); err != nil {
			return err
		}
		switch {
		case f.isNumber(fieldCode):
			o.Code = rpcv1.Outcome_Code(f.value)
		case f.isBytes(fieldOutcomeValue):
			o.Value = own(f.bytes)
		case f.isNumber(fieldOutcomeNumber):
			o.Number = protowire.DecodeZigZag(f.value)
		case f.isNumber(fieldFound):
			o.Found = protowire.DecodeBool(f.value)
		case f.isBytes(fieldMessage):
			if !utf8.Valid(f.bytes) {
				return fmt.Errorf("the message of an outcome is not UTF-8: %q", f.bytes)
			}
			o.Message = string(f.bytes)
		}
	}
	return nil
}
