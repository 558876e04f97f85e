package pool

import "slices"

// giveBack closes slabs of server i that are empty, and takes out the chunks in which nothing else
// is, but for what serves the next nodes and slabs.
func (a *allocator) giveBack(i int) (gone []leaving) {
	g := &a.pool.servers()[i].geometry
	vacant := map[uint64]int{} // slabs, by the unit of their chunk
	for _, k := range a.chunks[i] {
		if !k.damaged {
			vacant[k.unit] += k.vacant
		}
	}
	for n := len(a.chunks[i]) - 1; n >= 0; n-- {
		k := a.chunks[i][n]
		if k.busy > 0 || k.damaged || k == a.swept || !k.settled() {
			continue
		}
		// The rest must be able to serve a few slabs more, so that no chunk comes and goes with one
		// node; or a few nodes more, where the chunk has no slab to serve: strips keep all of its
		// slabs open. Runs of half a chunk come and go with theirs.
		if k.unit == g.slab && vacant[k.unit]-k.vacant < max(1, g.slabs/16) && !(k.vacant == 0 && k.spared()) {
			continue
		}
		vacant[k.unit] -= k.vacant
		l := leaving{first: k.first}
		for at := 0; at < g.slabs; at++ {
			b := k.slabs[at]
			if b == nil {
				continue
			}
			if s, ok := b.stripOf(g); ok {
				l.strips = append(l.strips, s)
			}
			a.close(b)
		}
		a.chunks[i] = slices.Delete(a.chunks[i], n, n+1)
		gone = append(gone, l)
	}
	a.emptied[i] = slices.DeleteFunc(a.emptied[i], func(b *slab) bool {
		b.candidate = b.isFree() && !(b.mayClose() && b.class.canSpare(i, b) && a.swept != b.chunk && a.closed(b))
		return !b.candidate
	})
	return gone
}

// spared reports whether the classes of k's runs, whose nodes are all free, can serve a few nodes
// more without them.
func (k *chunk) spared() bool {
	spared := map[*class]int{}
	for b := range k.open() {
		spared[b.class] += b.nodes
	}
	for c, nodes := range spared { //env:real the order does not matter
		if c.freedNodes[k.server]+c.uncutNodes[k.server]-nodes < max(1, nodes/16) {
			return false
		}
	}
	return true
}

// settled reports whether the table says all open slabs of k, and nothing changes it any more.
func (k *chunk) settled() bool {
	return !slices.ContainsFunc(k.slabs, func(b *slab) bool { return b != nil && (!b.ready || b.late) })
}

// mayClose reports whether b may be closed while its chunk stays: see slab.go.
func (b *slab) mayClose() bool { return !b.class.strip && !b.late }

// canSpare reports whether a class can serve a few nodes more of server i without b, so that no
// slab comes and goes with one node. One that serves none needs none.
func (c *class) canSpare(i int, b *slab) bool {
	if !c.serves {
		return true
	}
	few := b.nodes / 16
	if b.run <= len(b.chunk.slabs)/16 {
		few = max(1, few)
	}
	return c.freedNodes[i]+c.uncutNodes[i]-b.nodes >= few
}

func (a *allocator) closed(b *slab) bool {
	a.close(b)
	return true
}

// closeEmpty closes all slabs of server i that are empty, of whatever class, and reports whether
// there were any: what is done before the pool is called full.
func (a *allocator) closeEmpty(i int) (some bool) {
	for _, k := range a.chunks[i] {
		for _, b := range k.slabs {
			if b != nil && b.isFree() && b.mayClose() && k != a.swept {
				a.close(b)
				some = true
			}
		}
	}
	return some
}

// giveVacant gives a chunk of server i back in which nothing is, and which cannot serve runs of
// unit; it reports whether there was one. It gives up a.mu for the call.
func (a *allocator) giveVacant(i int, unit uint64) bool {
	n := slices.IndexFunc(a.chunks[i], func(k *chunk) bool {
		return k.vacant == len(k.slabs) && k.unit != unit && !k.damaged && k != a.swept
	})
	if n < 0 {
		return false
	}
	first, srv := a.chunks[i][n].first, a.pool.servers()[i]
	a.chunks[i] = slices.Delete(a.chunks[i], n, n+1)
	// as in reap, whatever comes of it
	_ = a.calling(func() error {
		return a.pool.control.FreeChunk(srv.id, a.pool.number, first.Offset(), a.pool.limit)
	})
	return true
}
