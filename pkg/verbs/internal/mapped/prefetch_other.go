//go:build !amd64

package mapped

import "unsafe"

func prefetch(unsafe.Pointer) {}
