package verbs

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arena is memory outside Go's heap from which local buffers are cut. A provider makes it
// ([Device.NewArena]), so that it is registered with the NIC where there is one. Alloc and Close
// are safe for concurrent use; buffers are not returned one by one: sessions cut theirs once and
// keep them.
type Arena struct {
	mem   []byte
	close func([]byte) error

	mu   sync.Mutex
	used int
}

// MapArena maps size bytes of anonymous memory for an arena, for providers that need no
// registration of their own.
func MapArena(size int) (*Arena, error) {
	if size <= 0 {
		return nil, fmt.Errorf("arena of %d bytes: the size must be positive", size)
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map an arena of %d bytes: %w", size, err)
	}
	return NewArena(mem, unix.Munmap), nil
}

// NewArena makes an arena of mem, which must not be on Go's heap; release is called with it by
// Close.
func NewArena(mem []byte, release func([]byte) error) *Arena {
	return &Arena{mem: mem, close: release}
}

// Alloc cuts n bytes, aligned to 64, zeroed.
func (a *Arena) Alloc(n int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	start := (a.used + 63) &^ 63
	if n <= 0 || n > len(a.mem)-start {
		return nil, fmt.Errorf("arena: %d bytes asked, %d of %d left", n, len(a.mem)-start, len(a.mem))
	}
	a.used = start + n
	return a.mem[start : start+n : start+n], nil
}

// Contains reports whether b lies within the arena.
func (a *Arena) Contains(b []byte) bool {
	if len(b) == 0 || len(a.mem) == 0 {
		return false
	}
	off := a.offset(b)
	return off < uintptr(len(a.mem)) && uintptr(len(b)) <= uintptr(len(a.mem))-off
}

// offset is where b starts in the arena; out of range (wrapped around) if b lies before it.
func (a *Arena) offset(b []byte) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))
}

// Close unmaps the arena. No QP may use it any more, and no buffer cut from it may be touched.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mem == nil {
		return nil
	}
	mem := a.mem
	a.mem = nil
	return a.close(mem)
}
