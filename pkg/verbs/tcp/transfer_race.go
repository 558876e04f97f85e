//go:build race

package tcp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// transferOnce is the same by the calls that the race detector knows: what was done before bytes
// were written happened before what is done once they are read, as with every net.Conn.
func transferOnce(call, fd uintptr, p []byte) (int, syscall.Errno) {
	transfer := syscall.Write
	if call == unix.SYS_READ {
		transfer = syscall.Read
	}
	for {
		n, err := transfer(int(fd), p)
		if err == nil {
			return n, 0
		}
		if err != unix.EINTR {
			return n, err.(syscall.Errno)
		}
	}
}
