package region

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// A page that a process touches first in its mapping costs a fault: less than a microsecond on a
// machine, and up to 20 in a virtual one that is in a virtual one. Whoever goes through the whole
// memory (a join, a checkpoint, what reads files) would pay that for each 4 KiB. So it reads and
// writes the file, whose pages are those of the mapping: what one does, the other sees. A list that
// is executed at the same time is kept away by the journal, as from the mapping. A hugetlbfs takes
// no writes, and has few pages.

// pages is the file for that; nil = there is none, so the mapping is used.
func (r *Region) pages() *os.File {
	if !r.holes {
		return nil
	}
	return r.data.file
}

// Read copies memory at an offset.
func (r *Region) Read(at uint64, b []byte) {
	if f := r.pages(); f != nil {
		if _, err := f.ReadAt(b, int64(at)); err == nil {
			return
		}
	}
	copy(b, r.data.bytes[at:])
}

// Replica is the memory for what a copy takes, or a directory has.
func (r *Region) Replica() verbs.Replica {
	all := verbs.Replica{Memory: r.Bytes()}
	if f := r.pages(); f != nil {
		all.File = f
	}
	return all
}

// PieceBytes is how much of the memory is read at once.
const PieceBytes = 64 << 10

// SpansFrom calls f with the recorded parts of the data region that lie behind an offset, in pieces
// of PieceBytes at most, until f returns false.
func (r *Region) SpansFrom(at uint64, f func(at, n uint64) bool) {
	skip := r.Unrecorded()
	for at < r.DataBytes {
		end := min(at&^(PieceBytes-1)+PieceBytes, r.DataBytes)
		inside := false
		for _, s := range skip {
			switch {
			case at >= s.First && at < s.End:
				at, inside = s.End, true
			case s.First > at:
				end = min(end, s.First)
			}
		}
		if inside {
			continue
		}
		if !f(at, end-at) {
			return
		}
		at = end
	}
}

var zeroes [PieceBytes]byte

// ReadPiece reads a piece, and reports whether it is zero. Holes of the file are not read, since
// that would make pages of them.
func (r *Region) ReadPiece(at uint64, b []byte) (empty bool) {
	if r.holes {
		data, err := unix.Seek(int(r.data.file.Fd()), int64(at), unix.SEEK_DATA)
		// there is no data behind it, or none here
		if err == unix.ENXIO || err == nil && uint64(data) >= at+uint64(len(b)) {
			return true
		}
	}
	r.Read(at, b)
	return bytes.Equal(b, zeroes[:len(b)])
}
