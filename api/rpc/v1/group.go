package rpcv1

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Bounds of a GROUP.
const (
	MaxGroup      = 1024      // operations
	MaxGroupBytes = 256 << 10 // of its value
)

// AppendGroup appends the value of a GROUP of operations to dst.
func AppendGroup(dst []byte, ops []*Operation) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(dst, &DoRequest{Operations: ops})
}

// Group returns the operations of a GROUP. An error says what is wrong with them, or how many there
// may be.
func (x *Operation) Group() ([]*Operation, error) {
	var m DoRequest
	if len(x.Value) > MaxGroupBytes {
		return nil, fmt.Errorf("a group of %d bytes; at most %d are possible", len(x.Value), MaxGroupBytes)
	}
	fields, err := x.groupFields() // so that a small message does not become many operations
	if err != nil {
		return nil, fmt.Errorf("the value of a group is no batch: %w", err)
	}
	if fields == 0 || fields > MaxGroup {
		return nil, fmt.Errorf("a group of %d operations; 1 to %d are possible", fields, MaxGroup)
	}
	if err := proto.Unmarshal(x.Value, &m); err != nil {
		return nil, fmt.Errorf("the value of a group is no batch: %w", err)
	}
	if len(m.Operations) != fields {
		return nil, fmt.Errorf("the value of a group has %d fields, and %d operations", fields, len(m.Operations))
	}
	return m.Operations, nil
}

// groupFields is how many fields the value of a GROUP has: one for each operation.
func (x *Operation) groupFields() (fields int, err error) {
	for b := x.Value; len(b) > 0; fields++ {
		_, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return fields, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return fields, nil
}

// Weight is how many operations there are, those of a GROUP counted one by one. It bounds how long
// messages become that have them, or their outcomes.
func Weight(ops []*Operation) int {
	n := len(ops)
	for _, op := range ops {
		if op.GetKind() == Operation_GROUP {
			fields, _ := op.groupFields() // what is wrong with it is said later
			n += max(fields, 1) - 1
		}
	}
	return n
}

// AppendGroupOutcomes appends the value of a GROUP's outcome to dst.
func AppendGroupOutcomes(dst []byte, outcomes []*Outcome) ([]byte, error) {
	for _, o := range outcomes { // a receiver would refuse all of them
		o.Message = strings.ToValidUTF8(o.Message, "\uFFFD")
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, &DoReply{Outcomes: outcomes})
}

// GroupOutcomes returns the outcomes of the n operations of a GROUP that was done.
func (x *Outcome) GroupOutcomes(n int) ([]*Outcome, error) {
	var m DoReply
	if err := proto.Unmarshal(x.Value, &m); err != nil {
		return nil, fmt.Errorf("the outcome of a group is no answer to a batch: %w", err)
	}
	if len(m.Outcomes) != n {
		return nil, fmt.Errorf("a group of %d operations has %d outcomes", n, len(m.Outcomes))
	}
	return m.Outcomes, nil
}
