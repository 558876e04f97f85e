package volumes

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/env"
)

// verb is what a client asks for.
type verb string

const (
	read  verb = "read"
	write verb = "write"
	swap  verb = "swap"  // if the word has a value
	fence verb = "fence" // the ledger, and then a sweep of locks
)

// ask is a request.
type ask struct {
	verb   verb
	at     int
	change int // its number
	puts   int // that it writes: its number, or 0
	old    int // for a swap
}

// reply is what a client knows of it.
type reply struct {
	refused bool // not executed
	unknown bool
	value   int // that was there before
}

// entry is a request and its outcome, by one client.
type entry struct {
	ask
	reply
	client    int
	call, end int64         // moments
	at        time.Duration // when it ended
}

// client asks whichever server it takes for the primary, and looks for another one when that does
// not answer.
func (w *world) client(n int) {
	p := w.NewDrifting(fmt.Sprint("client-", n))
	p.Go("main", func() {
		limit, seen, asks := 400*time.Millisecond, 0, 0
		for !w.over {
			busy := w.Now() < w.busy
			switch {
			case w.calm:
				limit = 100 * time.Millisecond
				p.Sleep(w.UpTo(40 * time.Millisecond))
			case busy:
				limit = 50 * time.Millisecond
				p.Sleep(w.UpTo(10 * time.Millisecond))
			default:
				limit = 400 * time.Millisecond
				p.Sleep(w.UpTo(200 * time.Millisecond))
			}
			w.changes += 2 // a fence makes two
			q := ask{verb: []verb{read, read, write, write, swap, fence}[w.Random.IntN(6)], at: w.Random.IntN(ledgerAt), change: w.changes, puts: w.changes, old: seen}
			if q.verb == write && w.OneIn(3) {
				q.puts = 0
			}
			if q.verb == read {
				q.at = w.Random.IntN(words)
			}
			if n == 0 || busy {
				asks = w.Random.IntN(len(w.pods))
			}
			if n == 1 && (busy || w.OneIn(2)) {
				q.verb = read
			}
			for range len(w.pods) {
				d := w.pods[asks%len(w.pods)]
				if d.gone && d.server == nil {
					asks++
					continue
				}
				if d.former != nil && w.OneIn(2) {
					d = d.former
				}
				r, again := w.request(n, d, q, limit)
				if again {
					asks++
					continue
				}
				if seen = r.value; r.unknown {
					asks++
				}
				break
			}
		}
	})
}

// request asks one server. again: it was not executed.
func (w *world) request(n int, d *pod, q ask, limit time.Duration) (r reply, again bool) {
	e := entry{ask: q, client: n, call: w.stamp()}
	if d.server == nil {
		w.current().Sleep(time.Millisecond)
		return r, true
	}
	r, ok := call(w, w.current(), d, "client", limit, func(s *server) reply { return s.execute(q) })
	if r.refused {
		return r, true
	}
	if !ok {
		r.unknown = true
	}
	w.note(e, r)
	return r, false
}

func (w *world) note(e entry, r reply) {
	if e.reply, e.end, e.at = r, w.stamp(), w.Now(); r.unknown {
		w.counts.unknown++
	} else {
		w.counts.answers++
	}
	w.log = append(w.log, e)
}

// execute is a request at a server. It is answered if the server may, once it has been executed.
func (s *server) execute(q ask) reply {
	p := s.process
	if s.pod.born > 1 {
		// A memory that was lost and is told the first view once more, late, is taken for a new
		// volume. Clients refuse another incarnation than they know.
		return reply{refused: true}
	}
	s.executing++
	defer func() { s.executing-- }()
	if q.verb == read {
		if !s.m.Executes() {
			return reply{refused: true}
		}
		value := s.pod.memory[q.at]
		p.Yield()
		// The stamp is looked at behind the value.
		return s.answer(reply{value: value}, s.stamps[q.at], value)
	}
	s.order.Lock()
	if !s.m.Executes() {
		s.order.Unlock()
		return reply{refused: true}
	}
	also := 0
	if q.verb == fence {
		q.at = ledgerAt
	}
	r := reply{value: s.pod.memory[q.at]}
	needs, knows := s.stamps[q.at], 0
	if q.verb != swap || r.value == q.old {
		s.put(q.at, q.puts, q.change)
		needs, knows = s.stamps[q.at], q.change
	}
	s.order.Unlock()
	if q.verb == fence {
		p.Sleep(s.w.UpTo(time.Millisecond))
		s.order.Lock()
		if !s.m.Executes() {
			s.order.Unlock()
			return reply{unknown: true}
		}
		s.put(ledgerAt+1, q.puts, q.change+1)
		also = q.change + 1
		if s.w.wrong != fenceEarly {
			needs = s.stamps[ledgerAt+1]
		}
		s.order.Unlock()
	}
	return s.answer(r, needs, knows, also)
}

// answer waits until an answer may go out that depends on the changes up to a position. knows are
// the newest changes that the client learns of.
func (s *server) answer(r reply, needs uint64, knows ...int) reply {
	limit := env.Deadline(s.process, 500*time.Millisecond)
	var before bits
	for {
		if before = append(before[:0], s.w.answered...); s.mayAnswer(needs) {
			break
		}
		if s.process.Now() >= limit || s.m.Role() != Primary {
			return reply{unknown: true}
		}
		s.process.Sleep(time.Millisecond)
	}
	if s.isAside() {
		s.w.counts.stale++
		return reply{unknown: true}
	}
	s.judge(before, knows)
	s.w.point(s.process)
	return r
}

// mayAnswer is Member.MayAnswer, or a mistake.
func (s *server) mayAnswer(needs uint64) bool {
	m := s.m
	if s.w.files && s.filed < needs && s.w.wrong != notFiled {
		return false
	}
	has := func(p peer) bool { return !p.waited || p.applied >= needs }
	switch now := s.process.Now(); s.w.wrong {
	case noPermission:
		return m.role == Primary && !slices.ContainsFunc(m.peers, func(p peer) bool { return !has(p) })
	case cachedLook:
		if m.MayAnswer(0) {
			s.looked = now
		}
		return m.role == Primary && now-s.looked < cached && !slices.ContainsFunc(m.peers, func(p peer) bool { return !has(p) })
	case goesOnAlone:
		if m.role == Primary && m.Report().Misses > 1200*time.Millisecond {
			return true
		}
	case joinNotWaited, oneWaited:
		return m.role == Primary && !slices.ContainsFunc(m.peers, func(p peer) bool {
			joins := p.Proc != m.view.Backup && (s.w.wrong == joinNotWaited || m.view.Backup != Proc{})
			return p.waited && !joins && (!has(p) || p.until <= now)
		})
	}
	return m.MayAnswer(needs)
}

// judge reports if a server answers that does not have all that was answered before, if a process
// that the record names does not have it, or if a server goes on alone while a later process of its
// pod would not.
func (s *server) judge(before bits, knows []int) {
	w, m := s.w, s.m
	if n := s.pod.has.lacks(before); n != 0 {
		w.Report("%v answers in view %v and lacks change %d, which was answered", m.self, m.view, n)
	}
	if alone := !slices.ContainsFunc(m.peers, func(p peer) bool { return p.waited }); alone && !s.pod.stored.Alone() {
		w.Report("%v answers alone in view %v and has stored %+v", m.self, m.view, s.pod.stored)
	}
	for _, n := range knows {
		if n != 0 {
			w.answered.add(n)
		}
	}
	for _, named := range []Proc{w.record.Primary, w.record.Backup} {
		if named == (Proc{}) || named.Pod == s.pod.name {
			continue
		}
		if o := w.find(named.Pod).server; o != nil && o.m != nil && o.m.self == named {
			has := o.pod.has
			if o.m.state.Backup && o.m.role == Joining {
				if has = o.pod.files.synced.has; w.soon { // it has not read them yet
					has = o.pod.files.written.has
				}
			}
			if n := has.lacks(w.answered); n != 0 {
				w.Report("%v answers change %d, and %v lacks it, which view %v names", m.self, n, named, w.record)
			}
		}
	}
}

// stamp is a moment. No two are the same, and they are in the order of what happened.
func (w *world) stamp() int64 {
	w.moments++
	return w.moments
}

// registers is the model: words that are read, written and swapped.
var registers = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		q, r, has := input.(ask), output.(reply), state.(int)
		switch {
		case q.verb == read:
			return r.value == has, has
		case q.verb == swap && (r.unknown && has != q.old || !r.unknown && r.value != q.old):
			return r.unknown || r.value == has, has
		case q.verb == fence:
			return true, q.puts
		}
		return r.unknown || r.value == has, q.puts
	},
}

// judgeLimit is of real time, for histories that nobody could judge: a busy machine takes minutes
// for seconds of processor time.
const judgeLimit = 10 * time.Minute

// judge reports if the history of a word is not that of a word.
func (w *world) judge() {
	for at := range words {
		var ops []porcupine.Operation
		seen := map[int]bool{0: true}
		for _, e := range w.log {
			if !e.unknown {
				seen[e.value] = true
			}
		}
		for _, e := range w.log {
			q := e.ask
			if q.verb == fence && at == ledgerAt+1 {
				q.at = at
			} else if q.verb == fence {
				q.at = ledgerAt
			}
			if q.at != at || e.unknown && (q.verb == read || !seen[q.puts]) {
				continue // what nobody has seen may have come last
			}
			if e.unknown {
				e.end = 1 << 60
			}
			ops = append(ops, porcupine.Operation{ClientId: e.client, Input: q, Call: e.call, Output: e.reply, Return: e.end})
		}
		switch porcupine.CheckOperationsTimeout(registers, ops, judgeLimit) {
		case porcupine.Illegal:
			w.Report("the history of word %d is not linearizable: %+v", at, ops)
		case porcupine.Unknown:
			w.Report("the history of word %d could not be judged in time", at)
		}
	}
}
