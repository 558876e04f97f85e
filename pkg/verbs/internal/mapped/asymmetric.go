package mapped

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2).
const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// Asymmetric reports whether [FenceProcess] works here, so that the other side of a handshake
// between goroutines can do without a barrier of its own: it stores with [StoreRelease], then
// loads; who fences sees the store, or the load sees what was stored before the fence.
var Asymmetric = sync.OnceValue(func() bool {
	return membarrier(membarrierRegisterPrivateExpedited) == nil && membarrier(membarrierPrivateExpedited) == nil
})

// FenceProcess is a full barrier on every processor that runs a thread of this process. It costs
// microseconds. Only where Asymmetric says so.
func FenceProcess() {
	if err := membarrier(membarrierPrivateExpedited); err != nil {
		panic("mapped: membarrier worked before and now fails: " + err.Error())
	}
}

func membarrier(command uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0); e != 0 {
		return e
	}
	return nil
}
