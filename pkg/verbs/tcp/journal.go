package tcp

import (
	"encoding/binary"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
)

// Sessions of a server with a journal. The protocol stands at verbs.Journal, whose steps are named
// here. A session that waits for a copy, for room or before it answers, is cut as one that waits
// for its client is.

// recorded reports whether r is a change that the journal records.
func (r *request) recorded(j *verbs.Journal) bool {
	return (r.Op == verbs.Write || r.Op.Atomic()) && j.Recorded(r.Region, r.Remote, r.length)
}

// begin is beginCheck where there is a journal. Where the list has changes that are recorded, it
// takes the order first (step 1), which may wait. If the journal's mode is another one behind the
// begin of the check, Settle may have passed this session by meanwhile, so the list begins anew.
func (s *session) begin(list []request) error {
	for {
		mode := s.journal.Mode()
		if mode.Halted() {
			return verbs.ErrHalted
		}
		if mode.Records() {
			if err := s.takeOrder(list); err != nil {
				return err
			}
		}
		s.beginCheck()
		if s.journal.Mode() == mode {
			return nil
		}
		s.endCheck()
		s.giveOrder()
	}
}

// end is endCheck behind begin (step 4), and notes what the answer depends on besides changes of
// the list (step 5).
func (s *session) end(list []request) {
	s.endCheck()
	s.giveOrder()
	s.found(list)
}

func (s *session) takeOrder(list []request) error {
	n := 0
	for i := range list {
		if r := &list[i]; r.recorded(s.journal) {
			n += verbs.ItemBytes(r.length)
		}
	}
	if n == 0 {
		return nil
	}
	err := s.journal.Begin(s.waiter, n)
	s.ordered = err == nil
	return err
}

func (s *session) giveOrder() {
	if s.ordered {
		s.ordered = false
		s.journal.Done()
	}
}

// leaveOrder is called when nothing of s is executed any more.
func (s *session) leaveOrder() {
	if s.ordered { // a panic came in between
		s.journal.Abandon()
	}
}

// record records r, which is applied next, if that changes anything that is recorded (step 2).
func (s *session) record(r *request) {
	if r.recorded(s.journal) {
		s.need = max(s.need, recordChange(s.journal, s.space, &r.Request))
	}
}

// recordChange makes an item of a change that follows. The caller has the order, so that the word
// of an atomic stays as it is until then. An atomic that changes nothing has no item.
func recordChange(j *verbs.Journal, space *mapped.Space, r *verbs.Request) (p verbs.Position) {
	if r.Op == verbs.Write {
		p = j.Record(r.Remote, r.Local)
	} else {
		var word [8]byte
		_ = space.Read(r.Region, r.Remote, word[:]) // it is within the region
		old := binary.NativeEndian.Uint64(word[:])
		now := r.Outcome(old)
		if now == old {
			return 0
		}
		binary.NativeEndian.PutUint64(word[:], now)
		p = j.Record(r.Remote, word[:])
	}
	mapped.KeepOrder()
	return p
}

// found notes what the answer to a list depends on that READ or compared something (step 5).
func (s *session) found(list []request) {
	if !s.journal.Mode().Records() {
		return
	}
	mapped.KeepOrder()
	for i := range list {
		if r := &list[i]; r.Op != verbs.Write {
			s.saw(r.Region, r.Remote, r.length)
		}
	}
}

// saw notes that an answer says what lay in n bytes.
func (s *session) saw(region verbs.RegionID, remote uint64, n int) {
	if s.journal.Recorded(region, remote, n) {
		s.need = max(s.need, s.journal.Seen(remote, n))
	}
}

// mirrored is a server with a journal. Its own process changes words of atomics through it, so that
// these changes are recorded.
type mirrored struct {
	*server
	space   *mapped.Space
	journal *verbs.Journal
}

var (
	_ verbs.LocalAtomics = &mirrored{}
	_ verbs.LocalReads   = &mirrored{}
	_ verbs.Checked      = &mirrored{}
	_ verbs.Answering    = &mirrored{}
)

// CompareSwap implements verbs.LocalAtomics. It does not wait for room in the journal: the server
// calls it under the lock of its accounts. The copy has the change when it has all up to the
// journal's Last.
func (m *mirrored) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (old uint64, err error) {
	r := verbs.Request{Op: verbs.CompareSwap, Region: region, Remote: remote, Compare: compare, Swap: swap}
	if region > verbs.RegionLocks || remote%8 != 0 || !m.space.Contains(region, remote, 8) {
		return 0, verbs.ErrOutOfRange
	}
	if m.journal.Recorded(region, remote, 8) {
		// also while nothing is recorded: there is no check here that Settle waits for
		if err := m.journal.BeginNow(verbs.ItemBytes(8)); err != nil {
			return 0, err
		}
		defer m.journal.Done()
		recordChange(m.journal, m.space, &r)
	}
	old, _ = m.space.CompareSwap(&r)
	return old, nil
}

// ReadLocal implements verbs.LocalReads.
func (m *mirrored) ReadLocal(region verbs.RegionID, remote uint64, dst []uint64) error {
	if remote%8 != 0 {
		return verbs.ErrOutOfRange
	}
	return m.space.Read(region, remote, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 8*len(dst)))
}
