//env:real the store runs goroutines of its own

package memserver

import (
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Sources of the checkpoints of a directory: of a server that serves (persisted), and of a copy
// (copyFiles).

// Last implements persist.Source.
func (p *persisted) Last() verbs.Position { return p.server.region.Journal.Last() }

// Flush implements persist.Source.
func (p *persisted) Flush(to verbs.Position) error { return p.feed.Follow(p.waiter, to, flushLimit) }

// Pieces implements persist.Source.
func (p *persisted) Pieces(f func(at, n uint64) bool) {
	r := p.server.region
	b := make([]byte, region.PieceBytes)
	r.SpansFrom(0, func(at, n uint64) bool { return r.ReadPiece(at, b[:n]) || f(at, n) })
}

// Copy implements persist.Source.
func (p *persisted) Copy(at uint64, b []byte) (verbs.Position, error) {
	j := p.server.region.Journal
	if err := j.Begin(p.waiter, 0); err != nil {
		return 0, err
	}
	defer j.Done()
	p.server.region.Read(at, b)
	return j.Last(), nil
}

// Ledger implements persist.Source.
func (p *persisted) Ledger(b []byte) (all []byte, at verbs.Position, known bool) {
	s := p.server
	s.control.Accounts.Read(func(*ledger.Ledger) {
		all, at = append(b, s.mirrored.last...), s.region.Journal.Last()
	})
	return all, at, true
}

// copyFiles are the files of a copy, which has what its sink has applied.
type copyFiles struct{ *persisted }

// BeginCopy implements mirror.Log.
func (p copyFiles) BeginCopy(start verbs.Position) error {
	if err := p.makeEmpty(); err != nil {
		return err
	}
	store := p.store.Load()
	if err := store.BeginCopy(start); err != nil {
		return err
	}
	p.running.Go(store.RunSync)
	p.running.Go(func() { store.RunCheckpoints(p) })
	return nil
}

// Take implements mirror.Log.
func (p copyFiles) Take(at verbs.Position, items []byte) (bool, error) {
	return p.store.Load().Take(at, items)
}

// Sync implements mirror.Log.
func (p copyFiles) Sync(ledger bool) error { return p.store.Load().SyncTaken(ledger) }

// Last implements persist.Source.
func (p copyFiles) Last() verbs.Position { return p.store.Load().Taken() }

// Flush implements persist.Source: what was taken is written.
func (p copyFiles) Flush(verbs.Position) error { return nil }

// Copy implements persist.Source. What was taken is applied, whenever the sink can be looked at.
func (p copyFiles) Copy(at uint64, b []byte) (taken verbs.Position, err error) {
	p.server.volume.sink.Look(func(*verbs.Replica) {
		p.server.region.Read(at, b)
		taken = p.store.Load().Taken()
	})
	return taken, nil
}

// Ledger implements persist.Source.
func (p copyFiles) Ledger(b []byte) (all []byte, at verbs.Position, known bool) {
	p.server.volume.sink.Look(func(r *verbs.Replica) {
		all, at, known = append(b, r.Ledger...), p.store.Load().Taken(), r.Known
	})
	return all, at, known
}
