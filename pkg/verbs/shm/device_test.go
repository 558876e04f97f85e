package shm

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestMappedBytes: whole pages of the file's system are mapped, huge ones included.
func TestMappedBytes(t *testing.T) {
	for _, c := range []struct {
		size uint64
		page int64
		want int
	}{{4096, 4096, 4096}, {4097, 4096, 8192}, {256 << 10, 2 << 20, 2 << 20}, {2<<20 + 8, 2 << 20, 4 << 20}, {1 << 30, 1 << 30, 1 << 30}, {12, 0, 12}} {
		if got := mappedBytes(c.size, &unix.Stat_t{Blksize: c.page}); got != c.want {
			t.Errorf("%d bytes in pages of %d: %d are mapped, want %d", c.size, c.page, got, c.want)
		}
	}
}
