//go:build !amd64

package memory

import "unsafe"

// Line asks for nothing here.
func Line(unsafe.Pointer) {}

// Lines asks for nothing here.
func Lines(unsafe.Pointer) {}
