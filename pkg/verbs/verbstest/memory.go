// Package verbstest is the conformance suite of the fabric: every provider passes [Run].
package verbstest

import (
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Memory makes zeroed regions in memory files, of data and locks bytes. They go with the test.
func Memory(t testing.TB, data, locks int) []verbs.Memory {
	t.Helper()
	var list []verbs.Memory
	for id, size := range map[verbs.RegionID]int{verbs.RegionData: data, verbs.RegionLocks: locks} {
		list = append(list, memory(t, id, size))
	}
	return list
}

func memory(t testing.TB, id verbs.RegionID, size int) verbs.Memory {
	t.Helper()
	fd, err := unix.MemfdCreate(fmt.Sprintf("region-%d", id), unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatalf("memory file: %v", err)
	}
	f := os.NewFile(uintptr(fd), "region")
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatalf("memory file of %d bytes: %v", size, err)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("map a memory file of %d bytes: %v", size, err)
	}
	t.Cleanup(func() {
		unix.Munmap(b)
		f.Close()
	})
	return verbs.Memory{ID: id, Bytes: b, File: f}
}

// Tokens is an Admission that knows the tokens it issued. The zero value is ready. Safe for concurrent use.
type Tokens struct {
	mu    sync.Mutex
	valid map[verbs.Token]verbs.Peer
}

// Issue makes a token that admits peer once.
func (a *Tokens) Issue(peer verbs.Peer) (t verbs.Token) {
	rand.Read(t[:])
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.valid == nil {
		a.valid = map[verbs.Token]verbs.Peer{}
	}
	a.valid[t] = peer
	return t
}

// Admit implements verbs.Admission.
func (a *Tokens) Admit(t verbs.Token) (verbs.Peer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.valid[t]
	if !ok {
		return p, verbs.ErrRefused
	}
	delete(a.valid, t)
	return p, nil
}
