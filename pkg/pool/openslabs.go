package pool

import (
	"encoding/binary"
	"errors"
	"iter"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// mostOpened is how many slabs are opened at once at most.
const mostOpened = 32

// openSlabs opens runs of class c on server i, where this client has room for them: at least one,
// and as many as it takes for so many nodes. It gives up a.mu to write the table.
//
// Where the requests of an opening fail, nobody knows which of them took effect, and the others may
// yet do so, until this client is fenced: its queue pair is dead, its connection is not (G3). So
// such a run keeps its slabs, and what becomes of it depends on its requests.
//
//   - A run whose memory was zero has but one, the WRITE of its word. The next opening of the class
//     WRITEs the same word again, by another queue pair, before it opens any other run. When that
//     is confirmed, the run serves. The late WRITE changes nothing as long as the table has that
//     word: so the run is never closed, and its chunk not given back.
//   - A run whose slabs were used before has WRITEs of zero over them. One that is late would
//     destroy nodes. So nobody gets these slabs before this client ends, and no run begins where a
//     late WRITE of zero would meet its word. An adopter finds the slabs as never used, or as a run
//     that nobody wrote. The words of closed runs that it was to clear may stay for good: whoever
//     opens other slabs that they name clears them again. Openings are of one run each until one
//     succeeds, so a server that stands still for long costs few slabs.
func (a *allocator) openSlabs(c *class, i, nodes int) (some bool, err error) {
	s := c.shapes[i]
	opened, slabs := a.provisionalSlabs(c, i)
	for _, b := range opened {
		nodes -= b.nodes
	}
	for ; len(opened) == 0 || nodes > 0 && !c.failed[i] && slabs+s.run <= mostOpened; slabs += s.run {
		k, at := a.vacancy(i, s)
		if k == nil {
			break
		}
		b := a.install(c, k, s, at)
		opened = append(opened, b)
		nodes -= b.nodes
	}
	if len(opened) == 0 {
		return false, nil
	}
	begun := false
	var cleared []tableWord
	err = a.calling(func() (err error) { begun, cleared, err = a.pool.writeSlabs(i, s, opened); return err })
	if c.failed[i] = err != nil; c.failed[i] {
		for _, w := range cleared {
			w.k.late[w.n] = true
			w.k.written[w.n] = max(w.k.written[w.n], w.run)
		}
		for _, b := range opened {
			switch {
			case b.late || begun && b.plain:
				b.late = true
				c.provisional[i] = append(c.provisional[i], b)
			case !begun:
				a.remove(b)
			}
		}
		return false, err
	}
	for _, b := range opened {
		c.addUncut(b)
	}
	return true, nil
}

// provisionalSlabs pops the runs of c on server i whose opening failed, as many as are opened at
// once, and counts their slabs.
func (a *allocator) provisionalSlabs(c *class, i int) (some []*slab, slabs int) {
	list := c.provisional[i]
	n := 0
	for n < len(list) && (n == 0 || slabs+list[n].run <= mostOpened) {
		slabs += list[n].run
		n++
	}
	c.provisional[i] = append([]*slab(nil), list[n:]...)
	return list[:n:n], slabs
}

// staleWords are the words of the table that name closed runs which b overlaps.
func (k *chunk) staleWords(b *slab) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := range min(len(k.written), b.at+b.run) {
			if k.written[n] > 0 && n+k.written[n] > b.at && !yield(n) {
				return
			}
		}
	}
}

// tableWord is word n of the table of k, which names run slabs.
type tableWord struct {
	k      *chunk
	n, run int
}

// zeroPiece is how much of a run one WRITE zeroes.
const zeroPiece = 16 << 10

// writeSlabs writes the headers of runs of sh on server i: see slab.go. begun is false if nothing
// can have taken effect, as no session was to be had. cleared are the words of closed runs.
func (p *Pool) writeSlabs(i int, sh shape, opened []*slab) (begun bool, cleared []tableWord, err error) {
	g := &p.servers()[i].geometry
	s, err := p.NewSession(zeroPiece + 64*mostOpened)
	if err != nil {
		return false, nil, err
	}
	s.SetLimit(p.limit)
	s.certain = true
	s.Begin()
	zero, err := s.Buffer(zeroPiece)
	write := func(at Addr, b []byte) {
		if err == nil && len(s.lists[i]) == verbs.MaxList {
			err = s.Post()
		}
		s.write(at, b)
	}
	for _, b := range opened {
		if err != nil {
			break
		}
		k := b.chunk
		b.plain = true
		for n := range k.staleWords(b) {
			if !b.late { // else it is the run's own
				write(k.first+Addr(8*n), s.zero)
				cleared = append(cleared, tableWord{k, n, k.written[n]})
				k.written[n], b.plain = 0, false
			}
		}
		from, end := g.bounds(sh, b.at)
		for n := b.at; n < b.at+b.run; n++ {
			to := min(end, uint64(n+1)*g.slab)
			if n == g.slabs-1 {
				to = end
			}
			for at := max(from, uint64(n)*g.slab); k.dirty[n] && !b.late && at < to; at += zeroPiece {
				write(k.first+Addr(at), zero[:min(zeroPiece, to-at)])
				b.plain = false
			}
			k.dirty[n] = true
		}
		k.written[b.at] = b.run
		var word []byte
		if word, err = s.Buffer(8); err == nil {
			binary.LittleEndian.PutUint64(word, uint64(sh.word(g)))
			write(k.first+Addr(8*b.at), word)
		}
	}
	if err == nil {
		err = s.Post()
	}
	return true, cleared, errors.Join(err, s.Close())
}
