package mapped

import "unsafe"

// prefetch asks for the eight lines from p on, a hint that cannot fault.
//
//go:noescape
func prefetch(p unsafe.Pointer)
