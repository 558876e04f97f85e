package memory

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page.
const hugePage = 2 << 20

// Huge asks the kernel for huge pages under s, which is large and lives long, where whole ones of them lie in it. A hint: where the kernel does not give them, nothing changes.
func Huge[T any](s []T) {
	if len(s) == 0 {
		return
	}
	begin := uintptr(unsafe.Pointer(&s[0]))
	end := begin + uintptr(len(s))*unsafe.Sizeof(s[0])
	from, to := (begin+hugePage-1)&^(hugePage-1), end&^(hugePage-1)
	if from >= to {
		return
	}
	unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&s[0]), from-begin)), to-from), unix.MADV_HUGEPAGE) // refused where there are none
}
