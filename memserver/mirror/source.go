package mirror

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Source is the server's end of a stream: the link of a feed.
type Source struct {
	conn  Conn
	env   env.Env
	limit time.Duration

	sent atomic.Uint64 // end of what was sent

	// Of Receive.
	applied uint64
	silent  time.Duration // since when the copy lacks something and says nothing; 0 = it does not
	acks    [64]byte
	have    int // bytes of acks that make no whole position
}

var _ verbs.Link = &Source{}

// NewSource offers the stream of a feed to the sink at the other end of a connection, and returns
// from where on the copy takes it. ErrRefused: it does not take it. After an error the connection
// is closed.
func NewSource(e env.Env, c Conn, h Hello, limit time.Duration) (*Source, verbs.Position, error) {
	h.Kind = Stream
	applied, err := greet(e, c, &h, limit)
	if err != nil {
		c.Close() // what went wrong is known
		return nil, 0, fmt.Errorf("send changes to the copy %v: %w", h.To, err)
	}
	s := &Source{conn: c, env: e, limit: limit, applied: uint64(applied)}
	s.sent.Store(s.applied)
	return s, applied, nil
}

// Send implements verbs.Link.
func (s *Source) Send(b []byte) (int, error) {
	n, err := s.conn.Write(b)
	s.sent.Add(uint64(n))
	return n, err
}

// Receive implements verbs.Link. Of several positions that have arrived it takes the last.
func (s *Source) Receive() (verbs.Position, error) {
	n, err := s.conn.Read(s.acks[s.have:])
	if s.have += n; s.have < 8 {
		if err == nil && n == 0 {
			err = s.checkSilence()
		}
		return 0, err
	}
	whole := s.have &^ 7
	s.applied, s.silent = binary.LittleEndian.Uint64(s.acks[whole-8:]), 0
	s.have = copy(s.acks[:], s.acks[whole:s.have])
	return verbs.Position(s.applied), nil
}

// checkSilence fails when the copy has said nothing for too long.
func (s *Source) checkSilence() error {
	switch now := s.env.Now(); {
	case s.sent.Load() == s.applied:
		s.silent = 0
	case s.silent == 0:
		s.silent = now
	case now-s.silent >= s.limit:
		return fmt.Errorf("the copy has answered nothing for %v: %w", s.limit, verbs.ErrTimeout)
	}
	return nil
}

// Close implements verbs.Link.
func (s *Source) Close() error { return s.conn.Close() }
