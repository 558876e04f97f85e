package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// additions are memory servers that join the index of a run while everything else goes on: the
// ledgers, the leases and the clients are real, and the two operators take the steps of
// controllers/index_join.go, dying between any two. In half of these runs clients have so few ids
// that the servers forget clients, and give their ids again, meanwhile. Fences of forgotten clients
// come late, at any server.
type additions struct {
	made  int // servers that the index was made on
	left  int // that will join
	used  int // chunks that clients got on servers that joined
	again int // times that a client with an id that was given before connected to one

	forgotten []uint32 // clients
}

func additionsOf(r ownRun) (a additions) {
	if r.dex && r.doomed == 0 && r.wrong == noMistake && (r.seed/2%8 == 5 || r.seed/2%16 == 3) {
		a.left = 1 + int(r.seed/32%2)
	}
	return a
}

// joinStep is how far a server that joins is, as the operators note it at the API server.
type joinStep int

const (
	isMade   joinStep = iota // the index was made on it
	comes                    // it admits the index, with no chunks
	isMember                 // it gets its quota
)

// add starts memory servers that will join.
func (w *ownWorld) add() {
	for ; w.additions.left > 0; w.additions.left-- {
		w.main.Sleep(w.UpTo(4 * time.Second))
		m := w.newMemory()
		m.step = comes
		w.serve(m)
	}
}

func (w *ownWorld) newMemory() *memoryServer {
	m := &memoryServer{id: uint16(len(w.memory) + 1), memory: []verbs.Memory{
		{ID: verbs.RegionData, Bytes: make([]byte, w.dataBytes())},
		{ID: verbs.RegionLocks, Bytes: make([]byte, 4096)},
	}}
	w.memory = append(w.memory, m)
	return m
}

// quota is how many chunks a server grants.
func (w *ownWorld) quota(m *memoryServer) uint64 {
	if m.step == comes {
		return 0
	}
	return uint64(w.chunks())
}

// joinAll brings every server further that joins.
func (w *ownWorld) joinAll(p *simenv.Process, k *path) {
	for _, m := range w.memory {
		if m.step == isMade || m.granted {
			continue
		}
		if err := w.join(p, k, m); err != nil {
			m.waits = err
		}
	}
}

// join is what joinServer of the operator does at each look, and the quota after it.
func (w *ownWorld) join(p *simenv.Process, k *path, m *memoryServer) error {
	note := func(state ledger.JoinState) error {
		w.mayDie(p)
		return k.call(1, ownLimit, func(b *memservertest.Bare) error {
			if err := b.Join(ownIndex, ledger.JoinedServer{ID: m.id, State: state, Control: m.address(), Incarnation: 1}); err != nil {
				return err
			}
			if n, err := b.Behind(ownIndex); n > 0 {
				return fmt.Errorf("%d clients do not reach server %d", n, m.id)
			} else {
				return err
			}
		})
	}
	if m.step == comes {
		if m.bare == nil {
			return errStarting // it does not answer
		}
		if err := note(ledger.Joining); err != nil {
			return err
		}
		if err := note(ledger.Member); err != nil {
			return err
		}
		if err := w.fenceAtNew(p, k, m); err != nil {
			return err
		}
		m.step = isMember
	}
	w.mayDie(p)
	err := k.call(m.id, ownLimit, func(b *memservertest.Bare) error { return b.Admit(ownIndex, w.quota(m), ownLocks) })
	m.granted = m.granted || err == nil
	return err
}

// lateFences fence clients that the home has forgotten, as of somebody who read their numbers long
// ago.
func (w *ownWorld) lateFences() {
	p := w.NewProcess("network")
	k := &path{w: w, p: p, name: p.Name()}
	p.Go("late fences", func() {
		for !w.over {
			p.Sleep(w.UpTo(ownLease / 8))
			if all := w.additions.forgotten; len(all) > 0 {
				_ = k.Fence(uint16(1+w.Random.IntN(len(w.memory))), []uint32{all[w.Random.IntN(len(all))]}, ownLimit)
			}
		}
	})
}

// fenceAtNew fences at a server that joins the clients that it knows and the home does not know to
// live.
func (w *ownWorld) fenceAtNew(p *simenv.Process, k *path, m *memoryServer) error {
	clients := func(id uint16) (all []ledger.Client, err error) {
		err = k.call(id, ownLimit, func(b *memservertest.Bare) (err error) { all, err = b.Clients(ownIndex, ""); return err })
		return all, err
	}
	w.mayDie(p)
	there, err := clients(m.id)
	if err != nil {
		return err
	}
	home, err := clients(1)
	if err != nil {
		return err
	}
	var dead []uint32
	for _, c := range there {
		if !slices.ContainsFunc(home, func(h ledger.Client) bool { return h.Number == c.Number && !h.Fenced }) {
			dead = append(dead, c.Number)
		}
	}
	w.mayDie(p)
	if len(dead) == 0 {
		return nil
	}
	return k.Fence(m.id, dead, ownLimit)
}

// fenceJoined fences clients, which the home has fenced, at the servers that joined by then.
func (w *ownWorld) fenceJoined(p *simenv.Process, k *path, ids []uint32) {
	if w.additions.made == 0 {
		return
	}
	list, err := (&joinPath{k}).Joined(0, ownLimit)
	for _, j := range list.Servers {
		w.mayDie(p)
		if err != nil || j.State == pool.Member && k.Fence(j.ID, ids, ownLimit) != nil {
			return
		}
	}
}

// awaitJoins waits until all servers have joined that were to.
func (w *ownWorld) awaitJoins() {
	for _, m := range w.memory {
		for begun := w.Now(); m.step != isMade && !m.granted; w.main.Sleep(time.Second) {
			if w.Now()-begun > settleBound {
				w.Report("%v after all trouble memory server %d has not joined: %v", settleBound, m.id, m.waits)
				return
			}
		}
	}
}

// control is the way of a client to the memory servers.
func (w *ownWorld) control(k *path) pool.Control {
	if w.additions.made == 0 {
		return k
	}
	return &joinPath{k}
}

// joinPath is the path of clients of an index that servers join.
type joinPath struct{ *path }

var _ pool.Joins = &joinPath{}

// Joined implements pool.Joins.
func (k *joinPath) Joined(client uint32, limit time.Duration) (list pool.JoinedList, err error) {
	err = k.call(1, limit, func(b *memservertest.Bare) error {
		version, all, err := b.Joined(ownIndex, client)
		list = pool.JoinedList{Version: version}
		for _, j := range all {
			list.Servers = append(list.Servers, pool.JoinedServer{ID: j.ID, State: pool.JoinState(j.State)})
		}
		return err
	})
	return list, err
}

// Forget implements pool.Forgetter.
func (k *joinPath) Forget(id uint16, clients []uint32, limit time.Duration) (gone, next []uint32, err error) {
	gone, next, err = k.path.Forget(id, clients, limit)
	if err == nil && id == 1 {
		k.w.additions.forgotten = append(k.w.additions.forgotten, gone...)
	}
	return gone, next, err
}

// Register looks at all servers when the home gives an id: nothing is left of a client that had it.
// One that joined may have heard of that client by a late fence.
func (k *joinPath) Register(limit time.Duration) (client uint32, err error) {
	client, err = k.path.Register(limit)
	for _, m := range k.w.memory {
		stored, e := ledger.Decode(m.disk.Stored)
		if e != nil || err != nil {
			continue // it never served
		}
		earlier, e := stored.NumberOf(ownIndex, uint16(client))
		if e != nil || earlier == client {
			continue
		}
		gone, _, _ := stored.Forget(ownIndex, []uint32{earlier}, func(uint16) bool { return false })
		if m.step == isMade || stored.Complete(ownIndex, earlier) && len(gone) == 0 {
			k.w.Report("client %d gets the id of client %d, of which something is left on memory server %d", client, earlier, m.id)
		}
	}
	return client, err
}

// Connect counts what it shows.
func (k *joinPath) Connect(id uint16, client uint32, limit time.Duration) (pool.Grant, error) {
	g, err := k.path.Connect(id, client, limit)
	if err == nil && int(id) > k.w.additions.made && client>>16 > 0 {
		k.w.additions.again++
	}
	return g, err
}

// AllocateChunk counts what it shows.
func (k *joinPath) AllocateChunk(id uint16, client uint32, nodeBytes int, adopt bool, limit time.Duration) (uint64, error) {
	offset, err := k.path.AllocateChunk(id, client, nodeBytes, adopt, limit)
	if err == nil && int(id) > k.w.additions.made {
		k.w.additions.used++
	}
	return offset, err
}
