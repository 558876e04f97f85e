package mirror

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Messages of a connection of permissions: what is asked and a turn, 8 bytes each, and the answer:
// 1 or 0, and the turn.
const (
	permissionBytes = 16

	asks    = 1
	returns = 2
)

// Asker is the primary's end of a connection of permissions.
type Asker struct {
	conn Conn
	env  env.Env
}

// NewAsker begins to ask the sink at the other end of a connection for permissions. After an error
// the connection is closed.
func NewAsker(e env.Env, c Conn, h Hello, limit time.Duration) (*Asker, error) {
	h.Kind = Permission
	if _, err := greet(e, c, &h, limit); err != nil {
		c.Close() // what went wrong is known
		return nil, fmt.Errorf("ask the copy %v for permissions: %w", h.To, err)
	}
	return &Asker{c, e}, nil
}

// Ask asks for permission to answer (volumes.Member.Grant).
func (a *Asker) Ask(turn uint64, limit time.Duration) (granted bool, err error) {
	return a.exchange(asks, turn, limit)
}

// Return gives all permissions up to a turn back (volumes.Member.Return).
func (a *Asker) Return(turn uint64, limit time.Duration) error {
	_, err := a.exchange(returns, turn, limit)
	return err
}

func (a *Asker) exchange(what, turn uint64, limit time.Duration) (granted bool, err error) {
	var b [permissionBytes]byte
	binary.LittleEndian.PutUint64(b[0:], what)
	binary.LittleEndian.PutUint64(b[8:], turn)
	until := env.Deadline(a.env, limit)
	if err := writeFull(a.env, a.conn, b[:], until); err != nil {
		return false, err
	}
	if err := readFull(a.env, a.conn, b[:], until); err != nil {
		return false, err
	}
	if got := binary.LittleEndian.Uint64(b[8:]); got != turn {
		return false, fmt.Errorf("the copy answers turn %d, and turn %d was asked for", got, turn)
	}
	return binary.LittleEndian.Uint64(b[0:]) == 1, nil
}

// Close ends the connection.
func (a *Asker) Close() error { return a.conn.Close() }

// permit answers requests for permission.
func (s *Sink) permit(c Conn, h *Hello) error {
	var b [permissionBytes]byte
	for {
		if err := readFull(s.Env, c, b[:], env.Deadline(s.Env, s.limit())); err != nil {
			return err
		}
		what, turn, yes := binary.LittleEndian.Uint64(b[0:]), binary.LittleEndian.Uint64(b[8:]), uint64(0)
		switch {
		case what == asks && s.Member.Grant(h.From, turn):
			yes = 1
		case what == returns:
			s.Member.Return(h.From, turn)
		case what != asks:
			return fmt.Errorf("a message of kind %d where permission is asked for", what)
		}
		binary.LittleEndian.PutUint64(b[0:], yes)
		if err := writeFull(s.Env, c, b[:], env.Deadline(s.Env, s.limit())); err != nil {
			return err
		}
		if s.closing() {
			return errClosed
		}
	}
}
