package pool

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// RepairTable and RepairRecords are how large the buffers of RepairAll should be: for 8,192 locks
// and their records. The default table of 131,072 locks, all of which say Repair, takes 32 round
// trips then; with buffers of a node it was 0.4 s on a busy machine.
const (
	RepairTable   = 2 * 8192
	RepairRecords = repairBytes * 8192
)

// RepairAll brings to an end, on all servers, what clients left half done that are fenced by now;
// what others are repairing is done when it returns. So it is for who changes nodes without their
// locks, as their only user: a repair that came later would undo such a change. table, records and
// node are buffers of the session: for locks, 2 bytes each, a multiple of 8; for repair records, at
// least one; and for a part of a node. Each READ of locks or of records, and each repair, is an
// operation of the session.
//
// Records are READ many at once, those of locks that are not free: behind a memory server that came
// back, or that another copy took the place of, all locks say Repair, and hardly any has something
// to repair. Requests wait meanwhile.
func (s *Session) RepairAll(table, records, node []byte) error {
	for i, srv := range s.pool.members() {
		for from := uint64(0); from < srv.grant.Locks; from += uint64(len(table) / 2) {
			part := table[:min(uint64(len(table)), 2*(srv.grant.Locks-from))]
			s.Begin()
			s.queueTo(i, verbs.Request{Op: verbs.Read, Region: verbs.RegionLocks, Remote: srv.grant.LockOffset + 2*from, Local: part})
			if err := s.Post(); err != nil {
				return fmt.Errorf("repair all: read the locks of memory server %d: %w", srv.id, err)
			}
			for k := 0; k < len(part)/2; k += len(records) / repairBytes {
				if err := s.repairSome(i, uint32(from), part, k, records, node); err != nil {
					return err
				}
			}
		}
	}
	s.End()
	return nil
}

// repairSome repairs what locks guard from the k-th of a part of the table on, as many as there
// is room for records. The part begins with lock number from of a server.
func (s *Session) repairSome(server int, from uint32, part []byte, k int, records, node []byte) error {
	n := min(len(records)/repairBytes, len(part)/2-k)
	taken := func(i int) bool {
		word := binary.NativeEndian.Uint64(part[i/locksPerWord*8:])
		return word>>(i%locksPerWord*lockBits)&lockMask != 0
	}
	for n > 0 && !taken(k) {
		k, n = k+1, n-1
	}
	for n > 0 && !taken(k+n-1) {
		n--
	}
	if n == 0 {
		return nil
	}
	first := &tableLock{server: server, index: from + uint32(k)}
	s.Begin()
	s.Read(s.pool.recordOf(first), records[:n*repairBytes])
	if err := s.Post(); err != nil {
		return fmt.Errorf("repair all: read the repair records of memory server %d: %w", s.pool.servers()[server].id, err)
	}
	var found []uint32 // hardly ever is there any
	for i := range n {
		var r record
		if taken(k+i) && r.decode(records[i*repairBytes:]) && r.image != Nil {
			found = append(found, from+uint32(k+i))
		}
	}
	for _, index := range found {
		if err := s.repairOne(&tableLock{server: server, index: index}, node); err != nil {
			return fmt.Errorf("repair all: %w", err)
		}
	}
	return nil
}

// repairOne acquires the lock that guards what the record of l is about, if there is one. The
// record is READ once more, within the operation that follows its address: the node of a record
// from an earlier operation may have been freed since.
func (s *Session) repairOne(l *tableLock, node []byte) error {
	s.Begin()
	s.Read(s.pool.recordOf(l), s.record)
	if err := s.Post(); err != nil {
		return err
	}
	var r record
	if !r.decode(s.record) || r.image == Nil {
		return nil
	}
	if err := s.Lock(r.node, node); err != nil {
		return err
	}
	return s.PostUnlock()
}
