package memserver

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/core"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// A server with a copy (verbs.Journal) has all that it changes by itself in the same stream as what
// its clients change:
//
//   - The ledger (journaled): an item behind each Save, so that what is in the stream was stored.
//     It is recorded before the owners of chunks change, and before anybody hears of the change.
//     One item has all of a change, so a copy has the ledger of before or of behind it. A change
//     that is too wide for an item ends the copies of now: it is not refused, since what is given
//     back never is, and another copy joins.
//   - Zeroes of what was given back (package region): recorded while nobody has the chunk. Who gets
//     it next hears of that by an answer that waits for the grant, which comes behind the zeroes.
//   - Lock words of a sweep, by the provider's verbs.LocalAtomics.
//
// The header page, the lock table and the presence words are not in the stream: a copy that opens
// writes its own header, turns all locks to REPAIR and clears the words.
//
// # Answers of the control service
//
// An answer says what the ledger says, so it waits for the ledger's last change (service.mirrored),
// errors too. That covers the memory that it tells of: a chunk is granted, and a place given, in
// the ledger behind their zeroes, and a client leaves the epochs, which Renew tells others, behind
// the change that refuses it. An answer does not wait for what clients write meanwhile: renewals
// would stand behind a bulk load. Fence alone waits for all that was recorded, since the ledger
// does not store when its sweep is over.
//
// Nothing waits for the copy under the lock of the accounts: changes of the ledger and of a sweep
// have the reserve of the window, and fail where that is full, as they do where a disk is.

// openJournal makes the journal of a server whose clients' changes all pass through it.
func (s *Server) openJournal(c *Config) {
	if c.Fabric != "" && c.Shm == "" && c.RDMA == "" {
		s.region.Journal = verbs.NewJournal(c.env, func(p verbs.Position) bool { return s.volume.member.MayAnswer(uint64(p)) }, s.region.Unrecorded()...)
	}
}

// journaled is a core.Store whose ledger is in a journal, too.
type journaled struct {
	local   core.Store // nil = it is stored nowhere else
	journal *verbs.Journal
	last    []byte // what was stored last; copies that are not given up have it
	edits   []byte // of the last change
}

// spareBytes is room in the journal that a ledger's change leaves, for lock words of sweeps that
// come in between.
const spareBytes = 1 << 20

// Save implements core.Store. The room in the journal is looked at first, so that what was stored
// can be recorded: other changes that use the reserve are made under the lock of the accounts, as
// this one, or are short.
func (s *journaled) Save(b []byte) error {
	head, tail := common(s.last, b)
	data, fits := s.changes(s.last[head:len(s.last)-tail], b[head:len(b)-tail])
	if fits {
		if err := s.journal.BeginNow(verbs.ItemBytes(len(data)) + spareBytes); err != nil {
			return err
		}
		s.journal.Done()
	}
	if s.local != nil {
		if err := s.local.Save(b); err != nil {
			return err
		}
	}
	err := errTooWide
	if fits {
		err = s.journal.BeginNow(verbs.ItemBytes(len(data)))
	}
	if err != nil {
		// it was made; no answer goes out any more that may tell of it, until none of these copies
		// is waited for. Those that join later get it
		s.journal.Break(fmt.Errorf("a change of the ledger was stored and cannot be recorded: %w", err))
	} else {
		s.journal.Edit(head, tail, data)
		s.journal.Done()
	}
	s.last = append(s.last[:0], b...)
	return nil
}

// errTooWide is why a change of the ledger ends its copies.
var errTooWide = fmt.Errorf("more than %d bytes of it change at once", verbs.MaxItem)

// changes are the edits that make now of old, in the place of those of the change before. They do
// not fit if they are longer than an item may be: if an index goes that has chunks all over a large
// memory, each beside another one's. While nothing is recorded there are none. They are
// recorded nevertheless if a copy begins to join meanwhile: it passes them over until its ledger is
// Known, which comes by sendLedger, under the lock that is held here, behind this change.
func (s *journaled) changes(old, now []byte) (edits []byte, fit bool) {
	if !s.journal.Mode().Records() {
		return nil, true
	}
	s.edits, fit = verbs.AppendEdits(s.edits[:0], old, now, verbs.MaxItem)
	return s.edits, fit
}

// common is how many bytes two ledgers have in common at their begin, and behind that at their end.
func common(a, b []byte) (head, tail int) {
	n := min(len(a), len(b))
	for head < n && a[head] == b[head] {
		head++
	}
	for tail < n-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return head, tail
}

// free are the methods whose answers say nothing of ledger or memory.
var free = map[string]bool{
	healthv1.Health_Check_FullMethodName: true, healthv1.Health_List_FullMethodName: true,
	rpcv1.Volume_Report_FullMethodName: true, rpcv1.Volume_Obey_FullMethodName: true, rpcv1.Volume_Join_FullMethodName: true,
	rpcv1.Volume_Stop_FullMethodName: true, rpcv1.Volume_AwaitView_FullMethodName: true,
}

// mirrored lets an answer out when the copy has what it depends on. A caller that is gone waits no
// more.
func (c *service) mirrored(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	reply, err := next(ctx, request)
	j := c.region.Journal
	if j == nil || free[info.FullMethod] {
		return reply, err
	}
	need := j.Ledger()
	if info.FullMethod == rpcv1.Memory_Fence_FullMethodName {
		need = j.Last()
	}
	if j.Ready(need) {
		return reply, err
	}
	w := j.NewWaiter()
	defer context.AfterFunc(ctx, w.Cut)()
	if lost := j.Wait(w, need); lost != nil {
		return nil, status.Error(codes.Unavailable, lost.Error()+"; whether the call took effect is not known: ask again")
	}
	return reply, err
}
