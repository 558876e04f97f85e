package volumes

import "fmt"

// Obey makes a recorded view the process's own. An error means that the view is not obeyed, or not
// fully: then it can be told again.
func (m *Member) Obey(v View) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	r := m.Report()
	switch {
	case r.Role == Opening && v == r.View:
		return m.open(v)
	case r.Role == Replaced:
		return fmt.Errorf("obey view %v: %w", v, ErrReplaced)
	case v.Number <= r.View.Number:
		return fmt.Errorf("obey view %v after view %v: %w", v, r.View, ErrOldView)
	case v.Primary.Pod == r.Proc.Pod && r.Role.holds():
		return m.lead(v)
	case v.Primary == r.Proc && r.Role == Backup:
		return m.open(v)
	case v.Primary == Proc{Pod: r.Proc.Pod} && v.Number == 1 && r.Role == Joining && r.Source == Proc{}:
		return m.found(v)
	case v.Primary == r.Proc && r.Was != Proc{}:
		return m.restore(v)
	case v.Primary == r.Proc:
		return fmt.Errorf("open in view %v as %v: %w", v, r.Role, ErrNoContent)
	case r.Role.holds() || r.Role == Opening:
		return m.resign(v)
	case v.Backup == r.Proc && r.Role == Backup && m.host.Durable():
		return m.keep(v)
	case r.Was != Proc{} && (v.Backup == r.Was || v.Primary.Pod == r.Proc.Pod):
		m.hear(v) // it counts as much as before
		return nil
	case v.names(r.Proc), v.Number <= m.sourceView, r.Source == Proc{} && r.Was == Proc{}:
		m.hear(v)
		return nil
	}
	// The files of an earlier process count no more, or this one took the changes of a primary of
	// an earlier view. Nobody waits for either any more.
	return m.leave(v)
}

// keep is Obey of a backup that stays one, and whose files outlive it.
func (m *Member) keep(v View) error {
	next := m.state
	next.View, next.Backup = v, true
	if err := m.save(next); err != nil {
		return err
	}
	m.hear(v)
	return nil
}

// leave is Obey of a copy that a view leaves behind. It is stored that its files count no more,
// before they can be changed. A process whose memory may have some of them ends.
func (m *Member) leave(v View) error {
	if m.state.Backup {
		next := m.state
		next.View, next.Backup = v, false
		if err := m.save(next); err != nil {
			return err
		}
	}
	m.hear(v)
	if m.Report().Source != (Proc{}) || m.restored {
		m.end()
	}
	return nil
}

// Distrust stores that the files of this process count no more as those of a backup: its memory was
// found to differ from that of the primary. The process ends, whatever is returned, and obeys no
// view any more, by which they would count again. After an error the next one may take them for
// good.
func (m *Member) Distrust() error {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.end()
	if !m.state.Backup {
		return nil
	}
	next := m.state
	next.Backup = false
	return m.save(next)
}

// restore is Obey of a process that joins, and is named primary for the files that an earlier
// process of its pod wrote as a backup. Until they are in its memory it is what it was.
func (m *Member) restore(v View) error {
	m.restored = true
	if err := m.host.Restore(); err != nil {
		return fmt.Errorf("read the files of the backup %v for view %v: %w", m.Report().Was, v, err)
	}
	return m.open(v)
}

func (m *Member) hear(v View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = v
}

// found makes the process the first primary of its volume. Later processes of the pod find this
// stored, so the first view is obeyed once, with a memory that is empty.
func (m *Member) found(v View) error {
	next := m.state
	next.View, next.Content = v, Served
	if err := m.save(next); err != nil {
		return err
	}
	m.hear(v)
	return m.serve()
}

// lead is Obey of a process that has the content and is named primary. The view is stored before
// the process goes by it. A stopped process beside a backup stays stopped: that one takes the
// changes of another process. A process whose pod lost its memory, and which was told the first
// view late or has no name, has another volume, which it began anew: it does not lead in the view
// that names the one before it, nor beside a backup that it neither promised to wait for nor waits
// for.
func (m *Member) lead(v View) error {
	next := m.state
	if next.View.Number <= 1 && !next.stands(v.Primary) {
		return fmt.Errorf("lead in view %v, and the memory of the process that it names is lost: %w", v, ErrNoContent)
	}
	if b := v.Backup; b != (Proc{}) && b != next.WaitsFor && b != next.View.Backup {
		return fmt.Errorf("lead in view %v, and it never waited for that backup: %w", v, ErrNoContent)
	}
	next.View, next.WaitsFor = v, Proc{}
	if err := m.save(next); err != nil {
		return err
	}
	m.mu.Lock()
	m.view, m.mark, m.promised = v, 0, false
	var stay []peer
	if v.Backup != (Proc{}) {
		p := m.peer(v.Backup)
		if p == nil {
			p = &peer{Target: Target{Proc: v.Backup}}
		}
		p.waited = true
		stay = append(stay, *p)
	}
	m.peers = stay
	m.count()
	m.mu.Unlock()
	if m.state.Alone() {
		return m.serve()
	}
	return nil
}

// open is Obey of a backup that is named primary, or of a process that has its files. It can be
// repeated if it fails.
//
//	1 no change is applied any more, and no permission given
//	2 the last permission is waited out
//	3 it is stored that the content is here; from here on a later process of the pod goes on
//	4 Prepare, stored
//	5 it serves
//
// 1 comes before 2, since a permission that was given in between would not be waited out. 2 comes
// before 3, since a later process knows nothing of permissions.
func (m *Member) open(v View) error {
	m.mu.Lock()
	m.role, m.view = Opening, v
	m.mu.Unlock()
	m.host.Close()
	for {
		m.mu.Lock()
		left := m.granted - m.env.Now()
		m.mu.Unlock()
		if left < 0 {
			break
		}
		m.env.Sleep(left + 1)
	}
	next := m.state
	if next.Content == Nothing {
		next.View, next.Content, next.Backup = v, Taken, false
		if err := m.save(next); err != nil {
			return err
		}
	}
	return m.serve()
}

// resign is Obey of a process that has the content and is named no more. It is stored that the
// memory counts no more before the process ends.
func (m *Member) resign(v View) error {
	next := m.state
	next.View, next.Content, next.WaitsFor, next.Backup = v, Nothing, Proc{}, false
	if err := m.save(next); err != nil {
		return err
	}
	m.hear(v)
	m.end()
	return nil
}

func (m *Member) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.role = Replaced
	m.count()
}

// Stop makes the primary of a view with a backup ready to be replaced by it: it executes nothing
// more, answers what it has executed, and then answers nothing more. Only then it is stopped, and
// returns its permission, so that the backup opens without waiting. If the stream cannot be drained
// it goes on as the primary. Nothing is stored: a process that restarts beside a backup is stopped
// anyway.
func (m *Member) Stop(number uint64) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	if m.role != Primary || m.view.Number != number || m.view.Backup == (Proc{}) {
		defer m.mu.Unlock()
		return fmt.Errorf("stop in view %d as %v of view %v: %w", number, m.role, m.view, ErrNotPrimary)
	}
	m.stopping = true
	backup := m.view.Backup
	m.mu.Unlock()

	err := m.host.Drain(backup)

	m.mu.Lock()
	m.stopping = false
	if err != nil {
		m.mu.Unlock()
		return fmt.Errorf("drain the stream to %v: %w", backup, err)
	}
	m.role = Stopped
	m.count()
	m.turns++ // above all requests for permission: those that arrive later are refused
	turn := m.turns
	m.mu.Unlock()
	m.host.Return(backup, turn)
	return nil
}
