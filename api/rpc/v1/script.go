package rpcv1

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// IsScript reports whether the kind is one of scripts, which have several keys, and stand in a
// GROUP.
func (x Operation_Kind) IsScript() bool { return x == Operation_SCRIPT || x == Operation_SCRIPT_READ }

// AppendScript appends the value of a SCRIPT to dst.
func AppendScript(dst []byte, s *Script) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(dst, s)
}

// Script returns the script of a SCRIPT. Its slices may be parts of the operation.
func (x *Operation) Script() (*Script, error) {
	s := &Script{}
	err := x.scriptFields(func(field protowire.Number, number uint64, b []byte) {
		switch field {
		case 1:
			s.Text = b
		case 2:
			s.Keys = append(s.Keys, b)
		case 3:
			s.Args = append(s.Args, b)
		case 4:
			s.Resp3 = number != 0
		case 5:
			s.Channels = append(s.Channels, b)
		}
	})
	return s, err
}

// AppendPublished appends what a script published to the value of its outcome.
func (x *Outcome) AppendPublished(messages []*PublishedMessage) error {
	reply := len(x.Value)
	b, err := proto.MarshalOptions{}.MarshalAppend(x.Value, &Published{Messages: messages})
	x.Value, x.Number = b, int64(len(b)-reply)
	return err
}

// Published divides the value of a SCRIPT's outcome into the script's reply and what it published.
func (x *Outcome) Published() (reply []byte, messages []*PublishedMessage, err error) {
	n := int64(len(x.Value)) - x.Number
	if x.Number <= 0 || n < 0 {
		return x.Value, nil, nil
	}
	p := &Published{}
	err = proto.Unmarshal(x.Value[n:], p)
	return x.Value[:n], p.Messages, err
}

// Keys calls yield with each key of an operation: of a SCRIPT with those of the script, of another
// one with its key. Keys may come twice. A GROUP has those of its operations, and is not asked.
func (x *Operation) Keys(yield func(key []byte)) {
	if !x.GetKind().IsScript() {
		yield(x.GetKey())
		return
	}
	_ = x.scriptFields(func(field protowire.Number, _ uint64, b []byte) { // it was checked
		if field == 2 {
			yield(b)
		}
	})
}

// scriptFields calls visit with the fields of a Script, without a copy.
func (x *Operation) scriptFields(visit func(field protowire.Number, number uint64, b []byte)) error {
	for b := x.Value; len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("the value of a script cannot be read: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("the value of a script cannot be read: %w", protowire.ParseError(n))
		}
		if kind == protowire.BytesType && (field <= 3 || field == 5) || kind == protowire.VarintType && field == 4 {
			visit(field, number, text)
		}
		b = b[n:]
	}
	return nil
}
