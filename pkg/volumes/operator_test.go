package volumes

import (
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// operator is one of two that overlap. It observes, asks Step, and acts; it may die or stand still
// between any two actions.
func (w *world) operator(n int) {
	p := w.process(fmt.Sprint("operator-", n))
	w.operators[n] = p
	p.AtKill(func() {
		if !w.over {
			w.After(w.UpTo(time.Second), nil, func() { w.operator(n) })
		}
	})
	p.Go("main", func() {
		var memory Memory
		old := map[string]Report{}
		for again := false; !w.over; {
			if !again {
				p.Sleep(w.UpTo(500 * time.Millisecond))
			}
			o, ok := w.observe(p, old)
			if !ok {
				continue
			}
			w.point(p)
			o.Memory = memory
			a := Step(o)
			memory = a.Memory
			w.status, w.why = a.Status, a.Waiting
			again = w.act(p, o, a)
		}
	})
}

// observe is what an operator sees. Pods come first: see Actions.DeletePods.
func (w *world) observe(p *simenv.Process, old map[string]Report) (o Observed, ok bool) {
	pods := slices.Clone(w.pods)
	for _, d := range pods {
		if !d.gone {
			o.Pods = append(o.Pods, Pod{Name: d.name, Version: fmt.Sprint(d.version), Moving: d.moving})
		}
	}
	p.Sleep(w.UpTo(5 * time.Millisecond))
	if w.apiDown > 0 && w.OneIn(2) {
		return o, false
	}
	o.Record, o.Copies, o.SuspectAfter, o.JoinBackoff = w.record, w.copies, w.suspect, 20*time.Millisecond
	if w.OneIn(10) && len(w.records) > 0 && !w.quiet {
		o.Record = w.records[max(0, len(w.records)-1-w.Random.IntN(3))] // from a cache
		for i := range o.Pods {
			o.Pods[i].Version = ""
		}
	}
	if w.suspect == 0 && w.deafTo == nil && w.record.Backup != (Proc{}) && w.OneIn(4) {
		w.deafTo = w.find(w.record.Primary.Pod) // it may well be permitted to answer
		w.After(w.UpTo(3*time.Second), nil, func() { w.deafTo = nil })
	}
	group := env.NewWaitGroup(p)
	for i := range o.Pods {
		group.Go("report", func() {
			q := &o.Pods[i]
			r, ok := call(w, p, w.find(q.Name), "operator", 500*time.Millisecond, func(s *server) Report { return s.m.Report() })
			if before, is := old[q.Name]; is && !w.quiet && w.OneIn(20) {
				r, ok = before, true
			} else if ok {
				old[q.Name] = r
			}
			if w.wrong == forgotten {
				r.First = 0
			}
			r.MayLack = r.MayLack && w.wrong != lackingLed
			if from := r.Source; w.wrong == otherStream && (r.Role == Joining || r.Role == Backup) && from != (Proc{}) {
				if o := w.find(from.Pod).server; o != nil && o.m != nil && o.m.self != from {
					r.Source = Proc{} // a new process of its pod takes the stream over
				}
			}
			if ok && (w.quiet || w.deafTo == nil || w.deafTo.name != q.Name) {
				q.Report = &r
			}
			q.Refuses = q.Report == nil && w.refuses(q.Name)
		})
	}
	group.Wait(env.Forever)
	for i := range o.Pods {
		if r := o.Pods[i].Report; w.wrong == leftOut && r != nil && r.Was != (Proc{}) && o.Record.Backup == (Proc{}) && w.find(o.Record.Primary.Pod).gone {
			o.Record.Backup = r.Was
		}
	}
	o.Now = p.Now()
	return o, true
}

// refuses reports whether a pod's address refuses an operator that was not answered. None does
// whose process runs, unless the network lies.
func (w *world) refuses(pod string) bool {
	return w.refusals != nil && (w.find(pod).server == nil || w.refusals.IntN(4) == 0 && !w.quiet)
}

// act does what the step says. again: the record changed, so the next step follows at once.
func (w *world) act(p *simenv.Process, o Observed, a Actions) (again bool) {
	if a.Record != nil {
		w.judgeLacking(o, *a.Record)
		if w.wrong == toldEarly {
			for _, d := range w.pods {
				w.tell(p, d, *a.Record)
			}
		}
		for _, named := range []Proc{a.Record.Primary, a.Record.Backup} {
			if named == (Proc{}) {
				continue
			}
			d := w.find(named.Pod)
			if d.gone {
				return false
			}
			d.version++
		}
		w.point(p)
		return w.swapRecord(p, o.Record, *a.Record)
	}
	tell := a.Tell
	if w.wrong == allTold {
		tell = nil
		for _, q := range o.Pods {
			tell = append(tell, q.Name)
		}
	}
	for _, name := range tell {
		w.point(p)
		p.Go("tell", func() { w.tell(p, w.find(name), o.Record) })
	}
	if a.Join != nil {
		w.point(p)
		call(w, p, w.find(a.Join.Primary.Pod), "operator", time.Second, func(s *server) error { return s.m.Join(o.Record.Number, a.Join.Copy) })
	}
	if a.Stop != "" {
		w.point(p)
		call(w, p, w.find(a.Stop), "operator", 2*time.Second, func(s *server) error { return s.m.Stop(o.Record.Number) })
		return true
	}
	for range a.MakePods {
		w.point(p)
		w.newPod()
	}
	for _, q := range a.DeletePods {
		if w.point(p); w.OneIn(4) && !w.quiet {
			w.freeze(p, w.UpTo(6*time.Second))
			p.Yield()
		}
		if d := w.find(q.Name); !d.gone && (fmt.Sprint(d.version) == q.Version || w.wrong == blindDelete) {
			w.counts.deletes++
			w.end(d)
		}
	}
	return len(a.Tell) > 0 && w.OneIn(2)
}

// tell tells a pod a view, and some time later again, at times.
func (w *world) tell(p *simenv.Process, d *pod, v View) {
	do := func(s *server) error {
		if w.wrong == lowerViews && v != s.m.view && s.m.role != Joining {
			s.m.view.Number = 0
		}
		if s.m.Role() == Stopped && s.isShut() && v.Primary.Pod == s.pod.name && v.Backup == (Proc{}) {
			return errShut
		}
		was := s.m.Report().Was
		opens := (s.m.Role() == Backup || was != Proc{}) && v.Primary == s.m.Self()
		if left := s.m.granted - s.process.Now(); opens && left > 0 {
			w.counts.waited++
			w.busy = w.Now() + 1500*time.Millisecond
			if !w.quiet && w.OneIn(3) {
				w.After(w.UpTo(150*time.Millisecond), nil, s.process.Kill)
			}
		}
		switch {
		case opens && w.wrong == notWaitedOut, opens && w.wrong == readEarly && was != Proc{}:
			s.m.granted = 0
		case w.wrong == anewLed && s.m.state.View.Number <= 1 && !s.m.state.stands(v.Primary):
			s.m.state.View.Number = 2 // the check is of those that may have begun anew
		case opens && w.wrong == storedEarly:
			s.pod.stored.View, s.pod.stored.Content = v, Taken
		}
		err := s.m.Obey(v)
		w.point(s.process)
		return err
	}
	if w.OneIn(8) {
		w.counts.again++
		s := d.server
		w.After(w.UpTo(4*time.Second), nil, func() {
			if d.server != nil && d.server.m != nil && s != nil {
				o := d.server
				o.process.Go("again", func() { do(o) })
			}
		})
	}
	call(w, p, d, "operator", 2*time.Second, do)
}

// swapRecord changes the record, if it is the one that is expected. Answers may be lost.
func (w *world) swapRecord(p *simenv.Process, from, to View) bool {
	p.Sleep(w.UpTo(10 * time.Millisecond))
	if w.apiDown > 0 && w.OneIn(2) || w.record.Number != from.Number {
		return false
	}
	switch {
	case from.Backup != Proc{} && to.Primary == from.Backup:
		w.counts.switched++
	case from.Number > 0 && to.Primary.Pod != from.Primary.Pod:
		w.counts.restored++
	case from.Backup != Proc{} && to.Backup != Proc{}:
		w.counts.aside++
	}
	w.record = to
	w.records = append(w.records, to)
	w.counts.views++
	p.Sleep(w.UpTo(5 * time.Millisecond))
	return !w.OneIn(10)
}

// end removes a pod, and all that it has.
func (w *world) end(d *pod) {
	d.gone = true
	if d.server != nil {
		d.server.process.Kill()
	}
}
