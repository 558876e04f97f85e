//go:build !race

package tcp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostAtOnce is how many bytes one system call moves: the goroutine cannot be preempted meanwhile.
const mostAtOnce = 256 << 10

// transferOnce reads to or writes from the start of p, once, on a descriptor that does not block.
func transferOnce(call, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, err := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(min(len(p), mostAtOnce)))
		if err != unix.EINTR {
			return int(n), err
		}
	}
}
