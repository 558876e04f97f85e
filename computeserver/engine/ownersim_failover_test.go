package engine

import (
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// Fail-overs: in half of the runs each memory server has a copy, with its ledger and its data
// region, and a server that dies is replaced by it. See package poolsim.

// mirror gives a process of a memory server a copy.
func (w *ownWorld) mirror(m *memoryServer) {
	if !sim.Mirrors(w.Seed()) {
		return
	}
	m.disk.Record = m.half.Record
	m.half.Keep(sim.Mirror{
		Recorded: func(region verbs.RegionID, _ uint64) bool { return region == verbs.RegionData },
		Opened: func() {
			for i := range m.memory[1].Bytes[:2*ownLocks] {
				m.memory[1].Bytes[i] = pool.Repair & 0xff
			}
		},
	})
}

// die ends the process of a memory server. If that has a copy, the copy takes its place, and owners
// may hear of it late.
func (w *ownWorld) die(m *memoryServer) {
	if m.half != nil && m.half.Mirrored() {
		m.half.FailOver(w.UpTo(ownLease))
	} else {
		m.process.Kill()
	}
}

// record notes how to take back what the judge knows of a change of a ledger, should the copy of
// the server not have it.
func (m *memoryServer) record(undo func()) {
	if m.half != nil {
		m.half.Record(undo)
	}
}
