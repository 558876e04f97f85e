package volumes

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

const (
	words    = 6 // of the memory
	ledgerAt = 4 // a fence changes this word, and then the next one

	firstNumber = 1_000_000 // of processes: it comes from a clock
)

// pod is what outlives its processes.
type pod struct {
	name    string
	version int
	moving  bool
	gone    bool
	server  *server // that runs; nil = none

	stored State
	disk   struct {
		slow time.Duration
		full bool
	}
	memory [words]int // numbers of changes, or 0
	has    bits       // changes that are in the memory, or were overwritten there
	born   int        // incarnation of the content; 0 = there is none
	files  files
	aside  bool // a later process waits for nobody
	former *pod // as which an earlier process goes on beside this one's; nil = none does
}

// server is a process of a pod: a memory server.
type server struct {
	w       *world
	pod     *pod
	process *simenv.Process
	m       *Member // nil at first

	order env.Mutex // of changes
	more  env.Event // there are changes to be sent

	// Of a primary. An item's position is its index plus 1. They are recorded while there is
	// anybody to send them to.
	items     []item
	stamps    [words]uint64
	begun     []*sink
	executing int
	looked    time.Duration // when it last found that it may answer

	filing env.Mutex // held while files are written
	filed  uint64    // they have all up to this position

	// Of a copy.
	applied uint64
	first   bool // something was applied
}

// item is a change of a word.
type item struct {
	at, value int
	change    int // 0 = a piece of the memory
	mark      bool

	has   bits       // for a mark: what the primary has
	born  int        // for a mark: its incarnation
	after [words]int // the primary's memory behind the item
}

// sink is a copy that items are sent to.
type sink struct {
	Target
	start, sent, acked uint64
	sentAt, ackedAt    time.Duration // when there was progress
}

func (w *world) newPod() {
	d := &pod{name: fmt.Sprint("pod-", len(w.pods)+1), stored: State{Process: firstNumber}}
	w.pods = append(w.pods, d)
	w.After(w.UpTo(300*time.Millisecond), nil, func() { w.boot(d) })
}

// boot starts a process of a pod, and another one when it has ended.
func (w *world) boot(d *pod) {
	if d.gone || d.server != nil {
		return
	}
	p := w.process(d.name)
	s := &server{w: w, pod: d, process: p, order: p.NewMutex(), more: p.NewEvent(), filing: p.NewMutex()}
	d.server = s
	p.AtKill(func() {
		if s.pod != d { // a former one
			s.pod.server = nil
			return
		}
		d.server = nil
		w.After(w.UpTo(300*time.Millisecond), nil, func() { w.boot(d) })
	})
	p.Go("main", s.main)
}

func (s *server) main() {
	w, d, p := s.w, s.pod, s.process
	var m *Member
	for m == nil {
		stored := d.stored
		if w.wrong == podsForProcs && stored.Process > 0 {
			stored.Process--
		}
		var err error
		if m, err = New(p, d.name, stored, s); err != nil {
			p.Sleep(50 * time.Millisecond)
		}
	}
	if w.files {
		s.beginFiles(m)
	} else if m.Empty() && w.wrong != notEmpty {
		d.memory, d.has, d.born = [words]int{}, nil, 0
	}
	if w.wrong == podsForProcs && m.Empty() && w.record.Backup == m.Self() {
		m.role, m.source = Backup, w.record.Primary
	}
	if m.state.Alone() && s.isShut() {
		p.Sleep(50 * time.Millisecond)
		p.Kill() // it refuses its files
	}
	for m.Start() != nil {
		p.Sleep(50 * time.Millisecond)
	}
	s.m = m
	p.Go("ask", s.ask)
	if w.files {
		p.Go("files", s.keepFiles)
	}
	for m.Role() != Replaced {
		s.ship()
		s.more.Wait(AskInterval / 5)
	}
	p.Kill()
}

// Save implements Host.
func (s *server) Save(st State) error {
	w, d := s.w, s.pod
	w.point(s.process)
	s.process.Sleep(w.UpTo(time.Millisecond) + w.UpTo(d.disk.slow))
	if s.isFormer() {
		return errDetached
	}
	if d.disk.full && w.OneIn(2) {
		return errors.New("no space left on the simulated device")
	}
	if w.wrong == volatile {
		st.WaitsFor = Proc{}
	}
	if d.born > 1 && st.Content == Served && st.View.Number > 1 {
		w.Report("process %d of %s leads in view %v with a volume that was begun anew", st.Process, d.name, st.View)
	}
	if st.Content == Served && d.stored.Content == Nothing {
		w.born++
		d.born = w.born
	}
	alone := st.View.Backup == Proc{} && d.stored.View.Backup != Proc{} && st.Content == Served
	if w.wrong != notStored || !alone {
		d.stored = st
	}
	if d.former != nil && st.Alone() {
		d.former.aside = true
	}
	if st.Content == Taken {
		w.counts.opened++
		w.busy = max(w.busy, w.Now()+500*time.Millisecond)
	}
	w.point(s.process)
	if d.disk.full {
		return errors.New("input/output error of the simulated device")
	}
	return nil
}

// Close implements Host.
func (s *server) Close() {
	s.order.Lock() // what is being applied has it
	defer s.order.Unlock()
}

// Prepare implements Host.
func (s *server) Prepare() error {
	s.w.point(s.process)
	s.process.Sleep(s.w.UpTo(5 * time.Millisecond))
	return nil
}

// Drain implements Host.
func (s *server) Drain(backup Proc) error {
	s.order.Lock()
	end := uint64(len(s.items))
	s.order.Unlock()
	s.w.point(s.process)
	for limit := env.Deadline(s.process, 500*time.Millisecond); ; s.process.Sleep(2 * time.Millisecond) {
		i := slices.IndexFunc(s.begun, func(k *sink) bool { return k.Proc == backup })
		if i >= 0 && s.begun[i].acked >= end && s.executing == 0 {
			s.w.counts.stops++
			return nil
		}
		if s.process.Now() >= limit {
			return errors.New("the backup has not applied all")
		}
	}
}

// Return implements Host.
func (s *server) Return(backup Proc, turn uint64) {
	to, self := s.w.find(backup.Pod), s.m.Self()
	call(s.w, s.process, to, "permission", 300*time.Millisecond, func(o *server) bool {
		o.m.Return(self, turn)
		return true
	})
}

// ask asks for permission.
func (s *server) ask() {
	for {
		if r, ok := s.m.Ask(); ok {
			for _, t := range s.m.Targets() {
				s.process.Go("permission", func() {
					to, self := s.w.find(t.Proc.Pod), s.m.Self()
					granted, ok := call(s.w, s.process, to, "permission", time.Second, func(o *server) bool {
						return o.m.Self() == t.Proc && o.m.Grant(self, r.Turn)
					})
					s.w.point(s.process)
					if ok && granted {
						s.m.Permitted(t.Proc, r)
					}
				})
			}
			if s.w.wrong == lateReturn && s.w.OneIn(4) {
				for _, t := range s.m.Targets() {
					s.process.Go("return", func() { s.Return(t.Proc, r.Turn+1) })
				}
			}
		}
		s.process.Sleep(AskInterval)
	}
}

// recording reports whether changes are recorded.
func (s *server) recording() bool { return s.w.files || len(s.begun) > 0 }

// put changes a word. The caller has the order. A change is stamped before it is made.
func (s *server) put(at, value, change int) {
	if s.recording() && (s.w.wrong != unrecorded || at != ledgerAt+1) {
		i := item{at: at, value: value, change: change, after: s.pod.memory}
		i.after[at] = value
		s.stamps[at] = s.append(i)
		s.process.Yield()
	}
	s.pod.memory[at] = value
	s.pod.has.add(change)
}

func (s *server) append(i item) uint64 {
	s.items = append(s.items, i)
	s.more.Set()
	return uint64(len(s.items))
}

// ship sends items to copies, and begins with new ones.
func (s *server) ship() {
	targets := s.m.Targets()
	s.begun = slices.DeleteFunc(s.begun, func(k *sink) bool { return !slices.Contains(targets, k.Target) })
	for _, t := range targets {
		if !slices.ContainsFunc(s.begun, func(k *sink) bool { return k.Target == t }) {
			s.order.Lock() // who changes memory unrecorded has ended
			k := &sink{Target: t, start: uint64(len(s.items))}
			k.sent, k.acked, k.ackedAt = k.start, k.start, s.process.Now()
			s.begun = append(s.begun, k)
			s.order.Unlock()
			s.w.counts.joins++
			s.process.Go("join", func() { s.join(k) })
		}
	}
	now := s.process.Now()
	for _, k := range s.begun {
		if k.sent > k.acked && now-k.ackedAt >= AskInterval/5 {
			k.sent, k.ackedAt = k.acked, now // it may have been lost
		} else if k.sent == uint64(len(s.items)) && now-k.sentAt < AskInterval {
			continue
		}
		from, view := k.sent, s.m.Report().View.Number
		items := slices.Clone(s.items[min(from, uint64(len(s.items))):])
		k.sent, k.sentAt = uint64(len(s.items)), now
		to := s.w.find(k.Proc.Pod)
		o := to.server
		if o == nil {
			continue
		}
		start, self := k.start, s.m.Self()
		s.w.send(s.pod.name, to.name, "stream", o.process, func() {
			// without its lock: who holds that may be stopped, and nobody can wait here
			if o.m != nil && o.m.self == k.Proc {
				o.process.Go("stream", func() { o.receive(s, self, k, view, start, from, items) })
			}
		})
	}
}

// join sends the memory, piece by piece, to a copy whose memory is empty.
func (s *server) join(k *sink) {
	for at := range words {
		s.order.Lock()
		v := s.pod.memory[at]
		if s.w.wrong == pieceAside {
			s.order.Unlock()
			s.process.Sleep(s.w.UpTo(2 * time.Millisecond))
			s.order.Lock()
		}
		if v != 0 {
			s.append(item{at: at, value: v, after: s.pod.memory})
		}
		s.order.Unlock()
		s.process.Sleep(s.w.UpTo(2 * time.Millisecond))
	}
	whole := uint64(len(s.items))
	if s.w.wrong == markEarly {
		s.mark()
		s.process.Sleep(s.w.UpTo(20 * time.Millisecond))
	}
	for slices.Contains(s.m.Targets(), k.Target) {
		if s.m.WaitFor(k.Proc, whole, s.mark) == nil {
			return
		}
		s.process.Sleep(20 * time.Millisecond)
	}
}

func (s *server) mark() uint64 {
	s.order.Lock()
	defer s.order.Unlock()
	return s.append(item{mark: true, born: s.pod.born, has: s.pod.has.clone(), after: s.pod.memory})
}

// take applies items behind a position, and returns how far it is; false: it takes none of them.
func (s *server) take(source Proc, k *sink, view, start, position uint64, items []item) (applied uint64, ok bool) {
	s.order.Lock()
	defer s.order.Unlock()
	if s.w.wrong == otherStream && s.m.source != source && (s.m.role == Joining || s.m.role == Backup) {
		s.m.source, s.m.sourceJoin, s.m.sourceView = source, k.Join, view
	}
	if s.m.Attach(source, k.Join, view) != nil && !(s.w.wrong == oldStream && s.first && s.m.role != Joining) {
		return 0, false
	}
	if !s.first {
		s.first, s.applied, s.pod.files = true, start, files{}
	}
	for n, i := range items {
		at := position + uint64(n) + 1
		if at != s.applied+1 {
			continue
		}
		if s.w.OneIn(20) {
			s.w.point(s.process)
			s.process.Yield()
		}
		if !s.m.Takes(source) && s.w.wrong != oldStream {
			return 0, false
		}
		s.apply(source, i)
		s.applied = at
	}
	return s.applied, true
}

func (s *server) apply(source Proc, i item) {
	if i.mark {
		s.pod.has, s.pod.born = i.has.clone(), i.born
		s.m.Marked(source)
	} else {
		s.pod.memory[i.at] = i.value
		s.pod.has.add(i.change)
	}
	if s.m.Role() == Backup && s.pod.memory != i.after {
		s.w.Report("%v has %v behind a change of %v, where that had %v", s.m.Self(), s.pod.memory, source, i.after)
	}
}
