package verbstest

import (
	"crypto/rand"
	"errors"
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
	list, release, err := NewMemory(data, locks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return list
}

// NewMemory is Memory where there is no test; release unmaps the regions.
func NewMemory(data, locks int) (list []verbs.Memory, release func(), err error) {
	release = func() {
		for _, m := range list {
			unix.Munmap(m.Bytes)
			m.File.Close()
		}
	}
	for id, size := range []int{verbs.RegionData: data, verbs.RegionLocks: locks} {
		m, err := newRegion(verbs.RegionID(id), size)
		if err != nil {
			release()
			return nil, nil, err
		}
		list = append(list, m)
	}
	return list, release, nil
}

func newRegion(id verbs.RegionID, size int) (verbs.Memory, error) {
	fd, err := unix.MemfdCreate(fmt.Sprintf("region-%d", id), unix.MFD_CLOEXEC)
	if err != nil {
		return verbs.Memory{}, fmt.Errorf("memory file for region %d: %w", id, err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("region-%d", id))
	err = f.Truncate(int64(size))
	var b []byte
	if err == nil {
		b, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return verbs.Memory{}, errors.Join(fmt.Errorf("region %d of %d bytes: %w", id, size, err), f.Close())
	}
	return verbs.Memory{ID: id, Bytes: b, File: f}, nil
}

// Tokens is an Admission that knows the tokens it issued. The zero value is ready. Safe for
// concurrent use.
type Tokens struct {
	mu     sync.Mutex
	valid  map[verbs.Token]verbs.Peer
	barred map[verbs.Peer]bool
}

// Bar lets no connection of peer in any more.
func (a *Tokens) Bar(peer verbs.Peer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.barred == nil {
		a.barred = map[verbs.Peer]bool{}
	}
	a.barred[peer] = true
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
	if !ok || a.barred[p] {
		return p, verbs.ErrRefused
	}
	delete(a.valid, t)
	return p, nil
}
