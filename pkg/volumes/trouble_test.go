package volumes

import (
	"math/rand/v2"
	"slices"
	"time"
)

// trouble is what goes wrong.
func (w *world) trouble() {
	for until := w.Now() + troubled; w.Now() < until; {
		w.main.Sleep(w.UpTo(600 * time.Millisecond))
		d, other := w.any(), w.any()
		kind := w.Random.IntN(13)
		if w.moves {
			kind = []int{0, 9, 9, 10, 11}[w.Random.IntN(5)]
			if w.record.Number > 0 && kind != 9 && w.OneIn(2) {
				d = w.find(w.record.Primary.Pod)
			}
		}
		if w.files && w.losing && w.losses.IntN(3) == 0 {
			kind = 8
		}
		if w.soon && w.losses.IntN(4) == 0 {
			kind = 8
		}
		if w.parts != nil && w.record.Number > 0 && w.parts.IntN(4) == 0 {
			w.part(w.find(w.record.Primary.Pod), w.parts)
		}
		switch kind {
		case 0:
			if d.server != nil {
				w.counts.kills++
				d.server.process.Kill()
			}
		case 1:
			if d.server != nil {
				w.freeze(d.server.process, w.UpTo(4*time.Second))
			}
		case 2: // one direction
			w.cut(d.name, other.name, "")
		case 3: // both
			w.cut(d.name, other.name, "")
			w.cut(other.name, d.name, "")
		case 4:
			w.cut(d.name, other.name, "stream")
		case 5:
			w.cut(d.name, other.name, "permission")
		case 6: // an operator, or both
			w.cut("operator-0", d.name, "")
			if w.OneIn(2) {
				w.cut(d.name, "operator-1", "")
			}
		case 7:
			w.cut([]string{"client-0", "client-1", "client-2"}[w.Random.IntN(3)], d.name, "")
		case 8:
			switch {
			case w.soon && w.losses.IntN(2) == 0:
				w.tear()
			case w.files:
				if w.losing && w.losses.IntN(4) > 0 {
					w.losePrimary()
				} else if w.power(d, w.OneIn(2)); w.losing {
					w.lose(d)
				}
			case w.losses.IntN(2) == 0:
				w.lose(d)
			case w.mayLose(d):
				w.wipe(d)
			}
		case 9:
			if w.record.Number > 0 && w.record.Backup != (Proc{}) && w.OneIn(2) {
				d = w.find(w.record.Backup.Pod)
			}
			if d.moving = true; w.OneIn(4) {
				other.moving = true
			} else if w.OneIn(2) {
				w.After(w.UpTo(3*time.Second), nil, func() { d.moving = false })
			}
		case 10:
			d.disk.slow, d.disk.full = w.UpTo(2*time.Second), w.OneIn(2)
			w.After(w.UpTo(4*time.Second), nil, func() { d.disk.slow, d.disk.full = 0, false })
		case 11:
			c := wire{d.name, other.name, "stream"}
			w.slow[c] = w.UpTo(300 * time.Millisecond)
			w.After(w.UpTo(4*time.Second), nil, func() { delete(w.slow, c) })
		case 12:
			if w.OneIn(3) {
				w.copies = 3 - w.copies
			} else {
				w.apiDown++
				w.After(w.UpTo(3*time.Second), nil, func() { w.apiDown-- })
			}
		}
	}
}

// any is a pod that exists, if there is one.
func (w *world) any() *pod {
	for range 100 {
		if d := w.pods[w.Random.IntN(len(w.pods))]; !d.gone {
			return d
		}
	}
	return w.pods[len(w.pods)-1]
}

func (w *world) cut(from, to, kind string) {
	w.sever(wire{from, to, kind}, w.UpTo(4*time.Second))
}

func (w *world) sever(c wire, d time.Duration) {
	w.cuts[c]++
	w.After(d, nil, func() {
		if w.cuts[c] > 0 {
			w.cuts[c]--
		}
	})
}

// lose ends a pod with all that it has, if the run is one of those where that happens. It takes one
// of two that are in sync, so nothing need be lost for good.
func (w *world) lose(d *pod) {
	if w.files && w.mayLoseFiles(d) || !w.files && w.mayLose(d) {
		w.counts.losses++
		w.end(d)
	}
}

func (w *world) mayLose(d *pod) bool {
	if !w.losing || d.gone {
		return false
	}
	if named := d.name == w.record.Primary.Pod || d.name == w.record.Backup.Pod; named && (w.record.Backup == Proc{} || !w.inSync()) {
		return false
	}
	w.lost = true
	return true
}

// wipe ends a process with all that its pod has, which stays: its machine starts again, whose clock
// may be set back. The first view may arrive late.
func (w *world) wipe(d *pod) {
	w.counts.wipes++
	w.wiped++
	number := firstNumber + 1000*w.wiped
	if w.losses.IntN(4) == 0 {
		number = firstNumber - 1000*w.wiped
	}
	d.memory, d.has, d.born, d.stored = [words]int{}, nil, 0, State{Process: number}
	if d.server != nil {
		d.server.process.Kill()
	}
	late := rand.New(rand.NewPCG(uint64(w.Now()), 131))
	if len(w.records) == 0 || w.records[0].Primary.Pod != d.name {
		return
	}
	switch late.IntN(4) {
	case 0: // it has no name, so its next process begins a volume by itself
		w.born++
		d.born, d.stored = w.born, State{Process: number, First: number + 1, Content: Served}
	case 1, 2:
		w.After(300*time.Millisecond+w.UpTo(700*time.Millisecond), nil, func() {
			if s := d.server; s != nil && s.m != nil {
				s.process.Go("late", func() { _ = s.m.Obey(w.records[0]) })
			}
		})
	}
}

// inSync reports whether the recorded view is what the servers do, and has as many copies as are
// wanted.
func (w *world) inSync() bool {
	if w.record.Number == 0 || (w.record.Backup != Proc{}) != (w.copies == 2) {
		return false
	}
	p := w.find(w.record.Primary.Pod).server
	if p == nil || p.m == nil || p.m.role != Primary || p.m.view != w.record || p.pod.moving {
		return false
	}
	// Its process may have died with the locks of the member.
	if now := p.process.Now(); slices.ContainsFunc(p.m.peers, func(q peer) bool { return q.waited && (q.applied < uint64(len(p.items)) || q.until <= now) }) {
		return false
	}
	if w.copies == 1 {
		return true
	}
	b := w.find(w.record.Backup.Pod).server
	return b != nil && b.m != nil && b.m.self == w.record.Backup && b.m.role == Backup && b.m.source == p.m.self && !b.pod.moving
}

// heal ends all trouble.
func (w *world) heal() {
	w.quiet, w.healed = true, w.stamp()
	clear(w.cuts)
	clear(w.slow)
	w.copies, w.suspect = 2, 2*time.Second
	for _, d := range w.pods {
		d.disk.slow, d.disk.full = 0, false
		if d.server != nil {
			d.server.process.Thaw()
		}
	}
}

// settle waits until all is in sync. Nobody may have lost the content, unless a pod was lost.
func (w *world) settle() {
	begun := w.Now()
	for until := begun + settled; ; w.main.Sleep(50 * time.Millisecond) {
		w.took = w.Now() - begun
		switch {
		case w.inSync() && w.lateAnswer():
			return
		case w.isShut():
			w.counts.shut++
			w.void = true
			return
		case w.status == Lost && w.lost:
			w.void = true
			return
		case w.Now() >= until:
			w.Report("not in sync %v after the last trouble: record %v, %v: %s%s", settled, w.record, w.status, w.why, w.dump())
			return
		}
	}
}
