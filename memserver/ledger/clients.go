package ledger

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"
)

// client is one incarnation of a compute server or tool within an index.
type client struct {
	id    uint16
	state clientState
	// of the process that registered it, on the home server; forgotten once it is fenced
	name string
}

// clientState only ever grows.
type clientState uint8

const (
	clientLive clientState = iota
	// it gets nothing any more, but it may not be quiet yet, or locks may still name it
	clientFencing
	clientFenced // nothing of it takes effect any more, and no lock names it
)

// Client is what the ledger knows of one client of an index.
type Client struct {
	ID     uint16
	Name   string
	Fenced bool
}

// Register gives a new client of an index its id: the next in ring order that the index does not
// know. Errors: ErrInvalid (see CheckName), ErrUnknownIndex, ErrExhausted.
func (l *Ledger) Register(identity, name string) (uint16, error) {
	p, _ := l.find(identity)
	if p == nil {
		return 0, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	if err := CheckName(name); err != nil {
		return 0, err
	}
	if len(p.clients) >= MaxClients {
		return 0, fmt.Errorf("%w: index %s has had %d clients, and a number is not used twice; dump it and restore it into a new one",
			ErrExhausted, identity, MaxClients)
	}
	if err := p.oneMore(); err != nil {
		return 0, err
	}
	id := p.lastClient
	for {
		if id++; id == 0 || id == NoClient {
			continue
		}
		if at, known := p.search(id); !known {
			p.clients = slices.Insert(p.clients, at, client{id: id, name: name})
			p.alive++
			p.lastClient = id
			return id, nil
		}
	}
}

// oneMore reports whether an index may have one more client that is not fenced. Errors:
// ErrExhausted.
func (p *place) oneMore() error {
	if live := p.live(); live >= MaxLive {
		return fmt.Errorf("%w: index %s has %d clients that are not fenced, which is the most; end those that are of no use, or fence them",
			ErrExhausted, p.identity, live)
	}
	return nil
}

// Meet makes a client known that registered at the home server. It has the bound of Register: each
// renewal looks at all clients that are not fenced, and the home server, which would refuse too
// many, knows nothing of ids that somebody made up. Errors: ErrExhausted, ErrFenced, ErrInvalid.
func (l *Ledger) Meet(identity string, id uint16) error {
	p, _ := l.find(identity)
	switch {
	case p == nil:
		return fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case id == 0 || id == NoClient:
		return fmt.Errorf("%w: client %d; ids are 1 to %d", ErrInvalid, id, MaxClients)
	}
	at, known := p.search(id)
	switch {
	case !known:
		if err := p.oneMore(); err != nil {
			return err
		}
		p.clients = slices.Insert(p.clients, at, client{id: id})
		p.alive++
	case p.clients[at].state != clientLive:
		return fenced(identity, id)
	}
	return nil
}

// Live reports whether a client is known and not fenced. Errors: ErrUnknownClient, ErrFenced.
func (l *Ledger) Live(identity string, id uint16) error {
	p, _ := l.find(identity)
	if p == nil {
		return fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	at, known := p.search(id)
	switch {
	case !known:
		return fmt.Errorf("%w: %d of index %s; connect first", ErrUnknownClient, id, identity)
	case p.clients[at].state != clientLive:
		return fenced(identity, id)
	}
	return nil
}

// Fenced reports whether a client is known and fenced.
func (l *Ledger) Fenced(identity string, id uint16) bool {
	p, _ := l.find(identity)
	return p != nil && p.isFenced(id)
}

// Complete reports whether the fence of a client is complete (see Finished).
func (l *Ledger) Complete(identity string, id uint16) bool {
	p, _ := l.find(identity)
	if p == nil {
		return false
	}
	at, known := p.search(id)
	return known && p.clients[at].state == clientFenced
}

// Fence ends a client, known or not, and reports whether that is news. Its end is not complete
// before Finished.
func (l *Ledger) Fence(identity string, id uint16) (news bool, err error) {
	p, _ := l.find(identity)
	switch {
	case p == nil:
		return false, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	case id == 0 || id == NoClient:
		return false, fmt.Errorf("%w: client %d; ids are 1 to %d", ErrInvalid, id, MaxClients)
	}
	at, known := p.search(id)
	switch {
	case !known:
		p.clients = slices.Insert(p.clients, at, client{id: id, state: clientFencing})
	case p.clients[at].state == clientLive:
		p.clients[at] = client{id: id, state: clientFencing}
		p.alive--
	default:
		return false, nil
	}
	return true, nil
}

// Finished says that nothing of a fenced client takes effect any more and that no lock names it. It
// need not be stored at once: a fence may be finished twice. The result reports whether the client
// is fenced completely now: no, if it never was or is live.
func (l *Ledger) Finished(identity string, id uint16) (complete bool) {
	p, _ := l.find(identity)
	if p == nil {
		return false
	}
	at, known := p.search(id)
	if !known || p.clients[at].state == clientLive {
		return false
	}
	p.clients[at].state = clientFenced
	return true
}

// clientSet is a set of clients of one index, quick to ask for each of many chunks.
type clientSet [1 << 16 / 64]uint64

func (s *clientSet) has(id uint16) bool { return s[id/64]>>(id%64)&1 == 1 }

// dead adds the clients to s whose fence is complete.
func (p *place) dead(s *clientSet) {
	for _, c := range p.clients {
		if c.state == clientFenced {
			s[c.id/64] |= 1 << (c.id % 64)
		}
	}
}

// Unfinished are the clients of an index that were fenced and not finished, in order.
func (l *Ledger) Unfinished(identity string) (ids []uint16) {
	if p, _ := l.find(identity); p != nil {
		for _, c := range p.clients {
			if c.state == clientFencing {
				ids = append(ids, c.id)
			}
		}
	}
	return ids
}

// Clients are those of an index, sorted by id; with a name, only the live ones of that name.
func (l *Ledger) Clients(identity, name string) (all []Client, err error) {
	p, _ := l.find(identity)
	if p == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	for _, c := range p.clients {
		if name == "" || c.name == name {
			all = append(all, Client{c.id, c.name, c.state != clientLive})
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

func (p *place) isFenced(id uint16) bool {
	at, known := p.search(id)
	return known && p.clients[at].state != clientLive
}

func (p *place) live() int { return p.alive }

func fenced(identity string, id uint16) error {
	return fmt.Errorf("%w: %d of index %s; register anew", ErrFenced, id, identity)
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

// run is how many clients from at on are one run of the stored form.
func (p *place) run(at int) int {
	n := 1
	for at+n < len(p.clients) {
		a, b := &p.clients[at+n-1], &p.clients[at+n]
		if b.id != a.id+1 || b.state != a.state || b.name != a.name {
			break
		}
		n++
	}
	return n
}

func (p *place) appendClients(dst []byte) []byte {
	u := binary.AppendUvarint
	runs := uint64(0)
	for at := 0; at < len(p.clients); at += p.run(at) {
		runs++
	}
	dst = u(dst, runs)
	next := uint16(0) // the id after the run before
	for at := 0; at < len(p.clients); {
		c, n := &p.clients[at], p.run(at)
		dst = u(u(u(dst, uint64(c.id-next)), uint64(n)), uint64(c.state))
		if c.state == clientLive {
			dst = append(u(dst, uint64(len(c.name))), c.name...)
		}
		at += n
		next = c.id + uint16(n)
	}
	return dst
}

func (r *reader) clients(p *place) {
	next := uint64(0)
	for range r.upTo(MaxClients, "number of runs of clients") {
		id := next + r.upTo(MaxClients, "client id")
		n := r.upTo(MaxClients, "run of clients")
		c := client{state: clientState(r.upTo(uint64(clientFenced), "state of clients"))}
		if c.state == clientLive {
			c.name = string(r.bytes(MaxClientName, "name of a client"))
		}
		if r.failed != "" || n == 0 || id == 0 || id+n > NoClient {
			r.fail("run of clients")
			return
		}
		for next = id; next < id+n; next++ {
			c.id = uint16(next)
			p.clients = append(p.clients, c)
			if c.state == clientLive {
				p.alive++
			}
		}
	}
}

func (p *place) checkClients() error {
	if len(p.clients) > MaxClients {
		return fmt.Errorf("%d clients", len(p.clients))
	}
	last, alive := uint16(0), 0
	for _, c := range p.clients {
		if c.state == clientLive {
			alive++
		}
		switch {
		case c.id <= last || c.id == NoClient:
			return fmt.Errorf("client %d follows client %d", c.id, last)
		case c.state > clientFenced || c.state != clientLive && c.name != "":
			return fmt.Errorf("client %d has state %d and name %q", c.id, c.state, c.name)
		}
		last = c.id
	}
	if alive != p.alive {
		return fmt.Errorf("%d clients are not fenced, counted as %d", alive, p.alive)
	}
	return nil
}
