package pool

import (
	"encoding/binary"
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// RepairAll brings to an end, on all servers, what clients left half done that are fenced by now;
// what others are repairing is done when it returns. So it is for who changes nodes without their
// locks, as their only user: a repair that came later would undo such a change. table and room are
// buffers of the session: for locks, 2 bytes each, a multiple of 8; and for a part of a node. Each
// READ of locks, and each lock that has a repair record, is an operation of the session.
func (s *Session) RepairAll(table, room []byte) error {
	for i, srv := range s.pool.members() {
		for from := uint64(0); from < srv.grant.Locks; from += uint64(len(table) / 2) {
			part := table[:min(uint64(len(table)), 2*(srv.grant.Locks-from))]
			s.Begin()
			s.queueTo(i, verbs.Request{Op: verbs.Read, Region: verbs.RegionLocks, Remote: srv.grant.LockOffset + 2*from, Local: part})
			if err := s.Post(); err != nil {
				return fmt.Errorf("repair all: read the locks of memory server %d: %w", srv.id, err)
			}
			for k := range len(part) / 2 {
				word := binary.NativeEndian.Uint64(part[k/locksPerWord*8:])
				if word>>(k%locksPerWord*lockBits)&lockMask == 0 {
					continue
				}
				if err := s.repairOne(&tableLock{server: i, index: uint32(from) + uint32(k)}, room); err != nil {
					return fmt.Errorf("repair all: %w", err)
				}
			}
		}
	}
	s.End()
	return nil
}

// repairOne acquires the lock that guards what the record of l is about, if there is one.
func (s *Session) repairOne(l *tableLock, room []byte) error {
	s.Begin()
	s.Read(s.pool.recordOf(l), s.record)
	if err := s.Post(); err != nil {
		return err
	}
	var r record
	if !r.decode(s.record) || r.image == Nil {
		return nil
	}
	if err := s.Lock(r.node, room); err != nil {
		return err
	}
	return s.PostUnlock()
}
