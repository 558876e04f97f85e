package core

import (
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// leases are the ends of the clients' leases, by the server's own clock, which continues while the
// machine is suspended. They are not stored: a server that restarts gives every client a whole
// lease.
//
// A client counts its lease from before it asked, and uses 7/8 of it; the server counts from after
// it was asked. So no client believes in a lease that is over here, as long as no clock runs more
// than 8/7 as fast as another.
//
// All methods are called under the lock of the accounts.
type leases struct {
	list []lease
	at   map[verbs.Peer]int // in list
	// of clients that were fenced before their lease expired: when it does
	ended map[verbs.Peer]time.Duration

	// clients that are fenced, hold keys, and are confirmed dead
	dead map[verbs.Peer]struct{}
}

type lease struct {
	peer verbs.Peer
	end  time.Duration

	reached uint64 // the version of the list of joined servers that the client told last
}

// extend begins a lease, or makes it end later.
func (s *leases) extend(peer verbs.Peer, end time.Duration) {
	if i, ok := s.at[peer]; ok {
		s.list[i].end = max(s.list[i].end, end)
		return
	}
	if s.at == nil {
		s.at = map[verbs.Peer]int{}
	}
	s.at[peer] = len(s.list)
	s.list = append(s.list, lease{peer: peer, end: end})
}

// noteReach notes which version of the list of joined servers a client with a lease reaches.
func (s *leases) noteReach(peer verbs.Peer, version uint64) {
	if i, ok := s.at[peer]; ok {
		s.list[i].reached = max(s.list[i].reached, version)
	}
}

// behind returns at most so many clients of an index that have a lease and do not reach a version,
// by id.
func (s *leases) behind(index string, version uint64, most int) (ids []uint16) {
	for i := range s.list {
		if l := &s.list[i]; l.peer.Index == index && l.reached < version {
			ids = append(ids, l.peer.Client)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), most)]
}

// has reports whether a client has a lease, expired or not.
func (s *leases) has(peer verbs.Peer) bool {
	_, ok := s.at[peer]
	return ok
}

// expired returns at most so many clients of each index whose lease has expired.
func (s *leases) expired(now time.Duration, most int) (peers []verbs.Peer) {
	var count map[string]int
	for i := range s.list {
		if now < s.list[i].end {
			continue
		}
		if count == nil {
			count = map[string]int{}
		}
		if peer := s.list[i].peer; count[peer.Index] < most {
			count[peer.Index]++
			peers = append(peers, peer)
		}
	}
	return peers
}

// end removes a client's lease. The client may believe in the lease until it expires.
func (s *leases) end(peer verbs.Peer, now time.Duration) {
	for p, end := range s.ended { //env:real all of them are looked at
		if now >= end {
			delete(s.ended, p)
		}
	}
	if i, ok := s.at[peer]; ok && now < s.list[i].end {
		if s.ended == nil {
			s.ended = map[verbs.Peer]time.Duration{}
		}
		s.ended[peer] = s.list[i].end
	}
	s.drop(peer)
}

// believed reports whether a client without a lease may still believe in one that this process
// granted.
func (s *leases) believed(peer verbs.Peer, now time.Duration) bool { return now < s.ended[peer] }

// confirmDead records the clients of an index that are dead and hold keys. It forgets those of the
// index that hold none, so there are never more records than holdings.
func (s *leases) confirmDead(index string, ids []uint16, holders map[uint16]bool) {
	for p := range s.dead { //env:real all of them are looked at
		if p.Index == index && !holders[p.Client] {
			delete(s.dead, p)
		}
	}
	for _, id := range ids {
		if !holders[id] {
			continue
		}
		if s.dead == nil {
			s.dead = map[verbs.Peer]struct{}{}
		}
		s.dead[verbs.Peer{Index: index, Client: id}] = struct{}{}
	}
}

// isDead reports whether a client that is fenced is confirmed dead.
func (s *leases) isDead(peer verbs.Peer) bool {
	_, ok := s.dead[peer]
	return ok
}

// forget forgets a fenced client that holds nothing.
func (s *leases) forget(peer verbs.Peer) {
	delete(s.ended, peer)
	delete(s.dead, peer)
}

func (s *leases) drop(peer verbs.Peer) {
	i, ok := s.at[peer]
	if !ok {
		return
	}
	last := len(s.list) - 1
	s.list[i] = s.list[last]
	s.at[s.list[i].peer] = i
	s.list = s.list[:last]
	delete(s.at, peer)
}

// dropIndex drops all leases of an index.
func (s *leases) dropIndex(index string) {
	for i := len(s.list) - 1; i >= 0; i-- {
		if s.list[i].peer.Index == index {
			s.drop(s.list[i].peer)
		}
	}
	for p := range s.ended { //env:real all of them are looked at
		if p.Index == index {
			delete(s.ended, p)
		}
	}
	s.confirmDead(index, nil, nil)
}
