//env:real connections and their deadlines are of the machine

package mirror

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Sink is the copy's end of streams. Its fields are set before the first one.
type Sink struct {
	// Memory is the data region of the copy. While a stream is taken nobody else uses it.
	Memory []byte
	// Ledger is the copy's ledger, as the server stored it last: empty before the first stream.
	Ledger []byte
	// TLS is for the connections, names Protocol and asks for a certificate. Nil = they are in the
	// clear.
	TLS *tls.Config
	// Attach is nil if the stream of a source is taken; else its error is told to the source. Safe
	// for concurrent use. A memory of another size is refused without asking.
	Attach func(Hello) error
	// Takes reports whether the copy still takes what a source sends, and is asked before each item
	// is applied. When it has returned false, nothing of that stream changes the memory any more.
	Takes func(Hello) bool
	// Limit is how long a source may take for its hello; 0 = DefaultLimit.
	Limit time.Duration
}

// streamBytes holds the longest item, and as many short ones as a read brings.
const streamBytes = verbs.MaxItem + 1<<20

// Serve takes the stream that comes over a connection, until that ends or the copy takes no more of
// it, and closes the connection. It returns why, and how far the copy is. Two calls run side by
// side only where Attach refuses one of them.
func (s *Sink) Serve(socket net.Conn) (applied verbs.Position, err error) {
	defer socket.Close()
	conn := over(socket)
	if s.TLS != nil {
		conn = accept.NewTLS(conn, s.TLS)
	}
	limit := s.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	h, err := readHello(conn)
	if err != nil {
		// a source of another version reads why; the deadline bounds it
		_ = writeAnswer(conn, err)
		return 0, err
	}
	if h.Size != uint64(len(s.Memory)) {
		err = fmt.Errorf("the memory of %s has %d bytes, and the copy %d: give both the same memory", h.From, h.Size, len(s.Memory))
	} else {
		err = s.Attach(h)
	}
	if e := writeAnswer(conn, err); err == nil {
		err = e
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err == nil {
		applied, err = s.take(conn, h)
	}
	if err != nil {
		err = fmt.Errorf("take the changes of %s: %w", h.From, err)
	}
	return applied, err
}

// take applies a stream.
func (s *Sink) take(conn net.Conn, h Hello) (applied verbs.Position, err error) {
	buf, have := make([]byte, streamBytes), 0
	var ack [8]byte
	for {
		n, err := conn.Read(buf[have:])
		have += n
		if err != nil {
			return applied, err // what came with the error makes no difference to anybody
		}
		done, err := s.apply(buf[:have], h)
		applied += verbs.Position(done)
		if err != nil {
			return applied, err
		}
		if done == 0 {
			continue
		}
		have = copy(buf, buf[done:have])
		binary.LittleEndian.PutUint64(ack[:], uint64(applied))
		if _, err := conn.Write(ack[:]); err != nil {
			return applied, err
		}
	}
}

// apply applies the whole items of a part of a stream, and returns how long they are.
func (s *Sink) apply(b []byte, h Hello) (done int, err error) {
	for {
		i, n, err := verbs.NextItem(b[done:], uint64(len(s.Memory)))
		if n == 0 {
			return done, err
		}
		if !s.Takes(h) {
			return done, fmt.Errorf("the copy takes nothing more in view %d", h.View)
		}
		switch at := s.Memory[i.At:][:i.Bytes]; {
		case i.Ledger:
			next, err := i.Splice(s.Ledger, s.Ledger)
			if err != nil {
				return done, err
			}
			s.Ledger = next
		case i.Data != nil:
			copy(at, i.Data)
		default:
			clear(at)
		}
		done += n
	}
}
