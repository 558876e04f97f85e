// Package guard lets a process prove that clients of the one before it are dead.
package guard

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/memserver/persist"
)

// A process locks a directory and writes into it which clients it has, with the identity of its
// kernel. The next process that gets the lock reads that. A client is confirmed dead if
//
//  1. it stands in the directory. So its process saw this directory, and held the lock when it
//     wrote;
//  2. it was written under this kernel: the boot ID is the same, and the directory is on a file
//     system whose locks this kernel keeps. So both processes asked one kernel for one lock.
//
// Then its process has lost the lock, which the kernel frees when the last thread of the process
// has ended, however it ended, and not before. No thread of it runs again. A process that hangs in
// the kernel, is stopped or frozen still has the lock.
//
// Where a pod has a kernel of its own one of the two does not hold, and nothing is confirmed:
//
//   - A sandbox that is started anew (Kata, gVisor) has another kernel. What an emptyDir in memory
//     had went with the old one, which may still run: 1 fails. A directory of the host is there
//     again, but the new kernel has another boot ID: 2 fails.
//   - A directory of the host, seen through virtiofs, 9p, a FUSE file system or NFS: the lock may
//     be this kernel's alone. 2 fails, at once.
//   - A container that is started anew in the same sandbox has the same kernel and the same
//     directory: its clients are confirmed.
//
// What is taken for granted is that kernels which run at the same time have different boot IDs, or
// do not share a directory. Machines that were cloned while they ran, this process in them, break
// that, and everything else that a process believes of itself.

// held are the directories that this process locked. They stay open until it ends: there is no way
// to give a lock back.
var held []*os.File

// ErrInUse is returned when another process has the lock.
var ErrInUse = errors.New("another process of this server still runs")

const (
	record  = "clients"
	mostOld = 24 << 10 // bytes of a record that is written on; a longer one begins anew
)

// Guard is a directory that this process locked. It is not safe for concurrent use.
type Guard struct {
	useless   error
	kernel    string
	file      *os.File
	confirmed map[client]bool
}

type client struct {
	identity string
	number   uint32
}

// Take locks a directory (flock), and waits for that for at most limit. It is the directory itself
// that is locked, not a file in it, so nobody can put another one in its place while the directory
// is mounted. Take is not safe for concurrent use.
//
// The directory must belong to the processes that the lock stands for, which run one after the
// other: an emptyDir of their pod. What cannot be confirmed with it, Useless says.
func Take(path string, limit time.Duration) (*Guard, error) {
	dir, err := os.Open(path) // it is closed on exec, so no child inherits the lock
	if err != nil {
		return nil, fmt.Errorf("guard directory: %w", err)
	}
	info, err := dir.Stat()
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err == nil {
		err = persist.Lock(dir, limit, func() {})
	}
	if errors.Is(err, persist.ErrInUse) {
		err = fmt.Errorf("%w, and has it locked: end it, or give this one a directory of its own", ErrInUse)
	}
	if err != nil {
		_ = dir.Close() // nothing is lost
		return nil, fmt.Errorf("guard directory %s: %w", path, err)
	}
	held = append(held, dir)
	g := &Guard{confirmed: map[client]bool{}}
	g.useless = g.open(dir)
	return g, nil
}

// Useless is why nothing can be confirmed with the directory, nil if it can.
func (g *Guard) Useless() error { return g.useless }

// open reads who had the directory before.
func (g *Guard) open(dir *os.File) (err error) {
	var fs unix.Statfs_t
	if err = unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return err
	}
	if !kernelsOwn(int64(fs.Type)) {
		return fmt.Errorf("its file system (type %#x) may be shared with other kernels, whose locks are not seen here; use an emptyDir in memory", fs.Type)
	}
	boot, err := os.ReadFile(bootID)
	if g.kernel = strings.TrimSpace(string(boot)); err != nil || g.kernel == "" {
		return fmt.Errorf("this kernel has no boot ID (%s): it cannot be told from others", bootID)
	}
	if g.file, err = os.OpenFile(filepath.Join(dir.Name(), record), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	held = append(held, g.file)
	return g.read()
}

// bootID is a file of which each start of a kernel makes another one.
var bootID = "/proc/sys/kernel/random/boot_id"

// kernelsOwn reports whether only one kernel at a time has a file system of a type mounted, and
// keeps its locks. Overlays are not among them: those of two containers are two.
func kernelsOwn(kind int64) bool {
	switch kind {
	case unix.TMPFS_MAGIC, unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC:
		return true
	}
	return false
}

// read learns which clients earlier processes noted under this kernel.
func (g *Guard) read() error {
	lines := bufio.NewReader(g.file)
	size := 0
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // a line without an end was cut short with its process
			break
		}
		size += len(line)
		if part := strings.Split(strings.TrimSuffix(line, "\n"), " "); len(part) == 3 && part[0] == g.kernel {
			if n, err := strconv.ParseUint(part[1], 10, 32); err == nil {
				g.confirmed[client{part[2], uint32(n)}] = true
			}
		}
	}
	if size > mostOld {
		return g.file.Truncate(0) // a client that is missing here costs its lease, no more
	}
	return nil
}

// Note implements pool.Guard.
func (g *Guard) Note(identity string, number uint32) error {
	// the first newline ends what was cut short
	if _, err := fmt.Fprintf(g.file, "\n%s %d %s\n", g.kernel, number, identity); err != nil {
		return err
	}
	g.confirmed[client{identity, number}] = true
	return nil
}

// Confirms implements pool.Guard. Earlier clients of this process were closed or given up before it
// opened the next one.
func (g *Guard) Confirms(identity string, number uint32) bool {
	return g.confirmed[client{identity, number}]
}
