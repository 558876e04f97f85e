//env:real files are of the machine

package memserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env"
)

// fileStore keeps the ledger in the file of that path.
type fileStore string

// Save implements core.Store. Nothing is flushed to a device: the ledger must outlive the process,
// not the machine, whose restart the region does not outlive either (see bootID).
func (s fileStore) Save(b []byte) error {
	temporary := string(s) + ".new"
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, string(s))
}

// openAccounts starts from a new ledger, or from the one in dir if the region was found with
// content. dir = "" keeps the ledger in memory only.
func openAccounts(e env.Env, dir string, r *region) (*core.Accounts, error) {
	shape := ledger.Shape{
		Incarnation: r.incarnation, ChunkBytes: r.chunkBytes, Chunks: r.chunks(), Slots: superblockSlots, Locks: r.lockBytes / 2,
	}
	if r.journal != nil { // of a new region
		s := &journaled{journal: r.journal}
		if dir != "" {
			s.local = fileStore(filepath.Join(dir, ledgerFile))
		}
		return core.NewAccounts(e, s, shape)
	}
	if dir == "" {
		return core.NewAccounts(e, nil, shape)
	}
	path := filepath.Join(dir, ledgerFile)
	if !r.existed {
		return core.NewAccounts(e, fileStore(path), shape)
	}
	const advice = "without its ledger the region cannot be used: start again with empty data and state directories"
	stored, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the region is there, its ledger is not: %w; %s", err, advice)
	}
	a, err := core.FoundAccounts(e, fileStore(path), stored)
	if errors.Is(err, ledger.ErrVersion) {
		return nil, fmt.Errorf("ledger %s: %w; run the program that wrote it, or drain the server and start again with empty directories", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w; %s", path, err, advice)
	}
	var have ledger.Shape
	if a.Read(func(l *ledger.Ledger) { have = l.Shape() }); have != shape {
		return nil, fmt.Errorf("ledger %s is of another region: it has %+v, the region %+v; %s", path, have, shape, advice)
	}
	return a, nil
}
