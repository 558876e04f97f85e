//go:build !amd64 && !arm64

package mapped

import (
	"sync/atomic"
	"unsafe"
)

func copyWords(dst, src unsafe.Pointer, words uintptr, shared unsafe.Pointer) {
	copyWordsGo(dst, src, words, shared)
}

// Barrier is a full barrier: every access before it is performed, for all processors, before any access after it.
func Barrier() { barrierGo() }

// StoreRelease stores v after every access before it, and promises no order with what comes after.
func StoreRelease(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
