package pool

import "github.com/dmindex/dmindex/pkg/verbs"

// A memory server's memory may be kept more than once. Then one process of several, the primary,
// answers for the server, and another one may take its place (package volumes). To a pool that is a
// restart of the server: it has all that was answered, all of its locks say Repair, its epochs
// begin at 1, and all connections to the process before are of no use. Only the address is another.
//
// A client does not go on across that. It is given up as soon as it hears of it (processChanged),
// and the index is opened anew by another one. It would find out by itself: its requests end with
// their limits, its renewals are refused or its lease runs out. So hearing of it matters to how
// long that takes, and to nothing else. Three things need an argument.
//
// # Clients that have not heard of it yet
//
// Such a client may hold a lock, or keys, on the server that moved, where others have repaired the
// lock by now. It reads and changes nothing there any more: the former primary has no permission to
// answer, and what it executes does not reach the next one. So the client cannot validate anything
// there either. On other servers its requests take effect, under a lock that is not its own. That
// is a client which is fenced on one server and alive on another one, as when its lease ends on one
// of them first: the fence has cut its queue pairs there and turned its locks to Repair. All
// designs allow for such clients, and so does reclamation (limbo.go).
//
// # Epochs
//
// The next primary counts epochs anew, as a server that restarted. It has every client that was
// known among those that passed nothing (EpochTable.Found). A client that has not heard of the move
// calls the former primary, which does not answer. Calls go to the next primary only from when the
// control path has heard of it, which gives this client up at once. A renewal that overtakes that
// is refused (ErrEpoch), or says that no more than the first epoch was passed, which is harmless:
// EpochTable has the argument. What this client noted as safe was safe.
//
// # Connections to the former primary
//
// A new connection is usable only when the client's earlier queue pairs are quiet (G3 of package
// verbs). Those to the former primary are: what it executes from now on reaches nobody. They are
// cut without a farewell, which it would not answer. Their sessions are named to its address alone,
// so the next primary is not asked to end what it never had.
//
// A node that is lost may have had the primaries of several servers. The first move that is heard
// ends the client, and a farewell waits for the others. So all of them are followed until all
// connections are closed, and a farewell ends when its server's move is heard.

// Moves is the part of the control path to memory servers that may be kept more than once. A
// Control may have it. Safe for concurrent use.
type Moves interface {
	// Follow calls moved, once and from any goroutine, when a grant of a turn (Grant.Turn) is of no
	// use any more, because another process answers for the server. That may be before Follow
	// returns. stop ends it; one call of moved may still be under way. moved does not wait.
	Follow(server uint16, turn uint64, moved func(why error)) (stop func())
}

// follow gives this client up when another process answers for a server.
func (k *leaseKeeper) follow(s *server) {
	m, ok := k.pool.control.(Moves)
	if !ok {
		return
	}
	stop := m.Follow(s.id, s.grant.Turn, func(why error) { k.pool.processChanged(s, why) })
	k.following.Lock()
	defer k.following.Unlock()
	if k.stopped.Load() {
		stop() // unfollowAll may have been here
		return
	}
	k.unfollow = append(k.unfollow, stop)
}

// unfollowAll is called once stopped is set.
func (k *leaseKeeper) unfollowAll() {
	k.following.Lock()
	defer k.following.Unlock()
	for _, stop := range k.unfollow {
		stop()
	}
}

// processChanged is called when another process answers for a server than the one that this client
// is connected to.
func (p *Pool) processChanged(s *server, why error) {
	p.leaseLost(s, why)
	if c, ok := s.conn.(verbs.Cutter); ok {
		c.Cut(why)
	}
}
