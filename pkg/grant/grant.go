// Package grant decides which index gets how much of which memory server: chunks, and a slice of
// the lock table, in the NIC's memory if there is room. It is pure: from what is observed of the
// servers and of the indexes to what is to be done next.
//
// The accounts are the memory servers' own: what they say they granted is granted, whoever did it,
// and nothing is remembered here. So the operator may die between any two steps, and another one
// may act at the same time: the servers refuse what is too much, and every step can be repeated.
//
// What holds:
//
//   - All steps together ask no server for more than it has left.
//   - The oldest index that waits goes first: what is free is kept for it, and a younger one gets
//     what is left over. Nothing is kept for an index that asks a server for more than it has
//     altogether.
//   - An index that is new gets what it asks for on all of its servers, or nothing.
//   - Nothing is taken from an index that is served, but what it asks to lower, and only what it
//     does not use.
//   - Only what earlier incarnations of an index have is taken back. A later one than the one in
//     force shows that the claim is old, and that others act on a newer one: nothing at all is done
//     for such a claim.
//   - What servers hold for indexes that are not among the claims stays as it is: nothing is freed
//     because an object was not seen.
package grant

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxPlaces is how many indexes a memory server can hold.
const MaxPlaces = 64

// Server is a memory server as it was observed.
type Server struct {
	Name     string // unique among the servers
	Chunks   uint64 // that it has
	Locks    uint64 // 16-bit locks of its table
	OnChip   uint64 // of them lie in the NIC's memory
	Draining bool   // it hands out nothing
	Held     []Held
}

// Held is what a server has granted to an index.
type Held struct {
	Identity string
	Chunks   uint64 // its quota
	Used     uint64 // of these
	Locks    uint64
	OnChip   uint64 // of these
}

// Claim is an index that asks for memory.
type Claim struct {
	Object   string // its identities are this, or this, "/" and a count
	Identity string // the one in force
	Name     string // for people
	Since    int64  // the lowest is the oldest
	Served   bool   // it may hold data
	Idle     bool   // it keeps what it has and asks for nothing
	Leaving  bool   // its deletion was observed
	Wants    []Want
}

// Want is what an index asks of one server.
type Want struct {
	Server string
	Chunks uint64
	Locks  uint64 // 0 = as many as the server gives
}

// Step is something to ask of a server. Each can be repeated.
type Step struct {
	Server   string
	Identity string
	Evict    bool   // take everything back; else admit with what follows
	Chunks   uint64 // the quota
	Had      uint64 // the quota until now
	Locks    uint64 // of a new place; 0 = as many as the server gives
	// of a new place: they go to host memory, since the NIC's is taken, or kept for older indexes
	HostLocks bool
}

// Verdict is what becomes of one claim.
type Verdict struct {
	Object  string
	Steps   []Step    // evictions first
	Missing []Missing // it waits for this
	Refused []Refused // it cannot have this
	Absent  []string  // servers that were not observed
	Later   []Later   // the claim is old: there are no steps
}

// Later is what a server holds of a later incarnation of an index than the one in force.
type Later struct {
	Server   string
	Identity string
}

// Missing says what a server lacks.
type Missing struct {
	Server   string
	What     string // Chunks, Locks or Places
	Asked    uint64
	Has      uint64 // that the index has already
	Total    uint64 // that the server has
	Left     uint64 // that nobody was granted
	Kept     uint64 // of these are kept for older indexes
	Older    []string
	Lacks    uint64 // how much is missing
	Draining bool   // there may be room, but the server hands out nothing
}

// Resources that can be missing.
const (
	Chunks = "chunks"
	Locks  = "locks"
	Places = "places for indexes"
)

// Never reports whether the server will never have as much.
func (m *Missing) Never() bool { return m.Asked > m.Total }

// Refused is a quota that would fall below what is in use.
type Refused struct {
	Server string
	Asked  uint64
	Used   uint64
	Has    uint64 // the quota that stays
}

// room is what is left of a server while claims are gone through, the oldest first.
type room struct {
	*Server
	chunks, locks, onChip, places account
	older                         []string // that wait here
}

// account counts one kind of thing.
type account struct {
	total uint64
	left  uint64 // nobody was granted
	kept  uint64 // of these are kept for older indexes
}

func (a *account) free() uint64 { return a.left - min(a.left, a.kept) }

func (a *account) subtract(n uint64) { a.left -= min(a.left, n) }

func (a *account) reserve(n uint64) { a.kept += min(a.free(), n) }

// Decide says what is to be done, the oldest claim first.
func Decide(servers []Server, claims []Claim) []Verdict {
	rooms := make(map[string]*room, len(servers))
	for i := range servers {
		rooms[servers[i].Name] = open(&servers[i])
	}
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Object, b.Object))
	})
	verdicts := make([]Verdict, len(claims))
	for i := range claims {
		c, v := &claims[i], &verdicts[i]
		v.Object = c.Object
		if c.Idle && !c.Leaving {
			continue
		}
		v.evict(c, servers)
		switch {
		case c.Leaving, len(v.Later) > 0:
		case c.Served:
			v.serve(c, rooms)
		default:
			v.admit(c, rooms)
		}
	}
	return verdicts
}

func open(s *Server) *room {
	r := &room{
		Server: s, chunks: account{total: s.Chunks, left: s.Chunks}, locks: account{total: s.Locks, left: s.Locks},
		onChip: account{total: s.OnChip, left: s.OnChip}, places: account{total: MaxPlaces, left: MaxPlaces},
	}
	for _, h := range s.Held {
		r.chunks.subtract(h.Chunks)
		r.locks.subtract(h.Locks)
		r.onChip.subtract(h.OnChip)
		r.places.subtract(1)
	}
	return r
}

// held is what a server has granted to an identity; nil = it does not know it.
func (r *room) held(identity string) *Held {
	for i := range r.Held {
		if r.Held[i].Identity == identity {
			return &r.Held[i]
		}
	}
	return nil
}

// Of reports whether an identity is one of an object's.
func Of(identity, object string) bool {
	return identity == object || strings.HasPrefix(identity, object+"/")
}

// Incarnation is which incarnation of an object an identity names. One that cannot be read counts
// as later than all others.
func Incarnation(identity, object string) uint64 {
	if identity == object {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(identity, object+"/"), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

// evict takes back what earlier incarnations of the object have, and all of an object that leaves.
// Somebody gets it only once the servers say that it is free. Where a server holds a later
// incarnation nothing is taken back anywhere: data that is served lies there.
func (v *Verdict) evict(c *Claim, servers []Server) {
	force := Incarnation(c.Identity, c.Object)
	for _, s := range servers {
		for _, h := range s.Held {
			if !Of(h.Identity, c.Object) {
				continue
			}
			switch held := Incarnation(h.Identity, c.Object); {
			case c.Leaving, held < force:
				v.Steps = append(v.Steps, Step{Server: s.Name, Identity: h.Identity, Evict: true, Had: h.Chunks})
			case held > force:
				v.Later = append(v.Later, Later{s.Name, h.Identity})
			}
		}
	}
	if len(v.Later) > 0 {
		v.Steps = nil
	}
}

// serve looks at each server of a served index by itself.
func (v *Verdict) serve(c *Claim, rooms map[string]*room) {
	for _, w := range c.Wants {
		r := rooms[w.Server]
		if r == nil {
			v.Absent = append(v.Absent, w.Server)
			continue
		}
		h := r.held(c.Identity)
		switch {
		case h != nil && w.Chunks < h.Used:
			v.Refused = append(v.Refused, Refused{Server: w.Server, Asked: w.Chunks, Used: h.Used, Has: h.Chunks})
		case h != nil && w.Chunks == h.Chunks:
		case h != nil && w.Chunks < h.Chunks:
			v.Steps = append(v.Steps, Step{Server: w.Server, Identity: c.Identity, Chunks: w.Chunks, Had: h.Chunks})
		default:
			missing := r.missing(w, h)
			if len(missing) == 0 {
				v.Steps = append(v.Steps, r.grant(c, w, h))
				continue
			}
			v.Missing = append(v.Missing, missing...)
			if !slices.ContainsFunc(missing, func(m Missing) bool { return m.Never() }) {
				r.wait(c, w, h)
			}
		}
	}
}

// admit gives a new index all that it asks for, or keeps it for the index as far as it is there.
func (v *Verdict) admit(c *Claim, rooms map[string]*room) {
	for _, w := range c.Wants {
		if r := rooms[w.Server]; r == nil {
			v.Absent = append(v.Absent, w.Server)
		} else {
			v.Missing = append(v.Missing, r.missing(w, r.held(c.Identity))...)
		}
	}
	waits := len(v.Missing) > 0
	never := slices.ContainsFunc(v.Missing, func(m Missing) bool { return m.Never() })
	for _, w := range c.Wants {
		r := rooms[w.Server]
		if r == nil || len(v.Absent) > 0 {
			continue // it waits for a server, not for room
		}
		h := r.held(c.Identity)
		switch {
		case !waits && h != nil && h.Chunks == w.Chunks:
		case !waits:
			v.Steps = append(v.Steps, r.grant(c, w, h))
		case h != nil && h.Chunks > 0 && h.Used == 0 && len(r.older) > 0:
			// An older one waits for it. The place and its locks stay; if somebody uses a chunk by
			// now, the server refuses.
			v.Steps = append(v.Steps, Step{Server: w.Server, Identity: c.Identity, Had: h.Chunks})
			if !never {
				r.wait(c, w, h)
			}
		case !never:
			r.wait(c, w, h)
		}
	}
}

// missing is what there is not enough of for w; h is what the index has.
func (r *room) missing(w Want, h *Held) (all []Missing) {
	look := func(what string, a *account, asked, has uint64) {
		need := asked - min(asked, has)
		if need > 0 && (need > a.free() || r.Draining) {
			all = append(all, Missing{
				Server: r.Name, What: what, Asked: asked, Has: has, Total: a.total, Left: a.left, Kept: a.kept, Older: r.older,
				Lacks: need - min(need, a.free()), Draining: r.Draining,
			})
		}
	}
	if h != nil {
		look(Chunks, &r.chunks, w.Chunks, h.Chunks)
		return all
	}
	look(Chunks, &r.chunks, w.Chunks, 0)
	look(Locks, &r.locks, max(w.Locks, leastLocks), 0)
	look(Places, &r.places, 1, 0)
	return all
}

// leastLocks is the least that a server gives.
const leastLocks = 4

// grant gives w, for which there is room.
func (r *room) grant(c *Claim, w Want, h *Held) Step {
	s := Step{Server: w.Server, Identity: c.Identity, Chunks: w.Chunks}
	if h != nil {
		s.Had = h.Chunks
		r.chunks.subtract(w.Chunks - min(w.Chunks, h.Chunks))
		return s
	}
	s.Locks, s.HostLocks = w.Locks, r.hostLocks(w)
	if s.Locks == 0 && r.locks.kept+r.onChip.kept > 0 {
		s.Locks = r.defaultLocks(s.HostLocks) // the server does not know what is kept
	}
	least := max(s.Locks, leastLocks)
	r.chunks.subtract(w.Chunks)
	r.places.subtract(1)
	r.locks.subtract(least)
	if !s.HostLocks {
		r.onChip.subtract(least)
	}
	return s
}

// hostLocks reports whether the locks of a new place go to host memory, though the NIC has some:
// not enough is free there, or it is kept.
func (r *room) hostLocks(w Want) bool {
	return r.OnChip > 0 && r.Locks > r.OnChip && r.onChip.free() < max(w.Locks, leastLocks)
}

// defaultLocks is how many locks an index gets that does not say how many: an eighth of what is
// free and not kept, as the server would give.
func (r *room) defaultLocks(host bool) uint64 {
	free := r.locks.free()
	if !host && r.OnChip > 0 {
		free = min(free, r.onChip.free())
	}
	return max(leastLocks, free/8&^(leastLocks-1))
}

// wait keeps for an index what there is of w.
func (r *room) wait(c *Claim, w Want, h *Held) {
	r.older = append(slices.Clip(r.older), c.Name)
	if h != nil {
		r.chunks.reserve(w.Chunks - min(w.Chunks, h.Chunks))
		return
	}
	r.chunks.reserve(w.Chunks)
	r.places.reserve(1)
	r.locks.reserve(max(w.Locks, leastLocks))
	r.onChip.reserve(max(w.Locks, leastLocks))
}
