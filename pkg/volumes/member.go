package volumes

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Member is what a process that holds a copy of a volume knows of who answers for it. It decides
// whether the process may answer, apply a change of another one, or permit another one to answer.
// All methods may be called from any goroutine.
type Member struct {
	env  env.Env
	host Host

	// changing is held while a view is obeyed or a promise is made, over writes to the disk.
	changing env.Mutex

	// mu protects what follows. It is never held over anything that waits.
	mu    env.Mutex
	self  Proc // its pod changes once, from none (Name)
	role  Role
	state State // as it was stored last
	view  View  // highest that was obeyed or, while joining, heard of

	mayLack bool // what it found may lack something (Host.MayLack), and it has not served since

	// Of a copy.
	restored   bool          // its memory may have what the files of an earlier process have
	source     Proc          // whose changes it takes
	sourceJoin uint64        // which of its joins this is
	sourceView uint64        // the view that the source was in
	granted    time.Duration // until when the source may answer, by this clock
	turn       uint64        // of the newest request for permission, or return of it
	heard      time.Duration // when that was

	// Of a primary.
	peers    []peer // at most two: the backup of the view, and a joining copy
	stopping bool
	joins    uint64 // of copies so far
	turns    uint64 // of requests for permission so far
	mark     uint64 // position at which the joining copy is in sync; 0 = answers do not wait for it
	promised bool   // which is stored

	// MayAnswer goes by these; see count.
	allApplied atomic.Uint64
	allUntil   atomic.Int64
}

// peer is a process that changes are sent to.
type peer struct {
	Target
	waited  bool // answers wait for it
	applied uint64
	until   time.Duration // of its permission

	permitted, acked time.Duration // when it was heard of last
	late             Span          // for how long it has lacked a change
}

// New returns the member of a process that finds a state stored; the zero state if there is none.
// It stores that it is the newest process of its pod. The caller must then empty the memory if
// [Member.Empty] says so, and call [Member.Start].
func New(e env.Env, pod string, stored State, host Host) (*Member, error) {
	stored.Process++
	if stored.First == 0 && stored.Content != Nothing {
		stored.First = 1 // an earlier program found this before, for all that is known
	} else if stored.First == 0 {
		stored.First = stored.Process
	}
	if stored.Content == Nothing {
		stored.WaitsFor = Proc{}
	}
	stored.Backup = stored.Backup && stored.Content == Nothing && stored.View.Backup.Pod == pod && host.Durable()
	if err := host.Save(stored); err != nil {
		return nil, fmt.Errorf("store that process %d of pod %s begins: %w", stored.Process, pod, err)
	}
	m := &Member{env: e, host: host, self: Proc{pod, stored.Process}, changing: e.NewMutex(), mu: e.NewMutex(), state: stored, view: stored.View}
	m.mayLack = host.MayLack()
	if stored.Content != Nothing {
		m.role = Stopped
	}
	if stored.Backup {
		m.granted = e.Now() + granted // by the process that was the backup, at its very end
	}
	return m, nil
}

// Self returns the process.
func (m *Member) Self() Proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// Name gives the pod its name, if it has none: when it obeys the first view, or has nothing. No
// view and no other process knows of this one before.
func (m *Member) Name(pod string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.self.Pod == "" {
		m.self.Pod = pod
	}
}

// Empty reports whether the memory and the files count for nothing, so that the process begins with
// empty ones. One whose files count as those of a backup has an empty memory too. Its files are
// removed when it takes the changes of another process.
func (m *Member) Empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Content == Nothing && !m.state.Backup
}

// Start lets a process serve that was primary and waits for nobody. It can be repeated if it fails.
func (m *Member) Start() error {
	m.changing.Lock()
	defer m.changing.Unlock()
	if m.state.Alone() && m.Role() == Stopped {
		return m.serve()
	}
	return nil
}

// serve makes the process the primary of the stored view, which names it alone and says that the
// content is there.
func (m *Member) serve() error {
	if m.state.Content == Taken {
		if err := m.host.Prepare(); err != nil {
			return fmt.Errorf("prepare the memory for view %v: %w", m.state.View, err)
		}
		next := m.state
		next.Content = Served
		if err := m.save(next); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.role, m.source, m.mayLack = Primary, Proc{}, false
	m.count()
	return nil
}

// save stores a state. m.state is only written here, so whoever holds changing may read it.
func (m *Member) save(next State) error {
	if err := m.host.Save(next); err != nil {
		return fmt.Errorf("store view %v: %w", next.View, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = next
	return nil
}

// Role returns what the process is.
func (m *Member) Role() Role {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.role
}

// Executes reports whether the process may execute requests.
func (m *Member) Executes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.role == Primary && !m.stopping
}

// MayAnswer reports whether an answer may go out that depends on the changes up to a position. The
// request must have arrived before this is asked: at this moment no other process serves, and what
// is answered is in every copy that may be the next primary.
func (m *Member) MayAnswer(need uint64) bool {
	if need > m.allApplied.Load() {
		return false
	}
	until := m.allUntil.Load()
	return until == int64(env.Forever) || until > int64(m.env.Now())
}

// count notes what all have applied that are waited for, and when the first of their permissions
// ends: 0 for who is no primary. The caller has mu, and changed one of these.
//
// MayAnswer takes no lock: all answers of a server ask it. It looks at the permissions last, so
// they hold when it returns. What has been applied it may have looked at before another process was
// waited for. Then what the answer needs was recorded before the mark of that process, which has it
// once it counts. Permissions are stored first here, so they never are of an earlier set of
// processes than what has been applied.
func (m *Member) count() {
	applied, until := uint64(math.MaxUint64), env.Forever
	for i := range m.peers {
		if p := &m.peers[i]; p.waited {
			applied, until = min(applied, p.applied), min(until, p.until)
		}
	}
	if m.role != Primary {
		until = 0
	}
	m.allUntil.Store(int64(until))
	m.allApplied.Store(applied)
}

// Report returns what the operator is told. A promise is reported only once it is stored.
func (m *Member) Report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Report{Proc: m.self, First: m.state.First, Role: m.role, View: m.view, Source: m.source}
	now := m.env.Now()
	switch m.role {
	case Primary:
		for i := range m.peers {
			p := &m.peers[i]
			if p.Proc != m.view.Backup {
				r.Joins, r.Waits = p.Proc, p.waited
				r.InSync = m.promised && p.applied >= m.mark
			}
			if p.waited {
				r.Misses = max(r.Misses, now-min(p.permitted, p.acked))
				if p.late >= tooLate {
					r.Misses = max(r.Misses, p.late)
				}
			}
		}
	case Joining, Backup:
		if m.source != (Proc{}) {
			r.Misses = now - m.heard
		} else if m.state.Backup {
			r.Was, r.MayLack = m.state.View.Backup, m.mayLack
		}
	case Stopped:
		r.MayLack = m.mayLack
	}
	return r
}

// peer returns the one that is a process; nil if there is none.
func (m *Member) peer(p Proc) *peer {
	for i := range m.peers {
		if m.peers[i].Proc == p {
			return &m.peers[i]
		}
	}
	return nil
}
