package poolsim

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Servers that join: what the home notes, and what an operator does, a step each. See package pool.

// Start starts a memory server with no chunks for anybody, and returns its id.
func (c *Cluster) Start() (uint16, error) {
	err := c.start(0)
	return uint16(len(c.servers)), err
}

// note notes at the home how far a server is; what is behind that is noted changes nothing.
func (s *server) note(list *pool.JoinedList, id uint16, state pool.JoinState) {
	at := slices.IndexFunc(list.Servers, func(j pool.JoinedServer) bool { return j.ID == id })
	all := slices.Clone(list.Servers)
	switch {
	case at < 0:
		all = append(all, pool.JoinedServer{ID: id, State: state})
	case all[at].State != pool.Joining || state == pool.Joining:
		return
	default:
		all[at].State = state
	}
	*list = pool.JoinedList{Version: list.Version + 1, Servers: all}
}

// Note is a call of process p: the home notes how far a server is.
func (c *Cluster) Note(p *simenv.Process, id uint16, state pool.JoinState, limit time.Duration) error {
	return (&control{c, p}).call(1, limit, func(s *server) error {
		c.changes(s)
		s.note(&c.joined, id, state)
		return nil
	})
}

// Behind is a call of process p: how many clients with a lease at the home do not reach all servers
// that joined.
func (c *Cluster) Behind(p *simenv.Process, limit time.Duration) (n int, err error) {
	err = (&control{c, p}).call(1, limit, func(s *server) error {
		for _, client := range s.clients {
			if !s.fenced[client] && c.reached[client] < c.joined.Version {
				n++
			}
		}
		return nil
	})
	return n, err
}

// FenceAtNew are calls of process p: a server that joins fences the clients that it knows and the
// home has fenced.
func (c *Cluster) FenceAtNew(p *simenv.Process, id uint16, limit time.Duration) error {
	k := &control{c, p}
	var there, dead []uint32
	err := k.call(id, limit, func(s *server) error {
		there = slices.Clone(s.clients)
		return nil
	})
	if err == nil {
		err = k.call(1, limit, func(s *server) error {
			for _, client := range there {
				if s.fenced[client] {
					dead = append(dead, client)
				}
			}
			return nil
		})
	}
	if err != nil || len(dead) == 0 {
		return err
	}
	return k.Fence(id, dead, limit)
}

// Grant is a call of process p: a server gets its quota.
func (c *Cluster) Grant(p *simenv.Process, id uint16, limit time.Duration) error {
	return (&control{c, p}).call(id, limit, func(s *server) error {
		c.changes(s)
		s.quota = len(s.chunks)
		return nil
	})
}

var _ pool.Joins = &control{}

// Joined implements pool.Joins.
func (k *control) Joined(client uint32, limit time.Duration) (list pool.JoinedList, err error) {
	err = k.call(1, limit, func(s *server) error {
		if s.fenced[client] {
			return fmt.Errorf("client %d: %w", client, pool.ErrFenced)
		}
		list = k.c.joined
		return nil
	})
	return list, err
}
