package volumes

import (
	"fmt"
	"slices"
	"time"
)

// The primary's part of the stream of changes, and of permissions.

// Target is a process that changes are sent to. What it is sent begins with its join, which the
// head of the stream names: a copy that was left out of the stream for a while lacks changes, so it
// cannot take part in a later join.
type Target struct {
	Proc Proc
	Join uint64
}

// Targets returns the processes that changes are sent to, and permission is asked of.
func (m *Member) Targets() (all []Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.role != Primary {
		return nil
	}
	for i := range m.peers {
		all = append(all, m.peers[i].Target)
	}
	return all
}

// Join makes a primary send its changes to a free copy. It can be repeated. Another copy takes the
// place of one that answers do not wait for yet.
func (m *Member) Join(number uint64, copy Proc) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.role != Primary || m.stopping || m.view.Number != number {
		return fmt.Errorf("let %v join %v in view %d: %w", copy, m.self, number, ErrNotPrimary)
	}
	if m.peer(copy) != nil {
		return nil
	}
	if m.mark != 0 {
		return fmt.Errorf("let %v join %v: %w", copy, m.self, ErrPromised)
	}
	m.peers = slices.DeleteFunc(m.peers, func(p peer) bool { return !p.waited })
	m.joins++
	now := m.env.Now()
	m.peers = append(m.peers, peer{Target: Target{copy, m.joins}, permitted: now, acked: now})
	return nil
}

// WaitFor makes all answers wait for a joining copy. It is refused until the copy has applied the
// whole memory, which was sent to it up to a position, and permits answers: a copy that cannot be
// heard does not hold answers up. Then mark records a mark in the stream and returns its position.
// At the mark the copy has all that was answered before answers waited for it. Position 0 says that
// there is no mark: then answers do not wait for the copy, of which nothing was promised yet. The
// promise is stored before it is reported. WaitFor can be repeated if it fails.
func (m *Member) WaitFor(copy Proc, whole uint64, mark func() uint64) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	p := m.peer(copy)
	if m.role != Primary || m.stopping || p == nil || copy == m.view.Backup {
		defer m.mu.Unlock()
		return fmt.Errorf("wait for %v: it does not join: %w", copy, ErrNotPrimary)
	}
	if !p.waited && (p.applied < whole || p.until <= m.env.Now()) {
		defer m.mu.Unlock()
		return fmt.Errorf("wait for %v: it has applied %d of %d: %w", copy, p.applied, whole, ErrBehind)
	}
	p.waited = true
	m.count()
	marked, promised := m.mark != 0, m.promised
	m.mu.Unlock()
	if !marked {
		at := mark()
		m.mu.Lock()
		if p := m.peer(copy); p != nil && at == 0 {
			p.waited = false
			m.count()
		}
		m.mark = at
		m.mu.Unlock()
		if at == 0 {
			return fmt.Errorf("wait for %v: it has fallen behind: %w", copy, ErrBehind)
		}
	}
	if promised {
		return nil
	}
	next := m.state
	next.WaitsFor = copy
	if err := m.save(next); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.promised = true
	return nil
}

// Drop ends a join that cannot go on: its copy is not reached, or too slow. It does nothing once
// answers wait for the copy.
func (m *Member) Drop(t Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers = slices.DeleteFunc(m.peers, func(p peer) bool { return p.Target == t && !p.waited })
}

// Acked notes that a process has applied all changes up to a position.
func (m *Member) Acked(by Proc, position uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peer(by); p != nil {
		p.applied, p.acked = max(p.applied, position), m.env.Now()
		m.count()
	}
}

// Request is a request for permission. A later one has a higher turn.
type Request struct {
	Turn uint64
	At   time.Duration // when it was made, by the primary's clock
}

// Ask makes a request for permission, to be sent to the targets; false if none may be asked for.
func (m *Member) Ask() (r Request, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.role != Primary {
		return r, false
	}
	m.turns++
	return Request{m.turns, m.env.Now()}, true
}

// Late notes for how long a process has lacked a change.
func (m *Member) Late(by Proc, d Span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peer(by); p != nil {
		p.late = d
	}
}

// Permitted notes that a process has granted a request. The permission counts from when it was
// asked for: it was given later, so the one that gave it waits for longer.
func (m *Member) Permitted(by Proc, r Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peer(by); p != nil {
		p.until, p.permitted = max(p.until, r.At+believed), m.env.Now()
		m.count()
	}
}

// The copy's part.

// Attach lets a process that is in a view begin to send its changes to this one, or go on where
// that broke off. It is refused if the copy has taken changes of another process or join, which are
// in its memory, or if it knows a higher view. So is it by a process whose files count as those of
// a backup, until it hears of a view that leaves that one out. If its own source begins another
// join, the one it takes part in has ended, and nobody waits for it: the process ends.
func (m *Member) Attach(from Proc, join, number uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.takes(from) && m.sourceJoin == join:
		return nil
	case m.takes(from) && join > m.sourceJoin:
		m.role = Replaced
		return fmt.Errorf("take part in join %d of %v after join %d: %w", join, from, m.sourceJoin, ErrReplaced)
	case m.role != Joining, m.source != Proc{}, m.state.Backup, number < m.view.Number:
		return fmt.Errorf("take changes of %v in view %d as %v of %v, view %v: %w", from, number, m.role, m.source, m.view, ErrTaken)
	}
	m.source, m.sourceJoin, m.sourceView, m.heard = from, join, number, m.env.Now()
	return nil
}

// Takes reports whether a change of a process may be applied. One that is being applied is waited
// for by Host.Close.
func (m *Member) Takes(from Proc) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takes(from)
}

func (m *Member) takes(from Proc) bool {
	return (m.role == Joining || m.role == Backup) && m.source == from && from != Proc{}
}

// Marked notes that the mark was applied: from here on this process has all that was answered.
func (m *Member) Marked(from Proc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.takes(from) {
		m.role = Backup
	}
}

// Grant reports whether a process may answer, and remembers how long it may believe so.
func (m *Member) Grant(asks Proc, turn uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.takes(asks) || turn <= m.turn {
		return false
	}
	now := m.env.Now()
	m.turn, m.heard, m.granted = turn, now, max(m.granted, now+granted)
	return true
}

// Return notes that a process answers no more by what it was granted up to a turn. One that is late
// says nothing of permissions that were given meanwhile.
func (m *Member) Return(from Proc, turn uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.takes(from) && turn > m.turn {
		m.turn, m.granted = turn, 0
	}
}
