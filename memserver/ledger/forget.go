package ledger

import (
	"fmt"
)

// # When an id is given to another client
//
// A client has a 16-bit id, which locks and owners of chunks have room for, and a number, which
// says the id's generation, too. The home server gives an id again, with the next generation, once
// it has forgotten the client that had it. A server forgets a client when nothing is left of it
// there:
//
//   - its fence is complete. So nothing of it takes effect any more, wherever it was delayed, its
//     tokens are void, the epochs do not wait for it, and no lock and no lock word has its id;
//   - no fence of it is being finished by a second call;
//   - it holds no keys, and no holding inherits a log of it;
//   - no intent slot is its own, so no change of it is owed under a lock word.
//
// It may own chunks. They become NoClient's, and are adopted as before. Were they kept by the id,
// clients that died with a chunk each could have all ids there are; then nobody could register, and
// only who is registered adopts.
//
// Its lease need not be over: a lease matters to the keys that the client held, and these are
// granted to another client only when the lease is over.
//
// All servers of the index forget the client, the home last, and only if all others did. One that
// does not know it learns its number as forgotten. So once the home gives the id again, every
// server refuses the earlier client's number for ever, and the next one is unknown everywhere. A
// server that is down forgets nothing, and the id stays as it is. The order is kept by the client
// of the index that carries the calls out (pool/forget.go); servers do not talk to each other.
//
// What may come late has the number and not the id alone. Whatever comes of a forgotten client is
// refused as of a fenced one:
//
//   - calls: Connect, Renew, AllocateChunk, FreeChunk and those about holdings;
//   - a Fence, as of a client that read the number in a log, or was suspended: it does nothing, and
//     says nothing about the lease of the next client;
//   - redo logs, which lie in chunks of other clients after an adoption, and records of guards,
//     have the number;
//   - the sums in intent slots contain the number. So what an earlier owner left in a slot does not
//     verify for a later one with its id.
//
// A server that joins the index after the home forgot a client is not asked. It knows nothing of
// that client, unless a late Fence tells it. Then it hears of the next one with the id while it
// knows an earlier one: see standing early. It forgets the earlier one then, if nothing is left of
// it here (core.Core.Connect). So does Forget of the next one. If something were left, because a
// server missed the order, it refuses the next one, and a fence of the next one is a fence of both.
//
// Ids are given in ring order, so each is given again as late as possible.

// Forget forgets those of the clients of which nothing is left (see above), and returns them and
// those that were forgotten before. The others stay as they are. busy says of which ids something
// is left that the ledger does not know. Errors: ErrUnknownIndex, ErrInvalid.
func (l *Ledger) Forget(identity string, numbers []uint32, busy func(id uint16) bool) (gone []uint32, news bool, err error) {
	p, owner := l.find(identity)
	if p == nil {
		return nil, false, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	for _, number := range numbers {
		if !isNumber(number) {
			return nil, false, invalid(number)
		}
	}
	var left, orphans clientSet
	p.remains(&left)
	for _, number := range numbers {
		switch s, at := p.standing(number); s {
		case past:
		case early, unknown, complete:
			if s == early && p.clients[at].state != clientFenced {
				continue
			}
			if id := uint16(number); left.has(id) || busy(id) {
				continue
			}
			p.put(at, client{id: uint16(number), generation: uint16(number >> 16), state: clientForgotten})
			orphans.add(uint16(number))
			news = true
		default:
			continue
		}
		gone = append(gone, number)
	}
	for n := range l.chunks {
		if c := &l.chunks[n]; news && c.owner == owner && orphans.has(c.client) {
			c.client = NoClient
		}
	}
	return gone, news, nil
}

// Forgettable returns at most so many clients of an index that are fenced and of which the ledger
// has no keys nor logs left, if ids run short: when fewer than a quarter of them are known to be
// free. Each call goes on where the last one ended, so that clients which cannot be forgotten do
// not stand in the way of others.
func (l *Ledger) Forgettable(identity string, most int) (numbers []uint32) {
	p, _ := l.find(identity)
	if p == nil || len(p.clients)-p.forgotten <= int(l.shape.ids())*3/4 {
		return nil
	}
	var left clientSet
	p.remains(&left)
	from, _ := p.search(p.offered + 1)
	for i := range p.clients {
		c := &p.clients[(from+i)%len(p.clients)]
		if len(numbers) == most {
			break
		}
		p.offered = c.id
		if c.state == clientFenced && c.generation < lastGeneration && !left.has(c.id) {
			numbers = append(numbers, c.number())
		}
	}
	return numbers
}

// remains adds the clients of an index to s that hold keys, or have a log to be replayed.
func (p *place) remains(s *clientSet) {
	for i := range p.holdings {
		s.add(uint16(p.holdings[i].Client))
		for _, in := range p.holdings[i].Inherits {
			s.add(uint16(in.Client))
		}
	}
}
