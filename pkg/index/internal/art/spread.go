package art

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Inserts put a leaf on the server of its node, and a node on that of its parent, so that the
// WRITEs and the swap are one list. Then all that inserts make would be on the root's server. So a
// leaf split below the root makes its node and leaf on the next server, and so does one where the
// parent's server has more than its part of what this client has made, which is so where all keys
// share their first bytes. That takes an insert a round trip more, and what is inserted below none.

// spreadSlack is how much more than its part a server may have. In builds with invariants it is
// little, as indexes are small there.
var spreadSlack int64 = 16 << 10

func init() {
	if invariants.Enabled {
		spreadSlack = 512
	}
}

// spread counts what the inserts of a client took of each memory server, by its number.
type spread struct {
	total  atomic.Int64
	placed [64]atomic.Int64 // of servers with the same number modulo 64
}

func (p *spread) add(a pool.Addr, bytes int) {
	p.total.Add(int64(bytes))
	p.placed[a.Server()%64].Add(int64(bytes))
}

// Place is where a new node is to lie to which the slot of st will lead; Nil = on any server.
func (s *Session) Place(st *Step) pool.Addr {
	a, n := st.Node.Addr, int64(s.Pool.NumServers())
	p := &s.t.spread
	if n > 1 && (st == &s.Path[0] || p.placed[a.Server()%64].Load()-p.total.Load()/n > spreadSlack) {
		return pool.Nil
	}
	return a
}

// awaitStrayed posts what is queued, and awaits it, if some of what was made is on another server
// than the node at a, a word of which is to lead to it: only requests to one server keep their
// order.
func (s *Session) awaitStrayed(a pool.Addr) error {
	strayed := s.Apart
	for _, m := range s.made {
		strayed = strayed || m.at.Server() != a.Server()
	}
	if !strayed {
		return nil
	}
	if err := s.PS.Post(); err != nil {
		s.Forget()
		return failure(err)
	}
	return nil
}
