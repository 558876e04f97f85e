package ibv

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hugeWorth is from how many bytes on a mapping is put on huge pages: a NIC keeps few translations
// of addresses, but a huge page for little wastes what the host has few of.
const hugeWorth = 1 << 20

// mapPages maps at least size bytes of anonymous memory, on huge pages if the host has free ones
// and size is worth it.
func mapPages(size int) ([]byte, error) {
	if size <= 0 {
		return nil, fmt.Errorf("arena of %d bytes: the size must be positive", size)
	}
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if huge := hugePageSize(); huge > 0 && size >= hugeWorth {
		if b, err := unix.Mmap(-1, 0, (size+huge-1)/huge*huge, prot, flags|unix.MAP_HUGETLB); err == nil {
			if populated(b) {
				return b, nil
			}
			unix.Munmap(b)
		}
	}
	b, err := unix.Mmap(-1, 0, size, prot, flags)
	if err != nil {
		return nil, fmt.Errorf("map an arena of %d bytes: %w", size, err)
	}
	return b, nil
}

// populated takes all pages of a mapping. A container whose limit of huge pages is too low may map
// them all the same, and would end by the first access.
func populated(b []byte) bool {
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	return err == nil || err == unix.EINVAL // before Linux 5.14
}

// hugePageSize is the size of the host's default huge pages; 0 = none is free.
func hugePageSize() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parseHugePages(string(text))
}

// parseHugePages is hugePageSize of the text of /proc/meminfo.
func parseHugePages(text string) int {
	free, kib := 0, 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch name {
		case "HugePages_Free":
			free, _ = strconv.Atoi(fields[0])
		case "Hugepagesize":
			kib, _ = strconv.Atoi(fields[0])
		}
	}
	if free <= 0 || kib <= 0 {
		return 0
	}
	return kib << 10
}
