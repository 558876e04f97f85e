package memserver

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestPages puts pieces into memory through its file and through its mapping, and finds both both
// ways.
func TestPages(t *testing.T) {
	f, err := memfd("dmindex-test", 4*pieceBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &region{holes: true, data: mapping{file: f}}
	r.dataBytes = 4 * pieceBytes
	if err := r.data.mmap(r.dataBytes); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, pieceBytes)
	if !r.readPiece(pieceBytes, b) {
		t.Fatal("new memory is not empty")
	}
	long, short := bytes.Repeat([]byte("long"), pieceBytes/4), []byte("short")
	to := r.replica()
	if to.File == nil {
		t.Fatal("the file is not used")
	}
	for _, i := range []verbs.Item{{Kind: verbs.ItemData, At: pieceBytes, Data: long}, {Kind: verbs.ItemData, At: pieceBytes + 8, Data: short}} {
		if err := to.Apply(&i); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Clone(long)
	copy(want[8:], short)
	if r.readPiece(pieceBytes, b) || !bytes.Equal(b, want) {
		t.Error("the file has not what was put there")
	}
	if !bytes.Equal(r.data.bytes[pieceBytes:2*pieceBytes], want) {
		t.Error("the mapping has not what was put there")
	}
	copy(r.data.bytes[3*pieceBytes-4:], "mapped")
	if r.readPiece(2*pieceBytes, b) || string(b[pieceBytes-4:]) != "mapp" {
		t.Error("the file has not what was written to the mapping")
	}
	f.Close()
	if err := to.Put(0, long); err == nil {
		t.Error("memory that cannot be written is said to be written")
	}
	if r.read(2*pieceBytes, b); string(b[pieceBytes-4:]) != "mapp" {
		t.Error("memory is not read where its file cannot be")
	}
}
