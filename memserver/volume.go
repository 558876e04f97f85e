//env:real gRPC and the mirror run goroutines of their own

package memserver

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// A server holds one copy of a volume. [volumes.Member] decides what the process is for it: whether
// it may serve. The server is the member's host.
//
// # Where a process begins
//
// What earlier processes of the pod stored says what the memory counts for:
//
//	stored                         the memory is   the process begins as
//	nothing, no pod is named       found or new    primary, in a view without a number
//	nothing, a pod is named        found           the same: an earlier program left it
//	nothing, a pod is named        new, empty      joining: a view or a primary comes to it
//	content nothing                emptied         joining
//	content taken                  found           primary: it prepares it, and serves
//	served, waits for nobody       found           primary
//	served beside another copy     found           stopped: the next view decides
//	of a lost memory               new, empty      as with nothing stored
//
// A memory without the file counts as an earlier program's only where its header page does not say
// that the volume has another copy. It says so from before it is stored that answers wait for
// another copy, until it is stored that they wait for nobody (Save).
//
// A memory that is to be found, and has another size than is configured, is refused: it may be the
// only copy.
//
// A memory is lost with the machine's run, and where its files are gone. What was stored beside it
// is then forgotten, but for the number of the process, so that no two processes of the pod have
// one. A volume of memory takes the file along, and its pod stays: so without a file numbers go on
// from the time, and not from 1 (numberByClock).
//
// # Opening
//
// A copy has no header page while it takes changes: a program that knows no copies makes a new
// memory of it, and never serves a part of one. When the member stores that the content is taken,
// the ledger is stored first. Preparing turns all locks of all indexes to REPAIR, clears presence
// words, and writes the header page, with the incarnation that the ledger has. Then the server
// opens as one that found its memory again: known clients have a whole lease, and unfinished fences
// are finished.
type volume struct {
	rpcv1.UnimplementedVolumeServer
	copying
	server *Server
	id     uint16 // 0 = it was not said
	file   fileOfVolume
	member *volumes.Member

	mu     sync.Mutex
	stored storedVolume // as it was saved last
	// told is what AwaitView tells of: the newest view that was obeyed. If that names this process,
	// it serves.
	told volumes.View
	// closed is when a copy began to open; waited is how long it then waited its last permission
	// out.
	closed time.Time
	waited time.Duration

	// ledger is that of the copy whose content was taken; nil = the state directory has it. Obeying
	// a view is done by one goroutine at a time.
	ledger []byte
}

// openVolume reads what was stored, finds or makes the memory that it speaks of, and begins the
// process.
func (s *Server) openVolume(c *Config, state string, data *region.Directory, want region.Header) (err error) {
	v := &volume{server: s, id: c.ID, file: volumeFileIn(state)}
	was, found, err := v.file.load()
	if err != nil {
		return err
	}
	if !found {
		was.State.Process = c.firstProcess - 1
	}
	forget := func() { // of a lost memory: nothing is found of any process before
		was.State = volumes.State{Process: was.State.Process, First: was.State.Process + 1}
	}
	boot := hex.EncodeToString(want.Boot[:])
	known := func(id string) bool { return id != hex.EncodeToString(make([]byte, 16)) }
	if found && was.Boot != boot && known(was.Boot) && known(boot) {
		forget()
		found = false // memory of this run beside it is of a program that knows no volumes
	}
	if was.State.Content == volumes.Taken && !data.HasRegion() {
		// stored before there is a new region, which a later process would take for the copy
		forget()
		if err := v.saveLocked(was); err != nil {
			return err
		}
	}
	as := region.AsFound
	switch {
	case found && was.State.Content == volumes.Nothing:
		as = region.AsNew
	case was.State.Content == volumes.Taken:
		as = region.AsTaken
	}
	if s.region, err = region.Open(data, want, as, s.log); err != nil {
		return err
	}
	s.release = append(s.release, s.region.Close)
	if !found && s.region.Existed && s.region.Shared {
		return fmt.Errorf("the region says that its volume has another copy, and the state of the volume, %s, is not there or of another run of the machine: nobody knows whether that copy serves; "+
			"if the other copy serves, start again with empty data and state directories (in Kubernetes: delete the pod); if not, put the file back", string(v.file))
	}
	if was.State.Content != volumes.Nothing && !s.region.Existed {
		forget()
	}
	if was.Pod == "" {
		was.Pod = c.Pod
	}
	if was.Pod == "" && was.State.View.Number == 0 || s.region.Existed && !found {
		was.State.Content = volumes.Served
	}
	if !found && !s.region.Existed {
		was.State.First = was.State.Process + 1
	}
	was.Boot = boot
	return v.begin(c, was)
}

// begin begins the process, with what was stored.
func (v *volume) begin(c *Config, was storedVolume) (err error) {
	v.stored, v.told, v.server.volume = was, was.State.View, v
	v.member, err = volumes.New(c.env, was.Pod, was.State, v)
	return err
}

// start lets a process serve at once that may.
func (v *volume) start() error {
	if v.stored.State.Alone() {
		if err := v.server.readPersist(); err != nil {
			return err
		}
	}
	if err := v.member.Start(); err != nil {
		return err
	}
	if v.member.Role() == volumes.Primary {
		return v.server.openContent()
	}
	r := v.member.Report()
	v.server.log.Info("this process waits for a view of its volume", "process", r.Proc.String(), "role", r.Role.String(), "view", r.View.Number)
	return nil
}

// Save implements volumes.Host.
func (v *volume) Save(st volumes.State) error {
	shared := st.Content != volumes.Nothing && !st.Alone()
	if shared {
		if err := v.noteShared(true); err != nil {
			return err
		}
	}
	if err := v.saveState(st); err != nil {
		return err
	}
	if st.Alone() {
		return v.noteShared(false)
	}
	return nil
}

// NoteShared notes whether the volume has another copy where programs look that know no volumes.
func (v *volume) noteShared(on bool) error {
	s := v.server
	s.mu.Lock() // the memory stays mapped
	defer s.mu.Unlock()
	if s.mu.closed {
		return errEnds
	}
	s.region.NoteShared(on)
	return nil
}

func (v *volume) saveState(st volumes.State) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.stored
	next.State = st
	if p := v.server.persisted; p != nil && st.Content != volumes.Nothing {
		// There are files before it is stored that they count: a process that found none would take
		// them for lost.
		if err := p.makeEmpty(); err != nil {
			return err
		}
	}
	if st.Content == volumes.Taken && v.stored.State.Content == volumes.Nothing {
		v.waited = time.Since(v.closed)
		if err := v.takeLedger(); err != nil {
			return err
		}
	}
	return v.saveLocked(next)
}

func (v *volume) saveLocked(next storedVolume) error {
	if err := v.file.save(&next); err != nil {
		return fmt.Errorf("store what this process is for its volume: %w", err)
	}
	v.stored = next
	return nil
}

// Prepare implements volumes.Host.
func (v *volume) Prepare() error {
	s := v.server
	s.mu.Lock() // the memory stays mapped
	defer s.mu.Unlock()
	if s.mu.closed {
		return errEnds
	}
	b, err := v.takenLedger()
	if err != nil {
		return err
	}
	l, err := ledger.Decode(b)
	if err != nil {
		return fmt.Errorf("the ledger of the copy: %w", err)
	}
	turned, err := s.region.Prepare(l)
	if err != nil {
		return err
	}
	failovers.Add(1)
	s.log.Info("the copy opens; whoever takes a lock repairs first what it guards", "locks", turned, "incarnation", s.region.Incarnation, "permission_waited_out_in", v.waited)
	return nil
}

// Durable implements volumes.Host.
func (v *volume) Durable() bool { return v.server.persisted != nil }

// MayLack implements volumes.Host.
func (v *volume) MayLack() bool { return v.server.persisted != nil && v.server.persisted.mayLack }

// Restore implements volumes.Host.
func (v *volume) Restore() error {
	err := v.server.persisted.restore()
	v.problem.set(err)
	return err
}

// takenLedger is the ledger of a copy whose content was taken.
func (v *volume) takenLedger() ([]byte, error) {
	if v.ledger != nil {
		return v.ledger, nil
	}
	return readLedger(v.server.stateDir)
}

// remember gives the pod of a server without one its name, and stores where copies are; nil = it
// is not said.
func (v *volume) remember(pod string, copies []*rpcv1.VolumeCopy) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.stored
	if next.Pod == "" {
		next.Pod = pod
	}
	if copies != nil {
		next.Copies = copies
	}
	if next.Pod == v.stored.Pod && slices.EqualFunc(next.Copies, v.stored.Copies, func(a, b *rpcv1.VolumeCopy) bool { return a.Pod == b.Pod && a.Control == b.Control }) {
		return nil
	}
	if err := v.saveLocked(next); err != nil {
		return err
	}
	v.member.Name(next.Pod)
	return nil
}
