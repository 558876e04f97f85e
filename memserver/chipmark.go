//env:real files are of the machine

package memserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
)

// The lock region in the NIC's own memory ends with the process: an orderly end copies it back into
// its file, a crash does not. So a file says that the region is there, or was when the process
// died:
//
//  1. a process that starts and finds the mark turns all locks of all indexes to REPAIR, in the
//     file, then takes the mark away;
//  2. it sets the mark, then has the provider put the region into the NIC;
//  3. at its end, the provider copies the region back, then the mark is taken away.
//
// Why 1 is right: with the process all its queue pairs ended, so nothing takes effect any more of
// who held a lock; a session whose queue pair died with a lock gives its client up. What it was
// about stands in the repair record, which is in the data region; who takes a lock that says REPAIR
// brings that to an end, and finds nothing to do where there was no holder. A crash before the end
// of 2 or after the beginning of 3 costs nothing but that look.
type chipMark string // path of the file; empty = memory that ends with the process in any case

// markFile is the name of the mark, in the state directory.
const markFile = "dmindex.onchip"

func markIn(dir string) chipMark {
	if dir == "" {
		return ""
	}
	return chipMark(filepath.Join(dir, markFile))
}

func (m chipMark) set() error {
	if m == "" {
		return nil
	}
	if err := os.WriteFile(string(m), nil, 0o600); err != nil {
		return fmt.Errorf("note that locks lie in the NIC: %w", err)
	}
	return nil
}

func (m chipMark) found() bool {
	_, err := os.Stat(string(m))
	return m != "" && err == nil
}

func (m chipMark) clear() error {
	if m == "" {
		return nil
	}
	if err := os.Remove(string(m)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("note that no locks lie in the NIC: %w", err)
	}
	return nil
}

// recoverLocks does step 1.
func recoverLocks(m chipMark, locks []byte, l *ledger.Ledger) (turned uint64, err error) {
	if !m.found() {
		return 0, nil
	}
	return region.TurnLocks(locks, l), m.clear()
}
