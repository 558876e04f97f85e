package engine

import (
	"fmt"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Half of the runs with DEX are wide: hundreds of keys in many leaves, asked for by batches and
// scans. Stretches of keys are deleted and written again, most of them across the ends of ranges,
// so that leaves there split and merge while ranges move. Beside the operators a mover changes the
// map, at keys that divide leaves, and does not wait for handovers.

// wideWorld is what is so in a wide run.
type wideWorld struct {
	is     bool
	moving bool // there is a mover
	value  uint32

	scans, scanned, across, stretches, neighbours, moves, restarts, jumps int
}

func (s *wideWorld) add(o wideWorld) {
	s.scans += o.scans
	s.scanned += o.scanned
	s.across += o.across
	s.stretches += o.stretches
	s.neighbours += o.neighbours
	s.moves += o.moves
	s.restarts += o.restarts
	s.jumps += o.jumps
}

func (s *wideWorld) tame() bool {
	return s.scans == 0 || s.across == 0 || s.stretches == 0 || s.neighbours == 0 || s.moves == 0 || s.restarts == 0 || s.jumps == 0
}

func (s *wideWorld) String() string {
	return fmt.Sprintf("%d scans of %d keys across %d ends of ranges, %d stretches of keys deleted or written, %d beside moves, %d maps by the mover, %d memory servers restarted within moves, %d clocks that jumped",
		s.scans, s.scanned, s.across, s.stretches, s.neighbours, s.moves, s.restarts, s.jumps)
}

// newWide decides which runs are wide.
func (w *ownWorld) newWide(seed uint64) {
	switch seed % 16 {
	case 4, 6, 10, 12:
		w.wide.is = true
	case 14: // there is no other trouble than moves
		w.wide.is = seed/16%2 == 1
	}
	w.wide.is = w.wide.is && !w.doom.only
	if !w.wide.is {
		return
	}
	w.wide.moving = w.load.hot < 0 && !w.load.auto || w.OneIn(2)
	w.dex.keys = 200 + w.Random.IntN(600)
	w.dex.chunkBytes *= 2
	w.dex.cache = []int{12 << 10, 24 << 10, 96 << 10, 384 << 10}[w.Random.IntN(4)]
}

// wideProgram asks for keys all the time, in several threads, so that those that wait for a range
// do not hold up the others.
func (w *ownWorld) wideProgram(n int) {
	p := w.NewProcess(fmt.Sprint("program-", n))
	threads := 6
	if w.calm {
		threads = 2
	}
	for thread := range threads {
		id := 16*thread + n
		p.Go("main", func() {
			for !w.quiet {
				p.Sleep(w.widePause())
				all := w.running()
				if len(all) == 0 {
					continue
				}
				d := all[w.Random.IntN(len(all))]
				switch w.Random.IntN(8) {
				case 0, 1, 2, 3:
					w.someBatch(p, id, d)
				case 4, 5, 6:
					w.stretch(p, id)
				default:
					w.someScan(p, id, d)
				}
			}
		})
	}
}

func (w *ownWorld) widePause() time.Duration {
	if w.load.slowly {
		return w.UpTo(800 * time.Millisecond)
	}
	if w.calm {
		return w.UpTo(400 * time.Millisecond)
	}
	return w.UpTo(120 * time.Millisecond)
}

// newValue is what nobody wrote before.
func (w *ownWorld) newValue() uint32 {
	w.wide.value++
	return w.wide.value<<8 | 0xFE
}

// someBatch asks for keys of all ranges, or for some that stand beside each other.
func (w *ownWorld) someBatch(p *simenv.Process, program int, d *pod) {
	from, near := w.someKey(), !w.OneIn(4)
	var batch []asked
	for range 1 + w.Random.IntN(16) {
		in := asked{key: w.someKey(), kind: someKinds[w.Random.IntN(len(someKinds))]}
		if near {
			in.key = min(w.keys()-1, from+w.Random.IntN(20))
		}
		if in.stores() {
			in.value = w.newValue()
		}
		batch = append(batch, in)
	}
	_ = w.requests(p, program, d, batch, 2*ownLimit)
}

var someKinds = []rpcv1.Operation_Kind{
	rpcv1.Operation_LOOKUP, rpcv1.Operation_LOOKUP, rpcv1.Operation_LOOKUP,
	rpcv1.Operation_INSERT, rpcv1.Operation_UPDATE, rpcv1.Operation_UPSERT, rpcv1.Operation_EXCHANGE, rpcv1.Operation_DELETE,
}

// someScan reads keys of several ranges, mostly.
func (w *ownWorld) someScan(p *simenv.Process, program int, d *pod) {
	from := w.Random.IntN(w.keys())
	to, most := min(w.keys(), from+1+w.Random.IntN(200)), 0
	switch w.Random.IntN(6) {
	case 0:
		from, to = 0, w.keys()
	case 1:
		most = 1 + w.Random.IntN(40)
	}
	_ = w.scan(p, program, d, from, to, w.OneIn(2), w.OneIn(4), most)
}

// stretch changes keys that stand beside each other: all are deleted, or all are written.
func (w *ownWorld) stretch(p *simenv.Process, program int) {
	from := w.someKey()
	if m := w.newestMap(); m != nil && !w.OneIn(4) {
		from, _ = w.keyNumber(m.Ranges[w.Random.IntN(len(m.Ranges))].Start)
		from = max(0, from-w.Random.IntN(40))
	}
	todo := w.sameOf(from, from+10+w.Random.IntN(60))
	w.wide.stretches++
	for part := range slices.Chunk(todo, 1+w.Random.IntN(24)) {
		all := w.running()
		if w.quiet || len(all) == 0 {
			return
		}
		_ = w.requests(p, program, all[w.Random.IntN(len(all))], part, 2*ownLimit)
	}
}

// sameOf is one operation for each key of a stretch, upwards or downwards.
func (w *ownWorld) sameOf(from, to int) (all []asked) {
	kind := []rpcv1.Operation_Kind{rpcv1.Operation_DELETE, rpcv1.Operation_DELETE, rpcv1.Operation_INSERT, rpcv1.Operation_UPSERT}[w.Random.IntN(4)]
	for n := max(0, from); n < min(to, w.keys()); n++ {
		in := asked{key: n, kind: kind}
		if kind != rpcv1.Operation_DELETE {
			in.value = w.newValue()
		}
		all = append(all, in)
	}
	if w.OneIn(2) {
		slices.Reverse(all)
	}
	return all
}

// beside changes keys that stand beside those that a process is about to give or take, while it
// does.
func (w *ownWorld) beside(o *simenv.Process, start, end []byte) {
	d := w.podNamed(o.Name())
	if !w.wide.is || w.quiet || !w.begun || d == nil || d.process != o {
		return
	}
	if !w.calm && w.OneIn(10) { // it finds its content again
		w.wide.restarts++
		m := w.memory[w.Random.IntN(len(w.memory))]
		w.After(w.UpTo(time.Millisecond), nil, func() { w.die(m) })
	}
	if w.OneIn(4) {
		return
	}
	from, _ := w.keyNumber(start)
	to := w.keys()
	if len(end) > 0 {
		to, _ = w.keyNumber(end)
	}
	var sides [][]asked
	if from > 0 {
		sides = append(sides, w.sameOf(from-1-w.Random.IntN(24), from))
	}
	if to < w.keys() {
		sides = append(sides, w.sameOf(to, to+1+w.Random.IntN(24)))
	}
	for n, all := range sides {
		p := w.NewProcess("neighbour")
		w.wide.neighbours++
		p.Go("main", func() { _ = w.requests(p, 200+n, d, all, 2*ownLimit) })
	}
}

// newestMap is the map at the home, nil while there is none.
func (w *ownWorld) newestMap() *partition.Map {
	b := w.memory[0].bare
	if b == nil {
		return nil
	}
	_, encoded, _ := b.Map(ownIndex)
	m, err := partition.Unmarshal(encoded)
	if err != nil {
		return nil
	}
	return m
}

// bounds is how many ends of ranges lie within keys.
func (w *ownWorld) bounds(from, to int) (n int) {
	m := w.newestMap()
	if m == nil {
		return 0
	}
	for _, r := range m.Ranges[1:] {
		if at, _ := w.keyNumber(r.Start); at > from && at < to {
			n++
		}
	}
	return n
}

// mover gives some keys to some server, again and again. Safety does not rest on the map, so no
// such map may do harm.
func (w *ownWorld) mover() {
	p := w.NewProcess("mover")
	k := &path{w: w, p: p, name: p.Name()}
	p.Go("main", func() {
		for !w.quiet {
			p.Sleep(w.UpTo(700 * time.Millisecond))
			encoded, err := k.Map(0, 0)
			if err != nil || len(encoded) == 0 {
				continue
			}
			m, err := partition.Unmarshal(encoded)
			if err != nil || w.quiet {
				continue
			}
			if w.swapTo(k, m, w.someMove(m)) {
				w.wide.moves++
			}
		}
	})
}

// someMove is keys and whom to give them: a few, or very many so that ranges become fewer.
func (w *ownWorld) someMove(m *partition.Map) partition.Planned {
	to := m.Servers[w.Random.IntN(len(m.Servers))].ID
	from := w.Random.IntN(w.keys())
	span := 1 + w.Random.IntN(60)
	if w.OneIn(3) || len(m.Ranges) > 24 {
		span = w.keys() / 2
	}
	move := partition.Planned{Start: w.key(from), To: to}
	if from+span < w.keys() {
		move.End = w.key(from + span)
	}
	return move
}
