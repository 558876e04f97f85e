package region

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestPages puts pieces into memory through its file and through its mapping, and finds both both
// ways.
func TestPages(t *testing.T) {
	f, err := memfd("dmindex-test", 4*PieceBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &Region{holes: true, data: mapping{file: f}}
	r.DataBytes = 4 * PieceBytes
	if err := r.data.mmap(r.DataBytes); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, PieceBytes)
	if !r.ReadPiece(PieceBytes, b) {
		t.Fatal("new memory is not empty")
	}
	long, short := bytes.Repeat([]byte("long"), PieceBytes/4), []byte("short")
	to := r.Replica()
	if to.File == nil {
		t.Fatal("the file is not used")
	}
	for _, i := range []verbs.Item{{Kind: verbs.ItemData, At: PieceBytes, Data: long}, {Kind: verbs.ItemData, At: PieceBytes + 8, Data: short}} {
		if err := to.Apply(&i); err != nil {
			t.Fatal(err)
		}
	}
	want := bytes.Clone(long)
	copy(want[8:], short)
	if r.ReadPiece(PieceBytes, b) || !bytes.Equal(b, want) {
		t.Error("the file has not what was put there")
	}
	if !bytes.Equal(r.data.bytes[PieceBytes:2*PieceBytes], want) {
		t.Error("the mapping has not what was put there")
	}
	copy(r.data.bytes[3*PieceBytes-4:], "mapped")
	if r.ReadPiece(2*PieceBytes, b) || string(b[PieceBytes-4:]) != "mapp" {
		t.Error("the file has not what was written to the mapping")
	}
	f.Close()
	if err := to.Put(0, long); err == nil {
		t.Error("memory that cannot be written is said to be written")
	}
	if r.Read(2*PieceBytes, b); string(b[PieceBytes-4:]) != "mapp" {
		t.Error("memory is not read where its file cannot be")
	}
}
