package pool

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func encodedSuperblock(t testing.TB) []byte {
	sb := &Superblock{Identity: "i", Design: "d", Options: json.RawMessage(`{"a":1}`)}
	header, body, err := sb.marshal()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, superblockBytes)
	copy(b, header)
	copy(b[superblockBody:], body)
	for i := range 2 {
		binary.LittleEndian.PutUint64(b[superblockSecret+8*i:], uint64(i)+5)
	}
	return b
}

func TestSuperblockRoundTrip(t *testing.T) {
	sb, err := unmarshalSuperblock(encodedSuperblock(t))
	if err != nil || sb.Identity != "i" || sb.Design != "d" || string(sb.Options) != `{"a":1}` || sb.Secret != [2]uint64{5, 6} {
		t.Fatalf("%+v, %v", sb, err)
	}
}

func TestSuperblockRefusals(t *testing.T) {
	check := func(change func(b []byte), want string) {
		t.Helper()
		b := encodedSuperblock(t)
		change(b)
		_, err := unmarshalSuperblock(b)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want ErrFormat with %q", err, want)
		}
	}
	check(func(b []byte) { b[0] ^= 1 }, "not dmindex")
	check(func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 77) }, "version 77, this program reads version 8")
	check(func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 7) }, "version 7, this program reads version 8")
	check(func(b []byte) { binary.LittleEndian.PutUint32(b[8:], 3) }, "version 3, this program reads version 8")
	check(func(b []byte) { binary.LittleEndian.PutUint32(b[12:], 1<<20) }, "1048576 bytes")
	check(func(b []byte) { b[superblockBody+3] ^= 1 }, "checksum")
	check(func(b []byte) { b[16] ^= 1 }, "checksum")
	check(func(b []byte) { clear(b[superblockSecret:superblockBody]) }, "no secret")
}

func TestSuperblockThatIsTooLong(t *testing.T) {
	sb := &Superblock{Identity: strings.Repeat("x", superblockBytes)}
	if _, _, err := sb.marshal(); err == nil {
		t.Error("a superblock over its slot was encoded")
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add(encodedSuperblock(f))
	f.Add(make([]byte, superblockBytes))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := make([]byte, superblockBytes)
		copy(b, in)
		before := bytes.Clone(b)
		sb, err := unmarshalSuperblock(b)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Errorf("error %v does not say ErrFormat", err)
		}
		if err == nil && sb == nil || !bytes.Equal(before, b) {
			t.Error("no superblock, or the input changed")
		}
	})
}
