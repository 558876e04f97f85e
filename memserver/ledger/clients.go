package ledger

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// client is one incarnation of a compute server or tool within an index.
type client struct {
	id         uint16
	state      clientState
	generation uint16 // how many clients of the index had the id before
	// of the process that registered it, on the home server; forgotten once it is fenced
	name string
}

// clientState only ever grows, until the id is given to the next client.
type clientState uint8

const (
	clientLive clientState = iota
	// it gets nothing any more, but it may not be quiet yet, or locks may still name it
	clientFencing
	clientFenced // nothing of it takes effect any more, and no lock names it
	// nothing is left of it here: its id may come again, with the next generation; see forget.go
	clientForgotten
)

// A client has a number within its index: its id in the lower 16 bits, and the id's generation in
// the upper ones. Locks and owners of chunks have the id, and everything that may come late has the
// number: calls, logs, intent slots.

// Number is the number of the client that has an id in a generation.
func Number(generation, id uint16) uint32 { return uint32(generation)<<16 | uint32(id) }

// isNumber reports whether a client can have a number.
func isNumber(number uint32) bool { return uint16(number) != 0 && uint16(number) != NoClient }

func (c *client) number() uint32 { return Number(c.generation, c.id) }

// Client is what the ledger knows of one client of an index.
type Client struct {
	Number uint32
	Name   string
	Fenced bool
}

// standing is what an index knows of a number.
type standing uint8

const (
	unknown standing = iota // nothing; of an earlier client with its id nothing is left
	live
	fencing
	complete // its fence is
	past     // it was forgotten, perhaps for a later client
	// an earlier client with its id is not forgotten here: the home server must not have given it
	early
)

// standing is what the index knows of a number, and where in clients its id is, or would be.
func (p *place) standing(number uint32) (s standing, at int) {
	at, known := p.search(uint16(number))
	if !known {
		return unknown, at
	}
	c := &p.clients[at]
	switch generation := uint16(number >> 16); {
	case generation < c.generation || generation == c.generation && c.state == clientForgotten:
		return past, at
	case generation > c.generation && c.state == clientForgotten:
		return unknown, at
	case generation > c.generation:
		return early, at
	}
	return live + standing(p.clients[at].state), at
}

// put makes c what is known of its id, at a place that standing returned.
func (p *place) put(at int, c client) {
	if at == len(p.clients) || p.clients[at].id != c.id {
		p.clients = slices.Insert(p.clients, at, client{id: c.id, state: clientFenced})
	}
	old := p.clients[at].state
	p.clients[at] = c
	for _, count := range []struct {
		of clientState
		n  *int
	}{{clientLive, &p.alive}, {clientForgotten, &p.forgotten}} {
		if old == count.of {
			*count.n--
		}
		if c.state == count.of {
			*count.n++
		}
	}
}

// Register gives a new client of an index its number. Its id is the next in ring order that the
// index does not know, or has forgotten. Errors: ErrInvalid (see CheckName), ErrUnknownIndex,
// ErrExhausted.
func (l *Ledger) Register(identity, name string) (number uint32, err error) {
	p, _ := l.find(identity)
	if p == nil {
		return 0, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	if err := CheckName(name); err != nil {
		return 0, err
	}
	if err := p.oneMore(); err != nil {
		return 0, err
	}
	id := p.lastClient
	for range l.shape.ids() {
		if id++; id == 0 || id > l.shape.ids() {
			id = 1
		}
		c := client{id: id, name: name}
		at, known := p.search(id)
		if known {
			if old := &p.clients[at]; old.state != clientForgotten || old.generation == lastGeneration {
				continue
			}
			c.generation = p.clients[at].generation + 1
		}
		p.put(at, c)
		p.lastClient = id
		return c.number(), nil
	}
	return 0, fmt.Errorf("%w: all %d client ids of index %s are in use; an id comes free when every memory server of the index has forgotten its client: "+
		"see that all of them are reachable, and open the index again", ErrExhausted, l.shape.ids(), identity)
}

// lastGeneration is the last one that an id can have.
const lastGeneration = 1<<16 - 1

// oneMore reports whether an index may have one more client that is not fenced. Errors:
// ErrExhausted.
func (p *place) oneMore() error {
	if live := p.liveClients(); live >= MaxLive {
		return fmt.Errorf("%w: index %s has %d clients that are not fenced, which is the most; end those that are of no use, or fence them",
			ErrExhausted, p.identity, live)
	}
	return nil
}

// Meet makes a client known that registered at the home server. It has the bound of Register: each
// renewal looks at all clients that are not fenced, and the home server, which would refuse too
// many, knows nothing of numbers that somebody made up. Errors: ErrExhausted, ErrFenced,
// ErrInvalid, ErrUnknownClient (an earlier client with its id is not forgotten here).
func (l *Ledger) Meet(identity string, number uint32) error {
	p, _ := l.find(identity)
	switch {
	case p == nil:
		return fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case !isNumber(number):
		return invalid(number)
	}
	switch s, at := p.standing(number); s {
	case unknown:
		if err := p.oneMore(); err != nil {
			return err
		}
		p.put(at, client{id: uint16(number), generation: uint16(number >> 16)})
	case live:
	case early:
		return fmt.Errorf("%w: %d of index %s: an earlier client with its id is not forgotten here; register anew", ErrUnknownClient, number, identity)
	default:
		return fenced(identity, number)
	}
	return nil
}

// Live reports whether a client is known and not fenced. Errors: ErrUnknownClient, ErrFenced.
func (l *Ledger) Live(identity string, number uint32) error {
	p, _ := l.find(identity)
	if p == nil {
		return fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	switch s, _ := p.standing(number); s {
	case live:
		return nil
	case unknown, early:
		return fmt.Errorf("%w: %d of index %s; connect first", ErrUnknownClient, number, identity)
	}
	return fenced(identity, number)
}

// Fenced reports whether a client is known and fenced. One that is forgotten is not known.
func (l *Ledger) Fenced(identity string, number uint32) bool {
	s := l.standing(identity, number)
	return s == fencing || s == complete
}

// Complete reports whether nothing is left to be done to fence a client: its fence is complete (see
// Finished), or it is forgotten.
func (l *Ledger) Complete(identity string, number uint32) bool {
	s := l.standing(identity, number)
	return s == complete || s == past
}

func (l *Ledger) standing(identity string, number uint32) (s standing) {
	if p, _ := l.find(identity); p != nil {
		s, _ = p.standing(number)
	}
	return s
}

// Fence ends a client, known or not, and earlier ones with its id that are not forgotten. It
// reports whether that is news. The client's end is not complete before Finished.
func (l *Ledger) Fence(identity string, number uint32) (news bool, err error) {
	p, _ := l.find(identity)
	switch {
	case p == nil:
		return false, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case !isNumber(number):
		return false, invalid(number)
	}
	switch s, at := p.standing(number); s {
	case early:
		p.renumber(p.clients[at].number(), number)
		fallthrough
	case unknown, live:
		p.put(at, client{id: uint16(number), generation: uint16(number >> 16), state: clientFencing})
		return true, nil
	}
	return false, nil
}

// renumber makes what an earlier client holds and left that of a later one with its id. Both are
// being fenced.
func (p *place) renumber(earlier, later uint32) {
	for i := range p.holdings {
		h := &p.holdings[i]
		if h.Client == earlier {
			h.Client = later
		}
		for k := range h.Inherits {
			if h.Inherits[k].Client == earlier {
				h.Inherits[k].Client = later
			}
		}
	}
}

// Finished says that nothing of a fenced client takes effect any more and that no lock names it. It
// need not be stored at once: a fence may be finished twice. The result reports whether the client
// is fenced completely now: no, if it never was, is live or is forgotten.
func (l *Ledger) Finished(identity string, number uint32) (done bool) {
	p, _ := l.find(identity)
	if p == nil {
		return false
	}
	s, at := p.standing(number)
	if s == fencing {
		p.clients[at].state = clientFenced
	}
	return s == fencing || s == complete
}

// clientSet is a set of clients of one index, quick to ask for each of many chunks.
type clientSet [1 << 16 / 64]uint64

func (s *clientSet) has(id uint16) bool { return s[id/64]>>(id%64)&1 == 1 }

func (s *clientSet) add(id uint16) { s[id/64] |= 1 << (id % 64) }

// addAdoptable adds the clients to s whose chunks may be adopted: those whose fence is complete,
// and NoClient, for those that are forgotten.
func (p *place) addAdoptable(s *clientSet) {
	s.add(NoClient)
	for _, c := range p.clients {
		if c.state == clientFenced {
			s.add(c.id)
		}
	}
}

// Unfinished are the clients of an index that were fenced and not finished, in order.
func (l *Ledger) Unfinished(identity string) (numbers []uint32) {
	if p, _ := l.find(identity); p != nil {
		for _, c := range p.clients {
			if c.state == clientFencing {
				numbers = append(numbers, c.number())
			}
		}
	}
	return numbers
}

// Clients are those of an index that are not forgotten, sorted by id; with a name, only the live
// ones of that name.
func (l *Ledger) Clients(identity, name string) (all []Client, err error) {
	p, _ := l.find(identity)
	if p == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for _, c := range p.clients {
		if c.state != clientForgotten && (name == "" || c.name == name) {
			all = append(all, Client{c.number(), c.name, c.state != clientLive})
		}
	}
	return all, nil
}

// Lease is the longest, in milliseconds, that a client may hold from this server although the
// server was started anew.
func (l *Ledger) Lease() uint64 { return l.lease }

// SetLease is called before a longer lease is granted, and once all leases that were longer are
// over.
func (l *Ledger) SetLease(milliseconds uint64) error {
	if milliseconds > MaxLease {
		return fmt.Errorf("%w: lease of %d ms; at most %d are possible", ErrInvalid, milliseconds, uint64(MaxLease))
	}
	l.lease = milliseconds
	return nil
}

func (p *place) search(id uint16) (at int, known bool) {
	return slices.BinarySearchFunc(p.clients, id, func(c client, id uint16) int { return int(c.id) - int(id) })
}

// isRefused reports whether a client gets nothing: it is fenced, forgotten, or an earlier one with
// its id is not forgotten here.
func (p *place) isRefused(number uint32) bool {
	s, _ := p.standing(number)
	return s != unknown && s != live
}

func (p *place) liveClients() int { return p.alive }

func fenced(identity string, number uint32) error {
	return fmt.Errorf("%w: %d of index %s; register anew", ErrFenced, number, identity)
}

func invalid(number uint32) error {
	return fmt.Errorf("%w: client %d; ids, the lower 16 bits, are 1 to %d", ErrInvalid, number, MaxClients)
}

// CheckName reports whether a process may have a name: two names that were cut to the same bytes
// would be one process, and the clients of the one would end those of the other.
func CheckName(name string) error {
	switch {
	case len(name) > MaxClientName:
		return fmt.Errorf("%w: name %.20q... of %d bytes; choose one of at most %d", ErrInvalid, name, len(name), MaxClientName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: name %q is not UTF-8", ErrInvalid, name)
	}
	return nil
}

// NumberOf is the number of the client of an index that has an id now. Errors: ErrUnknownIndex,
// ErrUnknownClient.
func (l *Ledger) NumberOf(identity string, id uint16) (uint32, error) {
	p, _ := l.find(identity)
	if p == nil {
		return 0, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	at, known := p.search(id)
	if !known || p.clients[at].state == clientForgotten {
		return 0, fmt.Errorf("%w: with id %d, of index %s", ErrUnknownClient, id, identity)
	}
	return p.clients[at].number(), nil
}
