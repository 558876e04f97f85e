//go:build amd64 || arm64

package mapped

import "unsafe"

// copyWords copies words 8-byte words in ascending order. shared is src or dst, whichever lies in
// the region: it is aligned to 8, the other need not be. The assembly needs no telling which, since
// it moves whole words either way.
func copyWords(dst, src unsafe.Pointer, words uintptr, shared unsafe.Pointer) {
	moveWords(dst, src, words)
}

// moveWords copies words 8-byte words in ascending order; each is one access on the side that is
// aligned to 8.
//
//go:noescape
func moveWords(dst, src unsafe.Pointer, words uintptr)

// Barrier is a full barrier: every access before it is performed, for all processors, before any
// access after it.
//
//go:noescape
func Barrier()
