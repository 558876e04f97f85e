package mapped

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// copyWordsGo is copyWords for processors without assembly of ours: atomic accesses on the region's
// side, whatever the machine likes on the other. It is built everywhere so that it is tested
// everywhere.
func copyWordsGo(dst, src unsafe.Pointer, words uintptr, shared unsafe.Pointer) {
	if shared == dst {
		private := unsafe.Slice((*byte)(src), words*8)
		for i := range words {
			atomic.StoreUint64((*uint64)(unsafe.Add(dst, i*8)), binary.NativeEndian.Uint64(private[i*8:]))
		}
		return
	}
	private := unsafe.Slice((*byte)(dst), words*8)
	for i := range words {
		binary.NativeEndian.PutUint64(private[i*8:], atomic.LoadUint64((*uint64)(unsafe.Add(src, i*8))))
	}
}

// barrierGo is a barrier made of what Go offers everywhere: its atomics are sequentially
// consistent, and a read-modify-write of a word of the caller's own orders what is around it on
// every processor that Go runs on.
func barrierGo() {
	var word atomic.Uint64
	word.Add(1)
}
