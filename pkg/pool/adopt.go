package pool

import "errors"

// Adoption of chunks that fenced clients left.
//
// # A table with a word that says nothing
//
// No client writes such a word, wherever it dies: words are written whole, and those of closed runs
// are cleared before a run over them has one (slab.go). So the memory was damaged, or a program
// wrote what it must not. The word may have been that of a run with nodes in use, of which nobody
// can tell the size, and its slabs may begin at any slab before. So no slab of such a chunk is
// opened, and the chunk is not given back. The runs that the table does say serve on, and their
// nodes are used again. To reclaim more would take a survey of the whole index by its design, with
// nobody at work; it would save one chunk for each damage. Dump the index and restore it instead:
// damage of a table is seldom the only one.

// adopt takes over a chunk with runs of a unit that a fenced client left on server i, with all that
// its table says. ErrPoolFull: there is none. Nobody else of this client knows the chunk before its
// nodes were looked at. Where that fails the chunk stays as it is, and goes to the next client one
// day.
func (a *allocator) adopt(i int, unit uint64) error {
	p, srv := a.pool, a.pool.servers()[i]
	off, err := a.fetchChunk(i, unit, true)
	if err != nil {
		return err
	}
	first := NewAddr(srv.id, off)
	var found []Slab
	var never [][]int // by slab: the nodes that were never written
	unknown := 0
	err = a.calling(func() error {
		w, err := p.newSweeper(int(srv.geometry.tables))
		if err != nil {
			return err
		}
		found, unknown, err = w.table(first, srv.grant.ChunkBytes)
		for _, k := range found {
			var unwrittens []int
			if err == nil {
				err = w.readHeads(k.First, k.NodeBytes, k.Nodes, func(n int, m Mark) {
					if m == unwritten {
						unwrittens = append(unwrittens, n)
						return
					}
					// a sweep, which may wait for locks, finds it again
					srv.wantSafe(reachOf(m))
				})
			}
			never = append(never, unwrittens)
		}
		return errors.Join(err, w.s.Close())
	})
	if err != nil {
		return err
	}
	p.adopted.Add(1)
	k := a.addChunk(i, first, unit)
	for n := range k.dirty {
		k.dirty[n] = true
	}
	k.damaged = unknown > 0
	for n := range found {
		f := &found[n]
		k.written[f.at] = f.shape.run
		b := a.install(a.classOf(f.NodeBytes, f.shape.strip), k, f.shape, f.at)
		b.cut, b.ready = b.nodes, true
		if b.cut > 0 {
			k.busy++
		}
		for _, node := range never[n] {
			a.pushFree(b, node)
		}
	}
	return nil
}

// table reads the table of the chunk at first.
func (w *sweeper) table(first Addr, chunkBytes uint64) (found []Slab, unknown int, err error) {
	b := w.node[:TableBytes(chunkBytes)]
	w.s.Begin()
	w.s.Read(first, b)
	if err := w.s.Post(); err != nil {
		return nil, 0, err
	}
	found, unknown = Slabs(b, first, chunkBytes)
	return found, unknown, nil
}
