// Package mapped executes requests on a memory region that other goroutines and processes map and
// change at the same time.
//
// Everything that touches such memory goes through here: copies that never tear an aligned 8-byte
// word (the runtime's own copy may move bytes one by one), atomics, and the barriers that G1 asks
// for. The Go memory model says nothing about memory outside the heap that assembly accesses, and
// the race detector does not see it; what holds is the machine's model, so the reasons for each
// order stand beside the code.
package mapped

import "unsafe"

// Load copies len(dst) bytes of a region, starting at src, to private memory. Every aligned 8-byte
// word of the region that lies wholly within the range is read in one access; the bytes before the
// first and after the last one by one.
func Load(dst []byte, src unsafe.Pointer) {
	n := uintptr(len(dst))
	d := unsafe.Pointer(unsafe.SliceData(dst))
	if (uintptr(src)|n)&7 == 0 {
		copyWords(d, src, n/8, src)
		return
	}
	edges(d, src, n, src)
}

// Store copies src to a region, starting at dst. Every aligned 8-byte word of the region that lies
// wholly within the range is written in one access; the bytes before the first and after the last
// one by one.
func Store(dst unsafe.Pointer, src []byte) {
	n := uintptr(len(src))
	s := unsafe.Pointer(unsafe.SliceData(src))
	if (uintptr(dst)|n)&7 == 0 {
		copyWords(dst, s, n/8, dst)
		return
	}
	edges(dst, s, n, dst)
}

// edges copies n bytes of which the ends do not fall on words of shared, which is src or dst,
// whichever is in the region.
func edges(dst, src unsafe.Pointer, n uintptr, shared unsafe.Pointer) {
	head := min(-uintptr(shared)&7, n)
	copyBytes(dst, src, head)
	words := (n - head) / 8
	mid := head + words*8
	if words > 0 {
		copyWords(unsafe.Add(dst, head), unsafe.Add(src, head), words, unsafe.Add(shared, head))
	}
	if mid < n { // else dst+mid may be the end of its buffer, where no pointer may point
		copyBytes(unsafe.Add(dst, mid), unsafe.Add(src, mid), n-mid)
	}
}

// copyBytes copies fewer than 8 bytes one by one. The compiler must not fuse them into a longer
// access that straddles a word of the region, so each stands alone in the loop.
func copyBytes(dst, src unsafe.Pointer, n uintptr) {
	for i := range n {
		*(*byte)(unsafe.Add(dst, i)) = *(*byte)(unsafe.Add(src, i))
	}
}
