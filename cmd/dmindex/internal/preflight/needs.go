// Package preflight looks whether a server can use RDMA where it runs, and says what to change if
// not. A server that cannot stays up and answers with the reason, so that the operator can show it,
// and tries again: a container that exits would say it only in its log, and come back ever more
// slowly.
package preflight

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

// errHugePages is returned when there are not enough huge pages.
var errHugePages = errors.New("not enough huge pages")

// Needs is what a server needs of its node.
type Needs struct {
	Device    string // RDMA device; empty = the first with an active port
	LockBytes uint64 // of memory that is registered with it

	// HugeDir is where files of HugeBytes in all are to be made. Nothing is needed there unless it
	// is on a hugetlbfs, or if Found exists.
	HugeDir   string
	HugeBytes uint64
	Found     string
}

// Check is nil if the node has all that is needed. Else the error says what to change.
func (n *Needs) Check() error {
	return errors.Join(n.checkDevice(), n.checkHugePages())
}

func (n *Needs) checkDevice() error {
	err := ibv.Preflight(ibv.Options{Device: n.Device}, n.LockBytes)
	if errors.Is(err, ibv.ErrNoDevice) && hidden("/dev/infiniband/uverbs*", "/sys/class/infiniband/*") {
		return fmt.Errorf("%w. There are device nodes in /dev/infiniband, but no devices in /sys/class/infiniband: they are in another network namespace; "+
			"on the node run `rdma system set netns shared` before pods start, or give the pod the device's own network (SR-IOV with the rdma CNI plugin)", ibv.ErrNoDevice)
	}
	return err
}

// hidden reports whether there are device nodes but no devices.
func hidden(nodes, devices string) bool {
	there, _ := filepath.Glob(nodes)
	seen, _ := filepath.Glob(devices)
	return len(there) > 0 && len(seen) == 0
}

func (n *Needs) checkHugePages() error {
	var fs unix.Statfs_t
	if n.HugeDir == "" || unix.Statfs(n.HugeDir, &fs) != nil || uint32(fs.Type) != unix.HUGETLBFS_MAGIC {
		return nil
	}
	if _, err := os.Stat(n.Found); err == nil {
		return nil // made by an earlier process
	}
	page := uint64(fs.Bsize)
	return roomFor(n.HugeBytes, page, fs.Bfree*page, freePages(page)*page)
}

// roomFor reports whether need bytes have room in a file system with left bytes on a node with free
// bytes of huge pages.
func roomFor(need, page, left, free uint64) error {
	switch {
	case left < need:
		return fmt.Errorf("%w: the volume has %d bytes left, %d are needed: ask for as many hugepages-%s in the pod's resources", errHugePages, left, need, pageName(page))
	case free < need:
		return fmt.Errorf("%w: the node has %d bytes of free ones of %s, %d are needed: set more aside (vm.nr_hugepages, or hugepages= on the kernel's command line), then restart the kubelet, which counts them at its start",
			errHugePages, free, pageName(page), need)
	}
	return nil
}

func pageName(page uint64) string {
	if page >= 1<<30 {
		return fmt.Sprintf("%dGi", page>>30)
	}
	return fmt.Sprintf("%dMi", page>>20)
}

// freePages is how many huge pages of a size nobody has reserved; where the system does not say, as
// many as there could be.
func freePages(page uint64) (n uint64) {
	dir := fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB/", page>>10)
	free, err := readNumber(dir + "free_hugepages")
	reserved, err2 := readNumber(dir + "resv_hugepages")
	if err != nil || err2 != nil {
		return 1 << 40 / page
	}
	return free - min(free, reserved)
}

func readNumber(path string) (n uint64, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = fmt.Sscan(strings.TrimSpace(string(text)), &n)
	}
	return n, err
}
