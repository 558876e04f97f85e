package ibv

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseHugePages(t *testing.T) {
	f := func(text string, want int) {
		t.Helper()
		if got := parseHugePages(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	f("", 0)
	f("HugePages_Total:       8\nHugePages_Free:        3\nHugepagesize:       2048 kB\n", 2<<20)
	f("HugePages_Free:        0\nHugepagesize:       2048 kB\n", 0)
	f("HugePages_Free:        1\nHugepagesize:    1048576 kB\n", 1<<30)
	f("HugePages_Free:        1\n", 0)
	f("HugePages_Free: many\nHugepagesize: big\n", 0)
}

func TestMapPages(t *testing.T) {
	for _, size := range []int{1, 4096, hugeWorth, 3<<20 + 1} {
		b, err := mapPages(size)
		if err != nil || len(b) < size {
			t.Fatalf("%d bytes: %d, %v", size, len(b), err)
		}
		b[0], b[size-1] = 1, 2
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	}
	if _, err := mapPages(0); err == nil {
		t.Error("nothing can be mapped")
	}
}
