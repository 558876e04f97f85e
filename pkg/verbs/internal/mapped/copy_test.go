package mapped

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

const (
	testBytes = 700
	guard     = 64 // bytes around a copy that must not change
)

// words is memory that starts at a multiple of 8.
func words(n int) []byte {
	w := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), n)
}

// TestCopies: Load and Store copy exactly what they should, however the ends lie.
func TestCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, testBytes).Draw(t, "bytes")
		shared, private := rapid.IntRange(0, 15).Draw(t, "shared"), rapid.IntRange(0, 15).Draw(t, "private")
		salt := rapid.Byte().Draw(t, "salt")
		src, dst := words(testBytes+16+2*guard), words(testBytes+16+2*guard)
		for i := range src {
			src[i], dst[i] = byte(i)*31+salt, 0xee
		}
		check := func(what string, from, to int) {
			for i := range dst {
				want := byte(0xee)
				if i >= to && i < to+n {
					want = src[i-to+from]
				}
				if dst[i] != want {
					t.Fatalf("%s of %d bytes from %d to %d: byte %d is %#x, want %#x", what, n, from, to, i, dst[i], want)
				}
				dst[i] = 0xee
			}
		}
		from, to := guard+shared, guard+private
		Load(dst[to:][:n], unsafe.Pointer(&src[from]))
		check("Load", from, to)
		from, to = guard+private, guard+shared
		Store(unsafe.Pointer(&dst[to]), src[from:][:n])
		check("Store", from, to)
	})
}

// TestCopyWordsGo: the version for processors without assembly copies the same.
func TestCopyWordsGo(t *testing.T) {
	for n := range uintptr(20) {
		for private := range uintptr(8) {
			shared, mine := words(20*8), words(22*8)
			for i := range mine {
				mine[i] = byte(i) + 1
			}
			copyWordsGo(unsafe.Pointer(&shared[0]), unsafe.Pointer(&mine[private]), n, unsafe.Pointer(&shared[0]))
			if string(shared[:n*8]) != string(mine[private:][:n*8]) {
				t.Fatalf("%d words to the region from offset %d: %x", n, private, shared)
			}
			back := words(22 * 8)
			copyWordsGo(unsafe.Pointer(&back[private]), unsafe.Pointer(&shared[0]), n, unsafe.Pointer(&shared[0]))
			if string(back[private:][:n*8]) != string(mine[private:][:n*8]) {
				t.Fatalf("%d words from the region to offset %d: %x", n, private, back)
			}
			for i, b := range back {
				if in := i >= int(private) && i < int(private+n*8); !in && b != 0 {
					t.Fatalf("%d words at offset %d changed byte %d", n, private, i)
				}
			}
		}
	}
}

func TestCopiesDoNotAllocate(t *testing.T) {
	shared, mine := words(1024), make([]byte, 1001)
	if n := testing.AllocsPerRun(100, func() {
		Load(mine, unsafe.Pointer(&shared[3]))
		Store(unsafe.Pointer(&shared[5]), mine)
		Barrier()
		barrierGo()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
	}{{"64", 64}, {"1K", 1024}, {"64K", 64 << 10}} {
		shared, mine := words(c.n), words(c.n)
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(c.n))
			for range b.N {
				Load(mine, unsafe.Pointer(&shared[0]))
			}
		})
		b.Run(c.name+"/copy", func(b *testing.B) {
			b.SetBytes(int64(c.n))
			for range b.N {
				copy(mine, shared)
			}
		})
	}
}

func BenchmarkBarrier(b *testing.B) {
	for range b.N {
		Barrier()
	}
}
