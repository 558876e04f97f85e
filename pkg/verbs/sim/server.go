package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Server is a simulated memory server. It implements verbs.Server.
type Server struct {
	fabric   *Fabric
	process  *simenv.Process // that calls run in
	address  string
	o        verbs.ServerOptions
	regions  [verbs.RegionLocks + 1][]byte
	conns    []*conn
	closed   env.Event
	down     bool
	restarts int
	dying    bool  // its process dies with what is under way
	door     *door // nil = calls and admission run in the caller's process, and wait for nothing

	nic     nic
	chip    line
	buckets [buckets]*bucket // of those that were ever used
	cores   cores
	// words that an atomic has read and not yet written, with who waits behind it
	busy map[word]*part

	journal *journal       // nil = it has no copy
	late    *time.Duration // while it fails over: when its clients have heard of that
}

// word is a word of a region.
type word struct {
	region verbs.RegionID
	remote uint64
}

// NewServer makes a memory server, which accepts connections at once, and says where.
func (f *Fabric) NewServer(o verbs.ServerOptions) (*Server, string, error) {
	if o.Admission == nil {
		return nil, "", errors.New("sim server: Admission is required")
	}
	f.made++
	s, err := f.newServer(f.world.NewProcess("memory server"), fmt.Sprintf("sim-%d", f.made), o)
	if err != nil {
		return nil, "", err
	}
	return s, s.address, nil
}

func (f *Fabric) newServer(p *simenv.Process, address string, o verbs.ServerOptions) (*Server, error) {
	if o.Journal != nil {
		return nil, fmt.Errorf("sim server: a Journal; use Keep: %w", verbs.ErrUnsupported)
	}
	s := &Server{
		fabric: f, process: p, address: address, o: o.WithDefaults(),
		cores: make(cores, max(1, f.model.Cores)), busy: map[word]*part{}, closed: p.NewEvent(),
	}
	for _, m := range o.Memory {
		if m.ID > verbs.RegionLocks || len(m.Bytes) == 0 || s.regions[m.ID] != nil {
			return nil, fmt.Errorf("sim server: region %d of %d bytes: unknown, empty or given twice", m.ID, len(m.Bytes))
		}
		s.regions[m.ID] = m.Bytes
	}
	f.servers[s.address] = s
	if f.enemy != nil && f.enemy.plan.failsOver() {
		s.Keep(Mirror{})
	}
	return s, nil
}

// Serve implements verbs.Server. There is nothing to listen to: connections come as soon as the
// server is made.
func (s *Server) Serve(net.Listener) error {
	s.closed.Wait(env.Forever)
	return nil
}

// Disconnect implements verbs.Server.
func (s *Server) Disconnect(match func(verbs.Peer) bool) (n int) {
	if s.door != nil && s.fabric.world.Current() != nil {
		s.door.admitting.Lock()
		defer s.door.admitting.Unlock()
	}
	for _, c := range append([]*conn(nil), s.conns...) {
		if match(c.peer) {
			c.cut()
			n++
		}
	}
	return n
}

// Fence implements verbs.Server.
func (s *Server) Fence(match func(verbs.Peer) bool, _ time.Duration) error {
	s.Disconnect(match)
	return nil
}

// Close implements verbs.Server.
func (s *Server) Close() error {
	s.down = true
	if s.fabric.servers[s.address] == s {
		delete(s.fabric.servers, s.address)
	}
	s.Disconnect(func(verbs.Peer) bool { return true })
	s.closed.Set()
	return nil
}

// CompareSwap implements verbs.LocalAtomics. It waits for an atomic that is at work on the word, so
// a goroutine of the world calls it.
func (s *Server) CompareSwap(region verbs.RegionID, remote, compare, swap uint64) (old uint64, err error) {
	at, lives := word{region, remote}, s.restarts
	for try := 0; s.busy[at] != nil; try++ {
		p := s.fabric.world.Current().Process()
		if p.Dead() {
			return 0, fmt.Errorf("sim: compare-and-swap on %s: %w", s.address, verbs.ErrClosed)
		}
		if try < 100 {
			p.Yield()
		} else {
			p.Sleep(10 * time.Microsecond) // whose atomic it is stands still
		}
	}
	if s.restarts != lives && s.journal != nil { // who asks was of the process that died
		return 0, fmt.Errorf("sim: compare-and-swap on %s: %w", s.address, verbs.ErrClosed)
	}
	mem := s.regions[region][remote:]
	if old = binary.NativeEndian.Uint64(mem); old == compare {
		s.journal.record(nil, at, mem[:8], nil, 0, nil)
		binary.NativeEndian.PutUint64(mem, swap)
	}
	return old, nil
}

// Restart is what happens when the server's process dies and comes back: connections are cut, and
// with lost its regions are zero and it has another incarnation. A server that a process runs dies
// with it; who started the process starts another one.
func (s *Server) Restart(lost bool) {
	s.restarts++
	if s.door != nil {
		s.door.process.Kill()
		return
	}
	s.dies()
	s.Confirm() // a process that finds its content has all of it
	if lost {
		for _, b := range s.regions {
			clear(b)
		}
		s.o.Incarnation++
	}
}

// Restarts is how often Restart was called.
func (s *Server) Restarts() int { return s.restarts }

// Incarnation of the content.
func (s *Server) Incarnation() uint64 { return s.o.Incarnation }

// Address is where clients connect.
func (s *Server) Address() string { return s.address }

func (s *Server) list() (l []verbs.Region) {
	for id, b := range s.regions {
		if b != nil {
			l = append(l, verbs.Region{ID: verbs.RegionID(id), Size: uint64(len(b))})
		}
	}
	return l
}
