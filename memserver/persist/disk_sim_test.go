package persist_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/env/simenv/simtest"
)

// disk is a directory that outlives processes. A loss of power leaves, of what was not synced, any
// sectors of any writes, and names up to any of their changes.
type disk struct {
	stage *simtest.Stage
	wrong mistake

	now     map[string]*inode
	stored  map[string]*inode
	changes []func(map[string]*inode) // of names, since the last sync

	full   bool
	broken int // syncs of files that fail from now on
	calls  int // that change something
	dieAt  int // the process is killed in that call; 0 = never
	counts map[string]int
	drops  *rand.Rand // of what a failed sync drops
}

type inode struct {
	content []byte
	stored  []byte
	writes  []write // since the last sync
}

type write struct {
	at   int
	data []byte
}

const sector = 512

func newDisk(s *simtest.Stage, wrong mistake) *disk {
	return &disk{stage: s, wrong: wrong, now: map[string]*inode{}, stored: map[string]*inode{}, counts: map[string]int{}, drops: rand.New(rand.NewPCG(1, 59))}
}

// power is what a loss of power does. No process uses the disk.
func (d *disk) power() {
	random := d.stage.Random
	for _, change := range d.changes[:random.IntN(len(d.changes)+1)] {
		change(d.stored)
	}
	d.changes = nil
	names := make([]string, 0, len(d.stored))
	for name := range d.stored {
		names = append(names, name)
	}
	slices.Sort(names) // for the random numbers
	d.now = map[string]*inode{}
	for _, name := range names {
		n := d.stored[name]
		kept := random.IntN(3) // none, some, all
		for _, w := range n.writes {
			for from := 0; from < len(w.data); {
				end := min(len(w.data), from+sector-(w.at+from)%sector)
				if kept == 2 || kept == 1 && random.IntN(4) > 0 {
					n.stored = put(n.stored, w.at+from, w.data[from:end])
				}
				from = end
			}
		}
		n.writes = nil
		n.content = slices.Clone(n.stored)
		d.now[name] = n
	}
}

func put(b []byte, at int, data []byte) []byte {
	if end := at + len(data); end > len(b) {
		b = append(b, make([]byte, end-len(b))...)
	}
	copy(b[at:], data)
	return b
}

// mount is the directory as one process has it.
type mount struct {
	*disk
	process *simenv.Process
}

var errDead = errors.New("the process is dead")

// call begins a call that changes something. part reports whether the process dies within the call,
// which has done a part of its work then.
func (m *mount) call(what string) (part bool, err error) {
	m.process.Sleep(m.stage.UpTo(30 * time.Microsecond))
	if m.process.Dead() {
		return false, errDead
	}
	m.counts[what]++
	m.calls++
	return m.calls == m.dieAt, nil
}

func (m *mount) List() (names []string, err error) {
	for name := range m.now {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (m *mount) rename(change func(map[string]*inode)) error {
	part, err := m.call("name")
	if err != nil {
		return err
	}
	if !part || m.stage.OneIn(2) {
		change(m.now)
		m.changes = append(m.changes, change)
	}
	if part {
		m.process.Kill()
	}
	return nil
}

func (m *mount) Create(name string) (persist.File, error) {
	n := &inode{}
	if m.wrong == noWord && name == "lacks" {
		return &handle{m, n}, nil
	}
	err := m.rename(func(names map[string]*inode) { names[name] = n })
	return &handle{m, n}, err
}

func (m *mount) Open(name string) (persist.File, error) {
	if n := m.now[name]; n != nil {
		return &handle{m, n}, nil
	}
	return nil, os.ErrNotExist
}

func (m *mount) Rename(from, to string) error {
	if m.now[from] == nil {
		return os.ErrNotExist
	}
	return m.rename(func(names map[string]*inode) {
		names[to] = names[from]
		delete(names, from)
	})
}

func (m *mount) Remove(name string) error {
	if m.now[name] == nil {
		return os.ErrNotExist
	}
	return m.rename(func(names map[string]*inode) { delete(names, name) })
}

func (m *mount) Sync() error {
	part, err := m.call("sync of names")
	if err != nil {
		return err
	}
	if m.wrong != noNames {
		for _, change := range m.changes {
			change(m.stored)
		}
		m.changes = nil
	}
	if part {
		m.process.Kill()
	}
	return nil
}

type handle struct {
	mount *mount
	inode *inode
}

func (h *handle) ReadAt(b []byte, at int64) (int, error) {
	if at > int64(len(h.inode.content)) {
		return 0, os.ErrInvalid
	}
	n := copy(b, h.inode.content[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, at int64) (int, error) {
	m := h.mount
	part, err := m.call("write")
	if err != nil {
		return 0, err
	}
	data := slices.Clone(b)
	grows := int(at)+len(b) > len(h.inode.content)
	if m.wrong == noRewrite && !grows {
		return len(b), nil
	}
	if m.full && grows {
		return 0, fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	if part {
		data = data[:m.stage.Random.IntN(len(data)+1)]
	}
	h.inode.content = put(h.inode.content, int(at), data)
	h.inode.writes = append(h.inode.writes, write{int(at), data})
	if part {
		m.process.Kill()
	}
	return len(b), nil
}

// Sync may fail: what was written since the last one is then as if it was on disk, and is not. In
// half of the cases it is not in the page cache any more either.
func (h *handle) Sync() error {
	m := h.mount
	until := len(h.inode.writes)
	part, err := m.call("sync")
	if err != nil {
		return err
	}
	m.process.Sleep(m.stage.UpTo(2 * time.Millisecond))
	if m.process.Dead() {
		return errDead
	}
	if m.broken > 0 {
		m.broken--
		h.inode.writes = h.inode.writes[until:]
		if m.drops.IntN(2) == 0 {
			n := h.inode
			n.content = put(make([]byte, len(n.content)), 0, n.stored)
			for _, w := range n.writes {
				n.content = put(n.content, w.at, w.data)
			}
		}
		return fmt.Errorf("sync: %w", syscall.EIO)
	}
	if m.wrong != noSync {
		if part {
			until = m.stage.Random.IntN(until + 1)
		}
		for _, w := range h.inode.writes[:until] {
			h.inode.stored = put(h.inode.stored, w.at, w.data)
		}
		h.inode.writes = h.inode.writes[until:]
	}
	if part {
		m.process.Kill()
	}
	return nil
}

func (h *handle) Size() (int64, error) { return int64(len(h.inode.content)), nil }
func (h *handle) Close() error         { return nil }
