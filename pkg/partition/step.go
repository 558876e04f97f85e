package partition

import (
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Step decides what the operator does next about the compute servers of an index and its partition
// map, as a pure function of what is observed, so that it runs without Kubernetes. The operator may
// die between any two actions, and another one may act at the same time. So every action is safe to
// repeat, and the map changes only by compare-and-swap.

// Times to wait.
const (
	// Grace is how long an owner that is not ready keeps its ranges. A container that restarts is
	// ready sooner.
	Grace = 30 * time.Second

	// Lapse is how long an owner keeps its ranges if it does not answer and all its clients have
	// ended. Its leases have expired then, so nobody serves its keys. If only its process ended it
	// is back within this time.
	Lapse = 5 * time.Second

	// Gathering is how long the first map waits for servers that are not ready yet.
	Gathering = 20 * time.Second

	// FarewellLimit is how long a leaving server that owns nothing any more may take to learn of it
	// and to drain.
	FarewellLimit = 2 * time.Minute

	// Stalled is how long the next stage of a change waits for keys that their owner keeps although
	// the map gives them to another one.
	Stalled = 2 * time.Minute
)

// Observed is a compute server as observed.
type Observed struct {
	ID        uint32
	Pod       string
	RPC, RESP string

	Ready    bool          // its pod is
	ReadyFor time.Duration // how long it has been (not) ready
	Gone     bool          // its pod is being deleted, or ended
	Leaving  bool          // it was chosen to leave
	LeftFor  time.Duration // since it was chosen

	Answered   bool   // it reported the following just now
	Identity   string // index that it opened
	Generation uint64 // of the map that it uses
	Draining   bool
	DataLost   bool  // it was told that a memory server lost its content
	Load       *Load // nil = not reported
}

// View is everything that Step decides by.
type View struct {
	Now      time.Duration // by a monotonic clock
	Index    string        // identity
	Keys     KeyType
	KeyBytes int // of the longest key; 0 = not known
	// AtomicPrefix is that of Options.
	AtomicPrefix string
	Desired      int        // number of compute servers wanted
	Map          *Map       // at the home memory server; nil = none yet
	Servers      []Observed // ascending by ID

	// Owned says that the design's ranges have owners. Holdings, in key order, are then the present
	// holdings, which name servers by their pods.
	Owned    bool
	Holdings []Holding

	// Settle is how long members must have been the same before the map changes because of servers
	// that join or leave; see Settling. 0 = the map does not wait.
	Settle    time.Duration
	Separate  int // ranges that a planned map may have; 0 = MaxSeparate
	Rebalance Rebalance
	Memory    Memory // that the last step returned
}

// Actions are what to do next, in the order of the fields.
type Actions struct {
	// Swap is the map that replaces View.Map, unless nil. If the swap fails none of the other
	// actions may be done.
	Swap   *Map
	Moves  []Move
	Reason string // why, for messages

	// Drain are leaving servers to be drained, and deleted once they are.
	Drain []Observed

	// Delete are servers whose pods can be deleted at once.
	Delete []Observed

	// Waiting says what is waited for, for messages; empty if nothing is left to do.
	Waiting string

	// Watch is when the next step should follow, at the latest, since load may move ranges; 0 =
	// nothing indicates that.
	Watch time.Duration

	// Memory is for the next step, also if these actions fail.
	Memory Memory
}

// Step decides the next actions.
func Step(v View) (Actions, error) {
	a := Actions{Memory: v.Memory.next(v)}
	members := v.settled(v.members(), &a.Memory.settling)
	next, err := v.next(members, &a)
	if err != nil {
		return Actions{}, err
	}
	v.farewell(next, &a)
	if a.Memory.settling.waits {
		a.Waiting = "servers join or leave; the partition map changes once their number has settled"
	}
	if a.Waiting == "" {
		a.Waiting = v.unheard(next)
	}
	return a, nil
}

// members returns the servers that the map should have.
func (v View) members() (members []Server) {
	for _, s := range v.Servers {
		if v.belongs(s) {
			members = append(members, s.server())
		}
	}
	return members
}

func (s Observed) server() Server {
	return Server{ID: s.ID, Name: s.Pod, RPC: s.RPC, RESP: s.RESP}
}

// belongs reports whether a server should be in the map. It joins when it is ready (and answers, if
// it is to be the only one that serves its keys), and stays until it leaves, is gone, has lapsed,
// or was not ready for too long.
func (v View) belongs(s Observed) bool {
	switch {
	case s.Gone, s.Leaving, s.Answered && (s.Identity != v.Index || s.Draining), v.lapsed(s):
		return false
	case v.Map == nil:
		// a server that opened the index may wait for its first map before it is ready
		return s.Ready || s.Answered
	}
	_, isMember := v.Map.Server(s.ID)
	return s.Ready && (isMember || s.Answered || !v.Owned) || isMember && s.ReadyFor < Grace
}

// next returns the map after this step; nil while there is none.
func (v View) next(members []Server, a *Actions) (*Map, error) {
	if len(members) == 0 {
		a.Waiting = "no compute server is ready"
		return v.Map, nil // a map of absent servers is better than none
	}
	if v.Map == nil {
		if len(members) < v.Desired && !v.gathered() {
			a.Waiting = "more compute servers are starting; the first partition map waits a moment for them"
			return nil, nil
		}
		first, err := New(v.Index, members, v.options(nil, 0))
		a.Swap, a.Reason = first, "the index is new"
		return first, err
	}
	target, reason, err := v.target(members, a)
	if err != nil {
		return nil, err
	}
	if v.Owned {
		return v.nextStage(target, reason, a), nil
	}
	if target != v.Map {
		a.Swap, a.Moves, a.Reason = target, Moves(v.Map, target), reason
		return target, nil
	}
	for _, s := range v.Servers {
		if _, owns := v.Map.Server(s.ID); owns && !s.Ready {
			a.Waiting = "compute server " + s.Pod + " is not ready; if it stays away, the others take its ranges over"
		}
	}
	return target, nil
}

// target returns the wanted map, and why it differs from the present one: servers changed, a change
// is unfinished, or the load is uneven.
func (v View) target(members []Server, a *Actions) (target *Map, reason string, err error) {
	final := v.Map.Final()
	if reason = v.unsuited(final, members); reason != "" {
		target, _, err = Plan(v.Map, members, v.options(a.Memory.sample(v.Map), 0))
		if target == v.Map && final != v.Map { // the planned moves are not wanted any more
			target = &Map{Generation: v.Map.Generation + 1, Index: v.Map.Index, Servers: members, Ranges: v.Map.Ranges}
		}
		if err != nil || target != v.Map {
			return target, reason, err
		}
	}
	if target, reason, err = v.level(members, a); target != nil || err != nil {
		return target, reason, err
	}
	if final == v.Map && slices.Equal(members, v.Map.Servers) {
		return v.Map, "", nil
	}
	target = &Map{Generation: v.Map.Generation + 1, Index: v.Map.Index, Servers: members, Ranges: final.Ranges}
	if final != v.Map {
		return target, "the next stage of a change", nil
	}
	return target, "addresses or members changed", nil
}

// unheard names the servers that are ready by Kubernetes and would get keys if they answered; empty
// if there is none.
func (v View) unheard(next *Map) string {
	if !v.Owned || next == nil {
		return ""
	}
	for _, s := range v.Servers {
		if _, isMember := next.Server(s.ID); s.Ready && !s.Answered && !isMember && !s.Gone && !s.Leaving {
			return "compute server " + s.Pod + " is ready, but does not answer the operator"
		}
	}
	return ""
}

// unsuited returns why a map does not fit some members; empty if it does.
func (v View) unsuited(final *Map, members []Server) string {
	is := func(id uint32) bool {
		return slices.ContainsFunc(members, func(s Server) bool { return s.ID == id })
	}
	for _, s := range v.Map.Servers {
		owns := final.owns(s.ID)
		switch {
		case is(s.ID) || v.Owned && !owns:
		case v.isGone(s.ID):
			return "compute server " + v.Map.name(s.ID) + " is gone"
		default:
			return "compute server " + v.Map.name(s.ID) + " leaves"
		}
	}
	for _, s := range members {
		_, known := v.Map.Server(s.ID)
		if !known || v.Owned && !final.owns(s.ID) {
			return "compute server " + s.Name + " joined"
		}
	}
	return ""
}

// nextStage is next for a design whose ranges have owners.
func (v View) nextStage(target *Map, reason string, a *Actions) *Map {
	v.Memory = a.Memory // which knows this map
	next, moves, waits := v.stage(target, v.isGone)
	switch {
	case next == nil:
		a.Waiting = "ranges move one after the other; next are those of compute server " + waits + ", which is not through with the last one"
		return v.Map
	case next != v.Map:
		a.Swap, a.Moves, a.Reason = next, moves, reason
		return next
	}
	busy := v.busy(false)
	for _, s := range v.Servers {
		if busy[s.ID] {
			a.Waiting = "compute server " + s.Pod + " does not hold yet what the partition map gives it"
		}
	}
	return next
}

// isGone reports whether an owner cannot hand anything over: it does not exist, or was not ready
// for too long.
func (v View) isGone(id uint32) bool {
	for _, s := range v.Servers {
		if s.ID == id {
			return s.Gone || s.Answered && s.Identity != v.Index || !s.Answered && !s.Ready && s.ReadyFor >= Grace || v.lapsed(s)
		}
	}
	return true
}

// lapsed reports whether an owner has been without a lease for so long that others should get its
// keys. Kubernetes may still call its pod ready: it learns of the loss of a node from the node's
// silence, some 40 s later.
func (v View) lapsed(s Observed) bool {
	since, is := v.Memory.lapseOf(s.ID)
	return is && v.Now-since >= Lapse && v.lapses(s)
}

// lapses reports whether an owner does not answer, no living client of it holds ranges, and clients
// of it that have ended do.
func (v View) lapses(s Observed) bool {
	if !v.Owned || v.Map == nil || s.Answered || v.holds(s.Pod) {
		return false
	}
	for i := range v.Map.Ranges {
		r := v.Map.Span(i)
		for _, h := range v.Holdings {
			if _, _, both := keyrange.Intersect(r.Start, r.End, h.Start, h.End); both && r.Owner == s.ID && h.Orphan {
				return true
			}
		}
	}
	return false
}

// gathered reports whether the first map has waited long enough.
func (v View) gathered() bool {
	for _, s := range v.Servers {
		if v.belongs(s) && s.ReadyFor >= Gathering {
			return true
		}
	}
	return false
}

// farewell decides what happens to leaving servers.
func (v View) farewell(next *Map, a *Actions) {
	for _, s := range v.Servers {
		if s.Gone {
			continue
		}
		if s.Answered && s.Identity != v.Index {
			// it serves an earlier incarnation of the index, and cannot change that
			a.Delete = append(a.Delete, s)
			continue
		}
		if !s.Leaving {
			continue
		}
		if next != nil {
			if owns := next.owns(s.ID); owns && v.Owned && len(next.Servers) > 1 {
				a.Waiting = "compute server " + s.Pod + " hands over, one range after the other"
				continue
			} else if owns {
				a.Waiting = "nobody is ready to take over from compute server " + s.Pod
				continue
			}
		}
		switch {
		case a.Swap != nil, v.Owned && v.holds(s.Pod) && s.LeftFor <= FarewellLimit:
			a.Waiting = "compute server " + s.Pod + " hands over"
		case next == nil, !s.Answered && !s.Ready, s.LeftFor > FarewellLimit:
			a.Delete = append(a.Delete, s)
		case s.Answered && s.Generation >= next.Generation:
			a.Drain = append(a.Drain, s)
		default:
			a.Waiting = "compute server " + s.Pod + " has not heard of the newest partition map yet"
		}
	}
}
