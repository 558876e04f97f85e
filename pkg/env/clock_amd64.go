package env

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"unsafe"
)

// readByVDSO calls the vDSO's clock_gettime for CLOCK_BOOTTIME and returns nanoseconds, or -1 if it
// failed.
//
//go:noescape
func readByVDSO(fn uintptr) int64

// vdsoGettime is what the kernel calls the function.
const vdsoGettime = "__vdso_clock_gettime"

// findVDSO returns the address of the vDSO's clock_gettime, or 0.
func findVDSO() uintptr {
	base, image := vdsoImage()
	if image == nil {
		return 0
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0
	}
	bias := base
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			bias -= uintptr(p.Vaddr - p.Off)
			break
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0
	}
	for _, s := range symbols {
		if s.Name == vdsoGettime && s.Section != elf.SHN_UNDEF {
			return bias + uintptr(s.Value)
		}
	}
	return 0
}

// vdsoImage returns the vDSO as it lies in memory; nil where there is none.
func vdsoImage() (base uintptr, image []byte) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, nil
	}
	for line := range bytes.Lines(maps) {
		if !bytes.HasSuffix(line, []byte("[vdso]\n")) {
			continue
		}
		var end uintptr
		if n, err := fmt.Sscanf(string(line), "%x-%x r-xp", &base, &end); n != 2 || err != nil || end <= base {
			return 0, nil
		}
		// The kernel mapped it for as long as the process lives; it is no memory of Go's.
		start := *(*unsafe.Pointer)(unsafe.Pointer(&base))
		return base, unsafe.Slice((*byte)(start), end-base)
	}
	return 0, nil
}
