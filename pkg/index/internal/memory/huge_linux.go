package memory

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page.
const hugePage = 2 << 20

// Huge asks the kernel for huge pages under s, which is large and lives long, where whole ones of
// them lie in it. A hint: where the kernel does not give them, nothing changes.
func Huge[T any](s []T) { advise(s, hugePage, unix.MADV_HUGEPAGE) }

// Free gives the memory of whole pages that lie in s back to the kernel. Nobody needs what is in s
// any more, which has no pointers: it may be zero afterwards, and may be used again.
func Free(s []uint64) { advise(s, uintptr(unix.Getpagesize()), unix.MADV_DONTNEED) }

// advise advises the kernel on the pages of a size that lie in s as a whole. It may refuse.
func advise[T any](s []T, page uintptr, advice int) {
	if len(s) == 0 {
		return
	}
	begin := uintptr(unsafe.Pointer(&s[0]))
	end := begin + uintptr(len(s))*unsafe.Sizeof(s[0])
	from, to := (begin+page-1)&^(page-1), end&^(page-1)
	if from >= to {
		return
	}
	unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&s[0]), from-begin)), to-from), advice)
}
