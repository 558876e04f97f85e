package ledger

import (
	"encoding/binary"
	"fmt"
)

// run is how many clients from at on are one run of the stored form.
func (p *place) run(at int) int {
	n := 1
	for at+n < len(p.clients) {
		a, b := &p.clients[at+n-1], &p.clients[at+n]
		if b.id != a.id+1 || b.state != a.state || b.generation != a.generation || b.name != a.name {
			break
		}
		n++
	}
	return n
}

func (p *place) appendClients(dst []byte, version uint32) []byte {
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
		if version > plain {
			dst = u(dst, uint64(c.generation))
		}
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
		c := client{state: clientState(r.upTo(uint64(clientForgotten), "state of clients"))}
		if r.version > plain {
			c.generation = uint16(r.upTo(lastGeneration, "generation of clients"))
		}
		if c.state == clientLive {
			c.name = string(r.bytes(MaxClientName, "name of a client"))
		}
		if r.failed != "" || n == 0 || id == 0 || id+n > NoClient {
			r.fail("run of clients")
			return
		}
		for next = id; next < id+n; next++ {
			c.id = uint16(next)
			p.put(len(p.clients), c)
		}
	}
}

func (p *place) checkClients() error {
	if len(p.clients) > MaxClients {
		return fmt.Errorf("%d clients", len(p.clients))
	}
	last, alive, forgotten := uint16(0), 0, 0
	for _, c := range p.clients {
		switch c.state {
		case clientLive:
			alive++
		case clientForgotten:
			forgotten++
		}
		switch {
		case c.id <= last || c.id == NoClient:
			return fmt.Errorf("client %d follows client %d", c.id, last)
		case c.state > clientForgotten || c.state != clientLive && c.name != "":
			return fmt.Errorf("client %d has state %d and name %q", c.id, c.state, c.name)
		}
		last = c.id
	}
	if alive != p.alive || forgotten != p.forgotten {
		return fmt.Errorf("%d clients are not fenced and %d forgotten, counted as %d and %d", alive, forgotten, p.alive, p.forgotten)
	}
	return nil
}
