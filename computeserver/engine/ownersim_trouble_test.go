package engine

import (
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// scale changes how many pods there shall be, and makes and removes them.
func (w *ownWorld) scale() {
	for !w.over {
		w.main.Sleep(w.rare(w.UpTo(min(time.Duration(w.kinds), 2) * time.Second)))
		if !w.quiet && !w.load.auto {
			w.desired = 1 + w.Random.IntN(4)
		}
		var stay []*pod
		for _, d := range w.living() {
			if !d.leaving {
				stay = append(stay, d)
			}
		}
		for len(stay) > w.desired {
			d := stay[len(stay)-1]
			d.leaving, d.leftAt = true, w.Now()
			stay = stay[:len(stay)-1]
		}
		for n := len(stay); n < w.desired; n++ {
			w.newPod()
		}
	}
}

// trouble is what goes wrong.
func (w *ownWorld) trouble() {
	for !w.quiet {
		w.main.Sleep(w.rare(w.UpTo(1500 * time.Millisecond)))
		if w.quiet {
			return
		}
		m := w.memory[w.Random.IntN(len(w.memory))]
		var d *pod
		if all := w.living(); len(all) > 0 {
			d = all[w.Random.IntN(len(all))]
		}
		kind := w.Random.IntN(w.kinds)
		// rare otherwise, and seen only by who reads from the twin what the next one wrote
		if w.wrong == takenForDead {
			kind = 9
		}
		switch kind {
		case 0, 1:
			if d != nil {
				w.lose(d)
			}
		case 2:
			m.process.Freeze()
			w.After(w.UpTo(2*ownLease), nil, m.process.Thaw)
		case 3, 4:
			if d != nil {
				w.freeze(d.process, w.UpTo(2*ownLease))
			}
		case 5:
			if d != nil {
				d.process.Kill()
			}
		case 6:
			w.die(m)
		case 7:
			if m.half != nil {
				m.half.Disconnect(func(verbs.Peer) bool { return w.OneIn(2) })
			}
		case 8:
			if d != nil {
				w.cuts = append(w.cuts, cut2{d.name, m.id})
				w.After(w.UpTo(3*ownLease), nil, func() { w.mend(d.name, m.id) })
			}
		case 9:
			if d != nil {
				w.twin(d)
			}
		case 10:
			if d != nil {
				w.wide.jumps++
				d.process.Jump(w.UpTo(3 * ownLease))
			}
		case 11: // a machine that is paused, and its clock with it: leases last longer
			m.process.Pause()
			w.After(w.UpTo(2*ownLease), nil, m.process.Thaw)
		}
	}
}

func (w *ownWorld) freeze(p *simenv.Process, d time.Duration) {
	if w.wrong == clockStops {
		p.Pause()
	} else {
		p.Freeze()
	}
	w.After(d, nil, func() {
		if p.Frozen() {
			w.counts.thaws++
		}
		p.Thaw()
	})
}

// stumble lets a process stand still in the middle of what it is about to do at a memory server, at
// times; and that one meanwhile stand still, or begin anew.
func (w *ownWorld) stumble(p *simenv.Process, m *memoryServer, page bool) {
	if w.quiet || w.calm {
		return
	}
	if d := w.podNamed(p.Name()); page && m.id > 1 && w.kinds == 1 && d.gone && !d.stood {
		d.stood = true
		w.After(w.UpTo(10*time.Microsecond), nil, func() { w.freeze(p, ownLease+w.UpTo(3*ownLease)) })
		return
	}
	if !w.OneIn(40) {
		return
	}
	w.After(w.UpTo(20*time.Microsecond), nil, func() { w.freeze(p, w.UpTo(4*ownLease)) })
	switch {
	case w.OneIn(4):
		w.After(w.UpTo(ownLease), nil, func() { w.die(m) })
	case m.id > 1: // whose memory can be reached meanwhile
		m.process.Freeze()
		w.After(w.UpTo(4*ownLease), nil, m.process.Thaw)
	}
}

func (w *ownWorld) mend(process string, server uint16) {
	for i, c := range w.cuts {
		if c == (cut2{process, server}) {
			w.cuts = append(w.cuts[:i], w.cuts[i+1:]...)
			return
		}
	}
}

// heal ends all trouble.
func (w *ownWorld) heal() {
	w.cuts = nil
	for _, m := range w.memory {
		m.process.Thaw()
	}
	for _, d := range slices.Concat(w.pods, w.twins) {
		d.process.Thaw()
		if d.gone {
			d.process.Kill()
		}
	}
}
