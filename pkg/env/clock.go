package env

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads CLOCK_BOOTTIME. Leases are judged by it, so each reading is the clock's own and
// never a cached one: a clock that lags lets the holder of a lease believe in it for too long, and
// a sum of Go's monotonic clock and an offset lags after a suspend until somebody measures the
// offset again.
//
// A reading by the vDSO costs about as much as time.Now, one by a system call ten times that. The
// vDSO is code that the kernel maps into each process. The clock uses it where the kernel offers
// it and this processor's stub can call it, and where it agreed with the system call when it was
// first tried.
type bootClock struct {
	vdso uintptr // the address of the vDSO's clock_gettime; 0 = ask the kernel
}

// newBootClock chooses how to read the clock.
func newBootClock() *bootClock {
	c := &bootClock{vdso: findVDSO()}
	if c.vdso == 0 {
		return c
	}
	// Two system calls enclose what the vDSO says.
	for range 3 {
		before := readBySystemCall()
		said := readByVDSO(c.vdso)
		if after := readBySystemCall(); said < before || said > after {
			return &bootClock{}
		}
	}
	return c
}

// now is the time on the clock, in nanoseconds.
func (c *bootClock) now() time.Duration {
	if c.vdso != 0 {
		if t := readByVDSO(c.vdso); t >= 0 {
			return time.Duration(t)
		}
	}
	return time.Duration(readBySystemCall())
}

func readBySystemCall() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("env: CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return ts.Nano()
}
