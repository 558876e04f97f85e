package dostream

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

func requests() []*rpcv1.DoRequest {
	long := bytes.Repeat([]byte("x"), 20000)
	var many []*rpcv1.Operation
	for i := range 64 {
		many = append(many, &rpcv1.Operation{
			Kind: rpcv1.Operation_Kind(i % 6), Key: fmt.Appendf(nil, "key %d", i), Value: long[:i*17],
			Condition: rpcv1.Operation_Condition(i % 3), Operand: long[:i%7], Number: int64(i-9) << i,
		})
	}
	return []*rpcv1.DoRequest{
		{},
		{Id: 1},
		{Id: 1 << 60, Forwarded: true, LimitMilliseconds: 1<<32 - 1, InParts: true},
		{Id: 2, Operations: []*rpcv1.Operation{{}}},
		{Id: 3, Operations: []*rpcv1.Operation{{Kind: -1, Key: long, Value: long}, {}, {Value: []byte{0}}}},
		{Id: 4, Operations: many, LimitMilliseconds: 3000},
	}
}

func replies() []*rpcv1.DoReply {
	long := bytes.Repeat([]byte("y"), 20000)
	var many []*rpcv1.Outcome
	for i := range 64 {
		many = append(many, &rpcv1.Outcome{Code: rpcv1.Outcome_Code(i % 12), Value: long[:i*13], Message: strings.Repeat("é", i%5), Number: int64(5-i) << i, Found: i%2 == 0})
	}
	return []*rpcv1.DoReply{
		{},
		{Id: 9, MapGeneration: 1 << 50},
		{Outcomes: []*rpcv1.Outcome{{}, {Code: -3}, {Message: "why"}, {Value: long}}},
		{Id: 5, Outcomes: many, MapGeneration: 7},
	}
}

func encoded(t testing.TB, c encoding.CodecV2, m any) []byte {
	t.Helper()
	data, err := c.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	return data.Materialize()
}

// The codec and the generated code write the same bytes and read each other's.
func TestCodecIsProtocolBuffers(t *testing.T) {
	ours, theirs := Codec(), encoding.GetCodecV2("proto")
	check := func(m proto.Message, empty func() proto.Message) {
		t.Helper()
		b := encoded(t, ours, m)
		if want := encoded(t, theirs, m); !bytes.Equal(b, want) {
			t.Errorf("%.200v: wrote %x, generated code %x", m, b, want)
		}
		back := empty()
		if err := ours.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, back); err != nil || !proto.Equal(m, back) {
			t.Errorf("%.200v was read as %.200v, %v", m, back, err)
		}
	}
	for _, m := range requests() {
		check(m, func() proto.Message { return new(rpcv1.DoRequest) })
		if Size(m) != proto.Size(m) {
			t.Errorf("%.200v: size %d, generated code %d", m, Size(m), proto.Size(m))
		}
	}
	for _, m := range replies() {
		check(m, func() proto.Message { return new(rpcv1.DoReply) })
	}
	check(&rpcv1.ScanReply{Pairs: []*rpcv1.Pair{{Key: []byte("k")}}}, func() proto.Message { return new(rpcv1.ScanReply) })
}

// A message of an outcome that is not UTF-8 does not cost its batch all answers.
func TestMessageIsMadeUTF8(t *testing.T) {
	c := Codec()
	b := encoded(t, c, &rpcv1.DoReply{Id: 1, Outcomes: []*rpcv1.Outcome{{Message: "key \xff\xfe of"}, {Value: []byte("v")}}})
	var back rpcv1.DoReply
	if err := proto.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if back.Outcomes[0].Message != "key \uFFFD of" || string(back.Outcomes[1].Value) != "v" {
		t.Fatalf("%v", &back)
	}
	if c.Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x12\x03\x1a\x01\xff")}, new(rpcv1.DoReply)) == nil {
		t.Fatal("a message that is not UTF-8 is taken")
	}
}

// Decoded content stays as it is when its neighbour grows.
func TestDecodedBuffersAreApart(t *testing.T) {
	m := &rpcv1.DoReply{Outcomes: []*rpcv1.Outcome{{Value: []byte("one")}, {Value: []byte("two")}}}
	var back rpcv1.DoReply
	if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded(t, Codec(), m))}, &back); err != nil {
		t.Fatal(err)
	}
	_ = append(back.Outcomes[0].Value, bytes.Repeat([]byte("!"), 30)...)
	if string(back.Outcomes[1].Value) != "two" {
		t.Fatalf("the neighbour is %q", back.Outcomes[1].Value)
	}
}

// A message with too many elements costs eight bytes for each.
func TestTooManyElements(t *testing.T) {
	var request rpcv1.DoRequest
	b := append([]byte{8, 77}, bytes.Repeat([]byte{0x12, 0}, MaxCall+1)...)
	if err := decodeRequest(b, &request); err != nil || request.Id != 77 || len(request.Operations) != MaxCall+1 || request.Operations[0] != nil {
		t.Errorf("%d operations, %v", len(request.Operations), err)
	}
	var reply rpcv1.DoReply
	if err := decodeReply(b, &reply); err != nil || reply.Id != 77 || len(reply.Outcomes) != MaxCall+1 || reply.Outcomes[0] != nil {
		t.Errorf("%d outcomes, %v", len(reply.Outcomes), err)
	}
}

func TestCodecAllocations(t *testing.T) {
	c := Codec()
	request, reply := requests()[5], replies()[3]
	for _, o := range reply.Outcomes {
		o.Message = "" // plain answers have none
	}
	asked, answered := encoded(t, c, request), encoded(t, c, reply)
	if n := testing.AllocsPerRun(100, func() {
		if c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(asked)}, new(rpcv1.DoRequest)) != nil {
			t.Fatal("not decoded")
		}
	}); n > 6 {
		t.Errorf("%v allocations to decode %d operations", n, len(request.Operations))
	}
	if n := testing.AllocsPerRun(100, func() {
		if c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(answered)}, new(rpcv1.DoReply)) != nil {
			t.Fatal("not decoded")
		}
	}); n > 6 {
		t.Errorf("%v allocations to decode %d outcomes", n, len(reply.Outcomes))
	}
}

// Any bytes mean the same to the codec and to the generated code.
func FuzzDecode(f *testing.F) {
	for _, m := range requests() {
		f.Add(encoded(f, Codec(), m))
	}
	for _, m := range replies() {
		f.Add(encoded(f, Codec(), m))
	}
	f.Add([]byte{0x12, 4, 8, 1, 0x12, 0, 0x1a, 0})
	f.Add([]byte{0x0b, 0x0c})                       // a group
	f.Add([]byte{0x10, 1, 0x08, 0x80, 0x01, 2})     // the elements' number with a varint
	f.Add([]byte("\b\x02\xf0\xf0\xf0\xf0\x12\x00")) // a number that no field can have
	f.Fuzz(func(t *testing.T, b []byte) {
		discard := proto.UnmarshalOptions{DiscardUnknown: true}
		check := func(got, want proto.Message, err error) {
			t.Helper()
			wantErr := discard.Unmarshal(b, want)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%x: error %v, generated code %v", b, err, wantErr)
			}
			if err == nil && !proto.Equal(got, want) {
				t.Fatalf("%x: %v, generated code %v", b, got, want)
			}
		}
		if n, err := elements(b); err == nil && n > MaxCall {
			return // the elements are not decoded
		}
		request, reply := new(rpcv1.DoRequest), new(rpcv1.DoReply)
		check(request, new(rpcv1.DoRequest), decodeRequest(bytes.Clone(b), request))
		check(reply, new(rpcv1.DoReply), decodeReply(bytes.Clone(b), reply))
	})
}

// TestPaddingIsNotKept: fields that nobody knows, or that come twice, are dropped with their bytes,
// so that a batch keeps about as much memory as Size says, by which servers bound what they take.
func TestPaddingIsNotKept(t *testing.T) {
	m := &rpcv1.DoRequest{Id: 1, Operations: []*rpcv1.Operation{{Kind: rpcv1.Operation_UPSERT, Key: []byte("k"), Value: []byte("v")}, {Kind: rpcv1.Operation_LOOKUP}}}
	plain := appendRequest(nil, m)
	padding := protowire.AppendBytes(protowire.AppendTag(nil, 9, protowire.BytesType), make([]byte, 64<<10))
	twice := protowire.AppendBytes(protowire.AppendTag(nil, fieldKey, protowire.BytesType), make([]byte, 64<<10))
	twice = appendBytes(twice, fieldKey, []byte("k"))
	twice = appendBytes(twice, fieldValue, []byte("v"))
	for what, b := range map[string][]byte{
		"an unknown field":      append(bytes.Clone(plain), padding...),
		"a field that is twice": protowire.AppendBytes(protowire.AppendTag(nil, fieldElements, protowire.BytesType), twice),
	} {
		var got rpcv1.DoRequest
		if err := decodeRequest(b, &got); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if op := got.Operations[0]; string(op.Key) != "k" || string(op.Value) != "v" || cap(op.Key) != 1 {
			t.Errorf("%s: the batch refers to the message of %d bytes, of which it has %d: %v", what, len(b), Size(&got), &got)
		}
	}
	var got rpcv1.DoRequest
	if err := decodeRequest(plain, &got); err != nil {
		t.Fatal(err)
	}
	if plain[bytes.IndexByte(plain, 'k')] = 'K'; string(got.Operations[0].Key) != "K" {
		t.Error("a message without padding was copied")
	}
}
