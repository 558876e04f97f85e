//env:real files are of the machine

package memserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
)

// ledgerFile is the ledger, in the state directory.
const ledgerFile = "dmindex.ledger"

// fileStore keeps the ledger in the file of that path.
type fileStore string

// Save implements core.Store. Nothing is flushed to a device: the ledger must outlive the process,
// not the machine, whose restart the region does not outlive either (see BootID).
func (s fileStore) Save(b []byte) error {
	temporary := string(s) + ".new"
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, string(s))
}

// noLedger is what to do without the ledger of a region.
const noLedger = "without its ledger the region cannot be used: start again with empty data and state directories"

// readLedger reads the ledger that is stored in a state directory beside a region.
func readLedger(dir string) ([]byte, error) {
	stored, err := os.ReadFile(filepath.Join(dir, ledgerFile))
	if err != nil {
		return nil, fmt.Errorf("the region is there, its ledger is not: %w; %s", err, noLedger)
	}
	return stored, nil
}

// ledgerPath is the path of the ledger's file; there is a state directory.
func (s *Server) ledgerPath() string { return filepath.Join(s.stateDir, ledgerFile) }

// openAccounts starts from a new ledger or, if the region was found with content, from the one in
// the state directory; taken is that of a copy whose content was taken, which the directory has as
// well. Without a directory the ledger is kept in memory only.
func (s *Server) openAccounts(e env.Env, taken []byte) (*core.Accounts, error) {
	dir, r := s.stateDir, s.region
	var store core.Store
	if dir != "" {
		store = fileStore(s.ledgerPath())
	}
	if r.Journal != nil {
		s.mirrored = &journaled{local: store, journal: r.Journal}
		store = s.mirrored
	}
	if !r.Existed {
		return core.NewAccounts(e, store, r.Shape())
	}
	stored, err := taken, error(nil)
	if stored == nil {
		if stored, err = readLedger(dir); err != nil {
			return nil, err
		}
	}
	if s.mirrored != nil {
		s.mirrored.last = bytes.Clone(stored)
	}
	path := filepath.Join(dir, ledgerFile)
	a, err := core.FoundAccounts(e, store, stored)
	if errors.Is(err, ledger.ErrVersion) {
		return nil, fmt.Errorf("ledger %s: %w; run the program that wrote it, or drain the server and start again with empty directories", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w; %s", path, err, noLedger)
	}
	var have ledger.Shape
	if a.Read(func(l *ledger.Ledger) { have = l.Shape() }); have != r.Shape() {
		return nil, fmt.Errorf("ledger %s is of another region: it has %+v, the region %+v; %s", path, have, r.Shape(), noLedger)
	}
	return a, nil
}
