// Package guard lets a process prove that the one before it is dead.
package guard

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// held are the directories that this process locked. They stay open until it ends: there is no way to give a lock back.
var held []*os.File

// ErrInUse is returned when another process has the lock.
var ErrInUse = errors.New("another process of this server still runs")

// again is how long to wait between attempts.
const again = 20 * time.Millisecond

// Take locks a directory (flock), and waits for that for at most limit. The kernel frees such a lock when the last thread of its process has ended, however it ended, and not before. So whoever
// gets it knows that no thread of an earlier holder will ever run again; a process that hangs in the kernel, is stopped or frozen still has it. It is the directory
// itself that is locked, not a file in it, so nobody can put another one in its place while the directory is mounted.
//
// The directory must be on the machine of all the processes that the lock stands for: an emptyDir of their pod. Take is not safe for concurrent use.
func Take(path string, limit time.Duration) error {
	dir, err := os.Open(path) // it is closed on exec, so no child inherits the lock
	if err != nil {
		return fmt.Errorf("guard directory: %w", err)
	}
	info, err := dir.Stat()
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	for end := time.Now().Add(limit); err == nil; time.Sleep(again) {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			held = append(held, dir)
			return nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			err = nil
			if time.Now().After(end) {
				err = fmt.Errorf("%w, and has it locked: end it, or give this one a directory of its own", ErrInUse)
			}
		}
	}
	_ = dir.Close() // nothing is lost
	return fmt.Errorf("guard directory %s: %w", path, err)
}
