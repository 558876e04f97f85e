// Package shm is the fabric for one host: the client maps the memory server's regions and executes
// its requests itself.
//
// The server passes the files of its regions over a Unix socket once it has admitted the client's
// token; after that no code of the server runs per operation. The socket stays open: its end tells
// the client that it was cut or that the server died, and tells the server that the client is gone.
//
// A client that maps the memory is trusted with it. Disconnect asks it to stop and waits until it
// says that it has; a client that does not answer (frozen, or not of this code) is out of the
// provider's reach until its process is dead. Fence knows whether it is: see hold.go.
//
// A list that is under way when its connection ends goes on to its end. So Connect returns only
// when no list is under way on ended connections of the same Device to the same address (G3).
package shm

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/mapped"
	"github.com/dmindex/dmindex/pkg/verbs/internal/serve"
)

// MaxQPs is how many queue pairs one connection may have.
const MaxQPs = 1024

// stopLimit is how long a client has to stop once it is asked to. The server looks so often
// meanwhile, and waits anew after each look: when the whole host stands still, that is one look, so
// the client has its time all the same.
const (
	stopLimit = 2 * time.Second
	stopLooks = 20
)

// Capabilities are those of every connection of this provider. A READ takes effect before a later
// READ on every processor: on amd64 by its own order, elsewhere by a barrier between the two.
// WholeWrite is a word: a client may die between any two.
func Capabilities() verbs.Capabilities {
	return verbs.Capabilities{OrderedReads: true, MaskedAtomics: true, WholeWrite: 8}
}

// NewServer makes the memory server's half. Every region must have a file, of which it is the
// start. Serve takes listeners of network "unix".
func NewServer(o verbs.ServerOptions) (verbs.Server, error) {
	space, err := mapped.NewSpace(o.Memory)
	if err != nil {
		return nil, fmt.Errorf("shm server: %w", err)
	}
	regions := space.Regions()
	files := make(holds, len(regions))
	for _, m := range o.Memory {
		if m.File == nil {
			return nil, fmt.Errorf("shm server: region %d has no file to share", m.ID)
		}
		for i, r := range regions {
			if r.ID == m.ID {
				files[i] = m.File
			}
		}
	}
	if err := files.check(); err != nil {
		return nil, fmt.Errorf("shm server: %w", err)
	}
	return serve.New(o, serve.Provider{
		Capabilities: Capabilities(),
		MaxQPs:       MaxQPs,
		Regions:      regions,
		Answer:       func(s *serve.Session, answer []byte) error { return sendFiles(s, answer, files) },
		Run:          waitForEnd,
		Cut:          askToStop,
		Quiet:        files.free,
		Process:      process,
	})
}

// sendFiles sends the answer with descriptors of the regions.
func sendFiles(s *serve.Session, answer []byte, files holds) error {
	u, ok := s.Conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("shm server: %v is no Unix socket", s.Conn.LocalAddr())
	}
	fds, err := files.open(s.Peer)
	if err != nil {
		return err
	}
	defer closeAll(fds)
	n, _, err := u.WriteMsgUnix(answer, unix.UnixRights(fds...), nil)
	if err == nil && n < len(answer) { // the descriptors went with the first byte
		_, err = u.Write(answer[n:])
	}
	return err
}

// waitForEnd returns when the client has closed its end, which it does once none of its requests
// runs any more.
func waitForEnd(s *serve.Session) {
	var b [1]byte
	s.Conn.Read(b[:]) // the client has nothing to say: a byte ends the session as well as an error
}

// askToStop shows the client the end of the stream. It stops its queue pairs and closes its end;
// the server gives up on a client that has not done so within stopLimit.
func askToStop(s *serve.Session) {
	if u, ok := s.Conn.(*net.UnixConn); ok {
		u.CloseWrite()
	}
	go func() {
		for range stopLooks {
			select {
			case <-s.Done():
				return
			case <-time.After(stopLimit / stopLooks):
			}
		}
		s.Conn.Close()
	}()
}
