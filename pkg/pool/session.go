package pool

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/pool/internal/lock"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Session is one goroutine's access to the pool: a queue pair to each server and buffers in a
// registered arena. Not safe for concurrent use. Nothing on the way of a request allocates.
//
// Requests are queued (Read, Write, Lock and Unlock steps) and posted together. A queued request's
// buffer belongs to the fabric until Post returns. After an error of Post the session is dead: Err
// says why, and every later Post returns it.
type Session struct {
	pool  *Pool
	arena *verbs.Arena
	// by dense server number; nil = none yet, to a server that joined
	qps       []verbs.QP
	shown     atomic.Pointer[[]verbs.QP] // the same for Published
	lists     [][]verbs.Request          // what is queued, by dense server number
	spare     []verbs.Request            // stands in for a list that is held back
	queued    int
	dropped   string // in builds with invariants: the kind of a change that End found queued
	fenced    []bool // by dense server number: its next request is fenced (see Fence)
	fences    int    // how many of these
	broken    error
	started   int           // queue pairs with lists under way, between Start and Await
	unstarted error         // why the next one has none
	waited    time.Duration // of the limit of these lists, in AwaitFor
	certain   bool          // who posts allows for changes without an answer: see GiveUpInDoubt
	limit     time.Duration
	deadline  time.Duration // on env's clock, of the operation under way
	waits     time.Duration // the limit that the queue pairs have; see boundLists
	locking   bool          // a lock is acquired, or given up: it may be this client's
	changing  bool          // what is queued is not only READs
	// the client's time when the operation under way began; 0 = there is none
	active atomic.Uint64

	image      Addr // reserved for a Rewrite under the lock; Nil = none
	imageBytes int

	without Techniques   // that the session does without
	lock    tableLock    // the one lock that the session can hold
	handOn  lock.Image   // of the node under it; see HandOn
	wait    *lock.Waiter // its place in a queue of this client's sessions
	// whose changes it carries out with the lock; see combine.go
	taken, back []*lock.Waiter
	lockWord    wordLock      // the one lock word; it holds that or lock
	slots       []*wordSlot   // by dense server number; nil = none yet
	intent      []byte        // what the slot says that it uses: name and change
	name        []byte        // of intent
	change      []byte        // likewise
	area        []byte        // for slots, or presence words, that are read
	present     presence      // where it is; see Enter
	there       []byte        // 8 bytes: its presence word
	part        []byte        // of an image
	old         []byte        // 8 bytes: old value of a lock word
	word        []byte        // 8 bytes: old value of another atomic
	record      []byte        // of a lock's repair
	list        []byte        // of RewriteAll
	resolved    foundMember   // under a lock that is about to be acquired again; see repairMain
	zero        []byte        // 8 bytes
	superblock  []byte        // room for it; nil until it is first read or made
	secret      [2]uint64     // words of the index's that were decided; see DecideSecret
	conflicts   atomic.Uint64 // counted for others to read, as the next
	handovers   atomic.Uint64
	combined    atomic.Uint64 // changes of others
}

// sessionScratch is what a session needs of its arena for itself.
const sessionScratch = 256 + superblockBytes + 128 + areaBytes + partBytes

// areaBytes has room for slotsRead slots, and for the presence words of 768.
const areaBytes = max(slotsRead*lock.SlotBytes, 768*PresenceBytes)

// partBytes is how much of an image is copied at once where lock words are repaired.
const partBytes = 2048

// NewSession makes a session whose Buffer calls may take up to bytes in all. ErrFenced: this client
// was given up (Condemn).
func (p *Pool) NewSession(bytes int) (*Session, error) {
	if why := p.condemned.Load(); why != nil {
		return nil, fmt.Errorf("open a session: %w", *why)
	}
	// Every buffer is aligned to 64 bytes; leave room for that in an arena that serves a few dozen.
	arena, err := p.device.NewArena(bytes + sessionScratch + 64*64)
	if err != nil {
		return nil, err
	}
	s := &Session{pool: p, arena: arena, limit: DefaultLimit, waits: DefaultLimit, deadline: env.Forever, spare: make([]verbs.Request, 0, 1)}
	s.wait, s.taken, s.back = lock.NewWaiter(p.env), newTaken(), newTaken()
	for _, b := range []struct {
		buffer *[]byte
		size   int
	}{{&s.old, 8}, {&s.word, 8}, {&s.record, repairBytes}, {&s.list, maxChanges * changeBytes}, {&s.zero, 8}, {&s.there, 8},
		{&s.intent, lock.NameBytes + lock.ChangeBytes}, {&s.area, areaBytes}, {&s.part, partBytes}} {
		if err == nil {
			*b.buffer, err = s.Buffer(b.size)
		}
	}
	if err == nil {
		s.name, s.change = s.intent[:lock.NameBytes], s.intent[lock.NameBytes:]
	}
	for _, srv := range p.servers() {
		if err != nil {
			break
		}
		s.addServer()
		if srv.used.Load() {
			err = s.connect(len(s.qps)-1, srv)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a session: %w", err), s.Close())
	}
	p.sessions.add(s)
	return s, nil
}

// Buffer cuts n bytes from the session's arena, zeroed, aligned to 64. Buffers live as long as the
// session.
func (s *Session) Buffer(n int) ([]byte, error) { return s.arena.Alloc(n) }

// Pool is the pool that the session belongs to.
func (s *Session) Pool() *Pool { return s.pool }

// Begin starts an operation, which End ends: until then, nodes whose addresses it gets are not used
// again (reclaim.go), and waits end at the session's limit. Its clock starts when the operation
// first has to wait or asks Overdue, since reading the clock costs as much as a request that meets
// no obstacle. If the session's limit is below DefaultLimit, it starts with the first list. Nothing
// is queued then, and the session holds no lock.
func (s *Session) Begin() {
	s.deadline = notStarted
	s.showSince(s.pool.clock.time.Load())
}

// BeginIn is Begin for an operation that takes addresses from the one of other, which is under way:
// what the session's intent slot names later is as old as they are.
func (s *Session) BeginIn(other *Session) {
	s.deadline = notStarted
	s.showSince(other.active.Load())
}

// Resume goes on with an operation after End: it holds no address that it got before, and its limit
// stays.
func (s *Session) Resume() { s.showSince(s.pool.clock.time.Load()) }

// showSince shows the time from which on the operation may have got addresses.
func (s *Session) showSince(since uint64) {
	if invariants.Enabled {
		s.checkIdle()
	}
	s.active.Store(since)
}

// checkIdle checks, in builds with invariants, what the operation before has left. A session that
// died, or whose client is given up, posts nothing any more, so it may have left anything.
func (s *Session) checkIdle() {
	dropped := s.dropped
	s.dropped = ""
	if s.broken != nil || s.pool.condemned.Load() != nil {
		return
	}
	invariants.Check(s.queued == 0, "an operation begins with %d requests queued", s.queued)
	invariants.Check(!s.Holds(), "an operation begins with a lock held")
	invariants.Check(s.present.slot == nil, "an operation begins in a node that the session entered and did not leave")
	invariants.Check(s.image == Nil && len(s.taken) == 0, "an operation begins with place %v for an image, and %d changes of others", s.image, len(s.taken))
	invariants.Check(dropped == "", "the operation before ended with a %s queued that was not posted", dropped)
}

// Err is nil while the session can be used.
func (s *Session) Err() error { return s.broken }

// Read queues a READ of len(local) bytes at a.
func (s *Session) Read(a Addr, local []byte) {
	s.queue(a, verbs.Request{Op: verbs.Read, Remote: a.Offset(), Local: local})
}

// queue adds a request to the list of a's server. A list that is full, or an address of no server,
// breaks the program's rules or comes from a damaged node; Post then fails without posting
// anything.
func (s *Session) queue(a Addr, r verbs.Request) {
	i, ok := s.pool.serverOf(a)
	if !ok {
		s.pool.strange()
		s.reject(fmt.Errorf("address %v is of no memory server of this index", a))
		return
	}
	s.queueTo(i, r)
}

func (s *Session) queueTo(i int, r verbs.Request) {
	if !s.reaches(i) {
		return
	}
	if len(s.lists[i]) == verbs.MaxList {
		s.reject(fmt.Errorf("more than %d requests in one list", verbs.MaxList))
		return
	}
	if s.fences > 0 && s.fenced[i] {
		r.Fence, s.fenced[i] = true, false
		s.fences--
	}
	s.lists[i] = append(s.lists[i], r)
	s.queued++
	s.changing = s.changing || r.Op != verbs.Read
}

func (s *Session) reject(err error) {
	if s.broken == nil {
		s.broken = err
		s.diedWithin(err)
	}
}

// Post posts what is queued, one list for each server, all at once, and waits: one round trip. An
// error kills the session; what took effect of the lists is then unknown.
func (s *Session) Post() error {
	if !s.hasRequests() {
		return s.broken
	}
	return s.posted(verbs.PostAll(s.qps, s.lists))
}

// Start is the first half of Post: it posts what is queued and does not wait. Nothing may be queued
// before Await, which always follows.
func (s *Session) Start() {
	s.started, s.waited = 0, 0
	if s.hasRequests() {
		s.started, s.unstarted = verbs.StartAll(s.qps, s.lists)
	}
}

// Await is the second half of Post.
func (s *Session) Await() error {
	if s.broken != nil || s.queued == 0 {
		return s.broken
	}
	err := verbs.WaitAll(s.qps[:s.started], s.lists)
	if s.unstarted != nil {
		err = s.unstarted
	}
	return s.posted(err)
}

// AwaitFor is Await of what was posted to one server, which stops waiting after limit. Then it
// returns false, all is under way as before, and AwaitFor or Await follows, perhaps on another
// goroutine: until then the session, the lists and their buffers are the fabric's. Together these
// waits are bounded as one Await is; the time between them counts for nobody.
func (s *Session) AwaitFor(limit time.Duration) (over bool, err error) {
	left := s.waits - s.waited
	for i, qp := range s.qps[:s.started] {
		switch {
		case len(s.lists[i]) == 0:
		case limit < left:
			if !qp.Poll(limit) {
				s.waited += max(0, limit)
				return false, nil
			}
		case s.waited > 0:
			s.waits = left
			qp.SetLimit(left)
		}
	}
	return true, s.Await()
}

// hasRequests reports whether there is anything to be posted.
func (s *Session) hasRequests() bool {
	if why := s.pool.condemned.Load(); why != nil && s.broken == nil {
		s.broken = *why
	}
	if s.queued == 0 || s.broken != nil {
		s.clear()
		return false
	}
	s.boundLists()
	return true
}

// posted is called when what was posted is over.
func (s *Session) posted(err error) error {
	if err != nil {
		s.postFailed(err)
		s.diedWithin(err)
	}
	s.clear()
	if err != nil {
		if why := s.pool.condemned.Load(); why != nil {
			err = fmt.Errorf("%w: %w", *why, err)
		}
		s.broken = err
	}
	return err
}

// drop takes back what an operation queued and did not post, since an error ended it in between.
// The buffers of these requests are the next operation's. A READ that stayed would write into them
// with the next list, whatever they are used for by then. Only READs are dropped: whoever queues a
// change has nothing left that can fail before it is posted.
func (s *Session) drop() {
	if invariants.Enabled {
		for _, list := range s.lists {
			for i := range list {
				if op := list[i].Op; op != verbs.Read {
					s.dropped = op.String()
				}
			}
		}
	}
	s.clear()
}

func (s *Session) clear() {
	for i := range s.lists {
		s.lists[i] = s.lists[i][:0]
	}
	s.queued, s.changing = 0, false
	if s.fences > 0 {
		clear(s.fenced)
		s.fences = 0
	}
}

// Counters is the exact count of what the session posted.
func (s *Session) Counters() (c verbs.Counters) {
	for _, qp := range s.qps {
		if qp != nil {
			t := qp.Tally().Counters()
			c.Sum(&t)
		}
	}
	return c
}

// Published is a recent count of the same. Safe for concurrent use. While the session is open it is
// what the session adds to [Pool.Counters].
func (s *Session) Published() (c verbs.Counters) {
	shown := s.shown.Load()
	if shown == nil {
		return c
	}
	for _, qp := range *shown {
		if qp != nil {
			t := qp.Tally().Published()
			c.Sum(&t)
		}
	}
	return c
}

// Close ends the session. If it still holds a lock, or has not left what it entered, its client is
// given up, and so are those whose changes it took.
func (s *Session) Close() error {
	if s.Holds() {
		l, w := s.lock, s.lockWord
		s.lock, s.lockWord = tableLock{}, wordLock{}
		switch err := s.markDead(verbs.ErrClosed); {
		case len(s.taken) > 0 && w.held:
			s.answerTakenWord(&w, err)
		case len(s.taken) > 0:
			s.answerTaken(&l, err)
		}
	}
	s.diedWithin(verbs.ErrClosed)
	s.leaveSlots()
	s.pool.sessions.remove(s)
	var errs []error
	for _, qp := range s.qps {
		if qp != nil {
			errs = append(errs, qp.Close())
		}
	}
	s.qps = nil
	if s.broken == nil {
		s.broken = verbs.ErrClosed
	}
	return errors.Join(append(errs, s.arena.Close())...)
}
