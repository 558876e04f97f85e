//go:build ibv

package ibv

import (
	"net"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// TestAnswerBehindLateOnes: a server that stood still answers at once what was asked and given up
// meanwhile, and what is asked now. The answer to this arrives.
func TestAnswerBehindLateOnes(t *testing.T) {
	socket, far := net.Pipe()
	defer far.Close()
	go func() {
		for {
			q, err := readFrame(far)
			if err != nil {
				return
			}
			var out []byte
			for _, late := range []uint32{2, 1, 0} {
				out = (&frame{kind: q.kind, slot: q.slot, seq: q.seq - late}).append(out)
			}
			far.Write(out)
		}
	}()
	c := newConn(&device{}, &hca{}, socket, &hello.Answer{}, [verbs.RegionLocks + 1]remoteRegion{}, hello.Session{Earlier: new(hello.Earlier)})
	defer socket.Close()
	c.seq = 100
	for n := range 2000 {
		if _, err := c.ask(frame{kind: frameCalls, slot: 1}); err != nil {
			t.Fatalf("question %d, answered behind two late answers: %v", n, err)
		}
	}
}
