//go:build !amd64 && !arm64

package mapped

import "unsafe"

func copyWords(dst, src unsafe.Pointer, words uintptr, shared unsafe.Pointer) {
	copyWordsGo(dst, src, words, shared)
}

// Barrier is a full barrier: every access before it is performed, for all processors, before any
// access after it.
func Barrier() { barrierGo() }
