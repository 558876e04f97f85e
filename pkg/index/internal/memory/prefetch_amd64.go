package memory

import "unsafe"

// Line asks for the line of the processor's cache at p; it cannot fault.
//
//go:noescape
func Line(p unsafe.Pointer)

// Lines asks for the six lines from p on, so that their misses overlap; what lies beyond an
// object's end is asked for in vain.
//
//go:noescape
func Lines(p unsafe.Pointer)
