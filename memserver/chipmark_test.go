package memserver

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/dmindex/dmindex/memserver/ledger"
)

// TestChipMark: after a crash with the locks in the NIC every lock of every index says REPAIR, and
// no other one; after an orderly end none does.
func TestChipMark(t *testing.T) {
	l, err := ledger.New(ledger.Shape{Incarnation: 1, ChunkBytes: 1 << 20, Chunks: 8, Slots: 8, Locks: 64})
	if err != nil {
		t.Fatal(err)
	}
	for index, locks := range map[string]uint64{"a": 8, "b": 4} {
		if _, err := l.Admit(index, 1, locks); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	table := make([]byte, 128)
	f := func(name string, m chipMark, want uint64) {
		t.Helper()
		clear(table)
		turned, err := recoverLocks(m, table, l)
		if err != nil || turned != want {
			t.Errorf("%s: %d locks, %v; want %d", name, turned, err, want)
		}
		set := 0
		for n := range table {
			if table[n] == 0xff && uint64(n) < 2*12 {
				set++
			} else if table[n] != 0 {
				t.Errorf("%s: byte %d is %#x", name, n, table[n])
			}
		}
		if uint64(set) != 2*want {
			t.Errorf("%s: %d bytes are set", name, set)
		}
	}
	m := markIn(dir)
	f("new", m, 0)
	if err := m.set(); err != nil {
		t.Fatal(err)
	}
	f("after a crash", m, 12)
	f("after that", m, 0)
	if err := errors.Join(m.set(), m.clear(), m.clear()); err != nil {
		t.Fatal(err)
	}
	f("after an orderly end", m, 0)
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := errors.Join(markIn("").set(), markIn("").clear()); err != nil || markIn("").found() {
		t.Errorf("memory that does not last: %v", err)
	}
	if err := chipMark(filepath.Join(dir, "none", "mark")).set(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a mark that cannot be set: %v", err)
	}
}
