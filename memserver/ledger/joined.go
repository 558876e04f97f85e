package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of the servers that join an index.
const (
	MaxJoined        = 256 // of one index, those that left included
	MaxJoinedAddress = 256 // bytes of an address
	MaxJoinedCopies  = 7   // addresses of one server besides the first
	MaxJoinedName    = 16  // bytes of a provider's name
	maxServer        = 1<<15 - 1
)

// JoinedServer is a memory server that joined an index since it was made, as the index's home knows
// it. docs/design/memory-server.md says how a server joins.
type JoinedServer struct {
	ID          uint16 // in addresses; there is one of each
	State       JoinState
	Control     string // host:port of its control service; of its primary, if it has copies
	Incarnation uint64 // of its memory
	Provider    string // by which clients reach it; empty = as they reach those without one
	// the same as Control of the other copies of its memory
	Copies []string
}

// JoinState is how far a server is. It changes only from Joining, and only once.
type JoinState uint8

// The states. Their values are those of package pool.
const (
	Joining JoinState = iota + 1 // it holds nothing of the index
	Member                       // it may hold memory of the index
	Left                         // it never held anything, and never will
)

// Join notes how far a server is and returns how far it is then. What is asked for twice, or is
// behind what is noted, changes nothing. A server of the same memory may have other addresses:
// those of s are noted if it has copies. Without copies it may come from an operator that knows
// none, so nothing is noted, and its address must be one of those that are. Errors:
// ErrUnknownIndex; ErrInvalid; ErrInUse: a member cannot leave, nor can the server of an id be
// another one; ErrNotOwned: it left, or never joined, and cannot be a member; ErrExhausted.
func (l *Ledger) Join(identity string, s JoinedServer) (now JoinState, news bool, err error) {
	p, _ := l.find(identity)
	if p == nil {
		return 0, false, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	if err := s.check(); err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	at, known := p.searchJoined(s.ID)
	if !known {
		switch {
		case s.State == Member:
			return 0, false, fmt.Errorf("%w: memory server %d never joined index %s, and cannot be a member", ErrNotOwned, s.ID, identity)
		case len(p.joined) >= MaxJoined:
			return 0, false, fmt.Errorf("%w: %d memory servers joined index %s, which is the most: dump it and restore it into a new one", ErrExhausted, MaxJoined, identity)
		}
		p.joined = slices.Insert(p.joined, at, s)
		p.joins++
		return s.State, true, nil
	}
	was := &p.joined[at]
	switch {
	case was.Incarnation != s.Incarnation || was.Provider != s.Provider || len(s.Copies) == 0 && !was.isAt(s.Control):
		return was.State, false, fmt.Errorf("%w: memory server %d of index %s is at %s with incarnation %#x, not at %s with %#x", ErrInUse,
			s.ID, identity, was.Control, was.Incarnation, s.Control, s.Incarnation)
	case was.State == s.State, was.State == Member && s.State == Joining:
	case was.State == Member:
		return was.State, false, fmt.Errorf("%w: memory server %d is a member of index %s, and may hold its memory", ErrInUse, s.ID, identity)
	case was.State == Left:
		return was.State, false, fmt.Errorf("%w: memory server %d left index %s for good", ErrNotOwned, s.ID, identity)
	default:
		was.State, news = s.State, true
	}
	if len(s.Copies) > 0 && (was.Control != s.Control || !slices.Equal(was.Copies, s.Copies)) {
		was.Control, was.Copies, news = s.Control, slices.Clone(s.Copies), true
	}
	if news {
		p.joins++
	}
	return was.State, news, nil
}

// isAt reports whether a copy of s is at an address.
func (s *JoinedServer) isAt(address string) bool {
	return s.Control == address || slices.Contains(s.Copies, address)
}

// Joined are the servers that joined an index, by id, and how many changes made them so. A client,
// unless 0, must not be fenced. Errors: ErrUnknownIndex, ErrFenced.
func (l *Ledger) Joined(identity string, client uint32) (version uint64, all []JoinedServer, err error) {
	p, _ := l.find(identity)
	switch {
	case p == nil:
		return 0, nil, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case client != 0 && l.Fenced(identity, client):
		return 0, nil, fenced(identity, client)
	}
	return p.joins, slices.Clone(p.joined), nil
}

// Joins is how often the list of Joined of an index has changed; 0 if there is no such index.
func (l *Ledger) Joins(identity string) uint64 {
	if p, _ := l.find(identity); p != nil {
		return p.joins
	}
	return 0
}

func (p *place) searchJoined(id uint16) (at int, known bool) {
	return slices.BinarySearchFunc(p.joined, id, func(s JoinedServer, id uint16) int { return int(s.ID) - int(id) })
}

func (s *JoinedServer) check() error {
	switch {
	case s.ID == 0 || s.ID > maxServer:
		return fmt.Errorf("memory server %d; ids are 1 to %d", s.ID, maxServer)
	case s.State < Joining || s.State > Left:
		return fmt.Errorf("memory server %d has state %d", s.ID, s.State)
	case s.Control == "" || len(s.Control) > MaxJoinedAddress:
		return fmt.Errorf("memory server %d has an address of %d bytes; 1 to %d are possible", s.ID, len(s.Control), MaxJoinedAddress)
	case len(s.Copies) > MaxJoinedCopies:
		return fmt.Errorf("memory server %d has %d copies besides its primary; at most %d are possible", s.ID, len(s.Copies), MaxJoinedCopies)
	case slices.ContainsFunc(s.Copies, func(a string) bool { return a == "" || len(a) > MaxJoinedAddress }):
		return fmt.Errorf("memory server %d has a copy without an address of 1 to %d bytes", s.ID, MaxJoinedAddress)
	case len(s.Provider) > MaxJoinedName:
		return fmt.Errorf("memory server %d has a provider's name of %d bytes; at most %d are possible", s.ID, len(s.Provider), MaxJoinedName)
	}
	return nil
}

func (p *place) checkJoined() error {
	if len(p.joined) > MaxJoined || uint64(len(p.joined)) > p.joins {
		return fmt.Errorf("%d servers joined by %d changes", len(p.joined), p.joins)
	}
	for i := range p.joined {
		if err := p.joined[i].check(); err != nil {
			return err
		}
		if i > 0 && p.joined[i].ID <= p.joined[i-1].ID {
			return fmt.Errorf("memory server %d follows memory server %d", p.joined[i].ID, p.joined[i-1].ID)
		}
	}
	return nil
}

func (p *place) appendJoined(dst []byte, version uint32) []byte {
	u := binary.AppendUvarint
	dst = u(u(dst, p.joins), uint64(len(p.joined)))
	for i := range p.joined {
		s := &p.joined[i]
		dst = u(u(u(dst, uint64(s.ID)), uint64(s.State)), s.Incarnation)
		dst = append(u(dst, uint64(len(s.Control))), s.Control...)
		dst = append(u(dst, uint64(len(s.Provider))), s.Provider...)
		if version > uncopied {
			dst = u(dst, uint64(len(s.Copies)))
			for _, address := range s.Copies {
				dst = append(u(dst, uint64(len(address))), address...)
			}
		}
	}
	return dst
}

func (r *reader) joined(p *place) {
	p.joins = r.upTo(anyUint64, "changes of joined servers")
	for range r.upTo(MaxJoined, "number of joined servers") {
		s := JoinedServer{ID: uint16(r.upTo(maxServer, "joined server")), State: JoinState(r.upTo(uint64(Left), "state of a joined server"))}
		s.Incarnation = r.upTo(anyUint64, "incarnation of a joined server")
		s.Control = string(r.bytes(MaxJoinedAddress, "address of a joined server"))
		s.Provider = string(r.bytes(MaxJoinedName, "provider of a joined server"))
		if r.version > uncopied {
			for range r.upTo(MaxJoinedCopies, "number of copies of a joined server") {
				s.Copies = append(s.Copies, string(r.bytes(MaxJoinedAddress, "address of a copy of a joined server")))
			}
		}
		if r.failed != "" {
			return
		}
		p.joined = append(p.joined, s)
	}
}
