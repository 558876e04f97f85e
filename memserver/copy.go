//env:real connections are of the machine

package memserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/memserver/internal/admission"
	"github.com/dmindex/dmindex/memserver/mirror"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// A server beside another copy of its volume: as a primary it sends its changes (mirror.Primary),
// as a copy it takes them (mirror.Sink) over connections to a port of its own. Only a memory server
// of the same pool gets such a connection: whoever has one writes the memory.

const (
	mirrorLobby = 16 // connections that have shown no certificate yet
	mirrorOpen  = 8  // that have: two for each source, and those that take their place
	knownCopies = 4  // addresses of copies that joined
)

// copying is the part of a volume that sends or takes changes.
type copying struct {
	primary *mirror.Primary // nil before the content is opened, or where nothing is recorded
	sink    *mirror.Sink    // nil where no changes are taken

	pace    atomic.Uint64              // bytes that a join sends in a second; 0 = no limit
	copied  atomic.Uint64              // bytes that joins have sent
	scanned atomic.Uint64              // how far the join is in the memory
	feed    atomic.Pointer[verbs.Feed] // of the newest join

	addresses struct {
		sync.Mutex
		list []address // the newest last
	}
	differs  atomic.Bool     // this copy does, so it never opens
	problem  problem         // of the newest copy, or of this one
	troubles admission.Lines // of copies, in the log
	open     struct {
		sync.Mutex
		conns  map[net.Conn]bool
		closed bool
	}
}

// address is where a process takes changes.
type address struct {
	of volumes.Proc
	at string
}

// problem is what went wrong last. Safe for concurrent use.
type problem struct{ text atomic.Pointer[string] }

// maxProblem is how many bytes of it are told.
const maxProblem = 512

// set notes what went wrong; nil: it goes on.
func (p *problem) set(err error) {
	text := ""
	if err != nil {
		text = err.Error()
		text = strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")
	}
	p.text.Store(&text)
}

func (p *problem) get() string {
	if text := p.text.Load(); text != nil {
		return *text
	}
	return ""
}

// differences counts pieces of memory that were found to differ, of all servers of this program:
// the one that finds a difference ends by it.
var differences atomic.Uint64

// failovers counts copies that opened, of all servers of this program: one that was replaced is
// followed by another one in the same process.
var failovers atomic.Uint64

// openMirror listens for primaries.
func (s *Server) openMirror(c *Config) (err error) {
	v := s.volume
	v.open.conns = map[net.Conn]bool{}
	if c.Mirror == "" {
		return nil
	}
	v.sink = mirror.NewSink(c.env, v.member, s.region.Replica(), s.region.CopyShape())
	if s.persisted != nil {
		v.sink.Log = copyFiles{s.persisted}
	}
	s.addresses.Mirror, s.mirrors, err = s.listen("tcp", c.Mirror)
	return err
}

// newPrimary makes what sends changes, once there is a content.
func (v *volume) newPrimary() {
	s := v.server
	if s.region.Journal == nil {
		return
	}
	p := mirror.NewPrimary(s.config.env, v.member, s.region.Journal)
	p.Shape, p.Dial, p.Settle, p.Answered, p.Walk = s.region.CopyShape(), v.dial, s.control.SettleRequests, s.control.AnswerRequests, v.walk
	p.Report = func(to volumes.Proc, err error) {
		v.problem.set(err)
		if err == nil {
			return
		}
		v.troubles.Warn(s.log, "a copy of this memory server does not get its changes", "copy", to.String(), "err", err)
	}
	v.primary = p
}

// dial connects to a process that takes changes.
func (v *volume) dial(p volumes.Proc) (mirror.Conn, error) {
	at := v.addressOf(p)
	if at == "" {
		return nil, fmt.Errorf("connect to the copy %v: nobody said where it takes changes", p)
	}
	files := v.server.control.files
	if files == nil {
		return mirror.Dial(at, nil, mirror.DefaultLimit)
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return nil, fmt.Errorf("connect to the copy %v: %w", p, err)
	}
	c, err := mirror.Dial(at, files.ClientConfig(host), mirror.DefaultLimit)
	if err != nil {
		return nil, fmt.Errorf("connect to the copy %v at %s: %w", p, at, err)
	}
	return c, nil
}

func (v *volume) addressOf(p volumes.Proc) string {
	v.addresses.Lock()
	defer v.addresses.Unlock()
	for _, a := range v.addresses.list {
		if a.of == p {
			return a.at
		}
	}
	return ""
}

// noteAddress notes where a process takes changes.
func (v *volume) noteAddress(p volumes.Proc, at string) {
	v.addresses.Lock()
	defer v.addresses.Unlock()
	list := v.addresses.list[:0]
	for _, a := range v.addresses.list {
		if a.of != p {
			list = append(list, a)
		}
	}
	list = append(list, address{p, at})
	v.addresses.list = list[max(0, len(list)-knownCopies):]
}

// serveMirror takes connections of primaries until the listener is closed.
func (v *volume) serveMirror(l net.Listener) error {
	lobby := accept.NewLobby(mirrorLobby, mirror.DefaultLimit)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer v.closeMirror()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		serving.Go(func() {
			if err := v.serveCopy(c, lobby); err != nil {
				v.problem.set(err)
				v.troubles.Warn(v.server.log, "a connection of another memory server ended", "from", c.RemoteAddr().String(), "err", err)
			}
		})
	}
}

// serveCopy serves one connection.
func (v *volume) serveCopy(socket net.Conn, lobby *accept.Lobby) error {
	defer socket.Close()
	if !v.admitConn(socket) {
		return nil
	}
	defer v.forget(socket)
	place := lobby.Enter(socket.RemoteAddr(), func() { socket.Close() })
	c, err := v.admit(socket)
	if !place.Leave() && err == nil {
		err = fmt.Errorf("%d other connections are in their handshakes", mirrorLobby)
		c.Close()
	}
	if err != nil {
		return err
	}
	err = v.sink.Serve(c)
	switch {
	case errors.Is(err, verbs.ErrDiffers):
		v.differs.Store(true)
		differences.Add(1)
		v.server.log.Error("this copy differs from the memory of its primary, and is given up; check the memory of both machines if this comes again", "err", err)
		if err := v.member.Distrust(); err != nil {
			v.server.log.Error("the files of this copy may differ too, and are not marked: if all other copies are lost, restore a backup", "err", err)
		}
		v.server.fail(ErrReplaced)
	case v.member.Role() == volumes.Replaced:
		v.server.fail(ErrReplaced)
	}
	return err
}

// admit lets a memory server of the same pool in.
func (v *volume) admit(socket net.Conn) (mirror.Conn, error) {
	files := v.server.control.files
	if files == nil {
		return mirror.Accept(socket, nil, mirror.DefaultLimit)
	}
	return mirror.Accept(socket, files.PeerConfig(mirror.Protocol), mirror.DefaultLimit)
}

// admitConn counts an open connection; false: there are too many, or the server ends.
func (v *volume) admitConn(c net.Conn) bool {
	v.open.Lock()
	defer v.open.Unlock()
	if v.open.closed || len(v.open.conns) >= mirrorLobby+mirrorOpen {
		return false
	}
	v.open.conns[c] = true
	return true
}

func (v *volume) forget(c net.Conn) {
	v.open.Lock()
	defer v.open.Unlock()
	delete(v.open.conns, c)
}

// closeMirror takes nothing more.
func (v *volume) closeMirror() {
	v.Close()
	v.open.Lock()
	defer v.open.Unlock()
	v.open.closed = true
	for c := range v.open.conns { //env:real all of them, in any order
		c.Close()
	}
}

// Close implements volumes.Host.
func (v *volume) Close() {
	v.mu.Lock()
	v.closed = time.Now()
	v.mu.Unlock()
	if v.sink != nil {
		v.sink.Close()
	}
}

// takeLedger stores the ledger that came with the changes of a primary, or was read from files.
func (v *volume) takeLedger() error {
	switch {
	case v.ledger != nil && v.server.persisted != nil:
		return nil // it is on disk, where it was read
	case v.sink == nil:
		return errors.New("this process takes no changes, and has no content")
	case v.differs.Load():
		return fmt.Errorf("take the content: %w", verbs.ErrDiffers)
	}
	b := bytes.Clone(v.sink.Ledger())
	if p := v.server.persisted; p != nil {
		if err := p.store.Load().Flush(); err != nil {
			return err
		}
	}
	if v.server.stateDir != "" {
		if err := fileStore(v.server.ledgerPath()).Save(b); err != nil {
			return fmt.Errorf("store the ledger of the volume: %w", err)
		}
	}
	v.ledger = b
	return nil
}

// Drain implements volumes.Host.
func (v *volume) Drain(backup volumes.Proc) error {
	if v.primary == nil {
		return errors.New("this memory server sends its changes to nobody")
	}
	return v.primary.Drain(backup)
}

// Return implements volumes.Host.
func (v *volume) Return(backup volumes.Proc, turn uint64) {
	if v.primary != nil {
		v.primary.Return(backup, turn)
	}
}

// percent is how much of the memory the newest join has sent.
func (v *volume) percent() uint32 {
	return uint32(100 * v.scanned.Load() / v.server.region.DataBytes)
}

// lag is how many bytes of changes the newest copy is not known to have.
func (v *volume) lag() uint64 {
	f, j := v.feed.Load(), v.server.region.Journal
	if f == nil || j == nil || f.Err() != nil || !j.Mode().Records() {
		return 0
	}
	return uint64(j.Last() - f.Applied())
}
