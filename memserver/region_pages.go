package memserver

import (
	"os"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// A page that a process touches first in its mapping costs a fault: less than a microsecond on a
// machine, and up to 20 in a virtual one that is in a virtual one. Whoever goes through the whole
// memory (a join, a checkpoint, what reads files) would pay that for each 4 KiB. So it reads and
// writes the file, whose pages are those of the mapping: what one does, the other sees. A list that
// is executed at the same time is kept away by the journal, as from the mapping. A hugetlbfs takes
// no writes, and has few pages.

// pages is the file for that; nil = there is none, so the mapping is used.
func (r *region) pages() *os.File {
	if !r.holes {
		return nil
	}
	return r.data.file
}

// read copies memory at an offset.
func (r *region) read(at uint64, b []byte) {
	if f := r.pages(); f != nil {
		if _, err := f.ReadAt(b, int64(at)); err == nil {
			return
		}
	}
	copy(b, r.data.bytes[at:])
}

// replica is the memory for what a copy takes, or a directory has.
func (r *region) replica() verbs.Replica {
	all := verbs.Replica{Memory: r.data.bytes[:r.dataBytes]}
	if f := r.pages(); f != nil {
		all.File = f
	}
	return all
}
