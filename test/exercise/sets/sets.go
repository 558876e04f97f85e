// Package sets is load that adds up, for tests that kill servers under it: on one sorted set, on
// counters, and on transactions that carry amounts from one key to another. It knows of each change
// whether it was acknowledged, refused, or is in doubt. So at every moment it knows between which
// values each score and each counter has to be, and it reads them all the time. At the end nothing
// that was acknowledged may be lost, nothing may be counted twice, and the set must be whole.
package sets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Load.
type Options struct {
	// Dial connects to any server.
	Dial     func(ctx context.Context) (net.Conn, error)
	Password string        // of the default user; empty = none is asked for
	Limit    time.Duration // of one command
	Workers  int           // connections that work side by side
	Members  int           // of the set that each worker has for itself
	Shared   int           // members and counters that all workers add to, and accounts
	Late     time.Duration // after it, a change in doubt was made or never will be
}

// wait is how long a worker rests after a server did not do anything.
func (o *Options) wait() { time.Sleep(20 * time.Millisecond) }

// Set is the key of the sorted set.
const Set = "exercised set"

// Load is the load. Run is called once, then Check.
type Load struct {
	o        Options
	members  []sum // of the set, that all add to
	counters []sum
	accounts []sum      // what was carried to the second key
	own      [][]member // of each worker

	asked, refused, inDoubt atomic.Int64

	mu   sync.Mutex
	errs []error
	late time.Time // when the last change in doubt was made, or never will be
}

// sum is a number that only grows: it is at least acked, and at most acked and doubt together.
type sum struct {
	key, from    string
	acked, tried atomic.Int64 // tried: what was begun and not refused
}

// member belongs to one worker.
type member struct {
	name string
	may  []string  // scores that it may have; "" = it is not there
	rest time.Time // until then a change in doubt may still be made
}

// New returns a load that has not begun.
func New(o Options) *Load {
	l := &Load{o: o, members: make([]sum, o.Shared), counters: make([]sum, o.Shared), accounts: make([]sum, o.Shared)}
	for i := range o.Shared {
		at := string([]byte{byte(1 + i*250/o.Shared)}) // all over the key space
		l.members[i].key = fmt.Sprintf("shared/%04d", i*9973%o.Shared)
		l.counters[i].key = at + "counter"
		l.accounts[i].from, l.accounts[i].key = at+"{account}from", at+"{account}to"
	}
	for w := range o.Workers {
		var own []member
		for i := range o.Members {
			own = append(own, member{name: fmt.Sprintf("own/%02d/%06d", w, i), may: []string{""}})
		}
		l.own = append(l.own, own)
	}
	return l
}

// Anchor is a member that nobody changes.
const Anchor, AnchorScore = "anchor", "-1000"

// Begin adds the member that stays as it is.
func (l *Load) Begin(ctx context.Context) error {
	c := &conn{o: &l.o}
	defer c.close()
	for ctx.Err() == nil {
		if _, is, err := c.ask([]string{"ZADD", Set, AnchorScore, Anchor}); err != nil || is == done {
			return err
		}
	}
	return ctx.Err()
}

// Run works until ctx is done, or something is wrong. Commands that are under way then are
// finished.
func (l *Load) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for w := range l.o.Workers {
		workers.Go(func() {
			c := &conn{o: &l.o}
			defer c.close()
			for ctx.Err() == nil && !l.failed() {
				l.work(c, l.own[w])
			}
		})
	}
	workers.Wait()
}

func (l *Load) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.errs) > 0
}

const mostErrors = 20

func (l *Load) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) < mostErrors {
		l.errs = append(l.errs, err)
	}
}

// ask counts, and reports what may not be answered.
func (l *Load) ask(c *conn, commands ...[]string) (reply, outcome) {
	r, is, err := c.ask(commands...)
	l.asked.Add(1)
	switch {
	case err != nil:
		l.report(err)
	case is == nothing:
		l.refused.Add(1)
	case is == doubt:
		l.inDoubt.Add(1)
		l.mu.Lock()
		l.late = time.Now().Add(l.o.Late)
		l.mu.Unlock()
	}
	return r, is
}

// work is one command.
func (l *Load) work(c *conn, own []member) {
	n := int64(1 + rand.IntN(3))
	add := strconv.FormatInt(n, 10)
	some := rand.IntN(l.o.Shared)
	switch rand.IntN(12) {
	case 0, 1, 2:
		m := &l.members[some]
		l.raise(c, m, n, []string{"ZINCRBY", Set, add, m.key})
	case 3, 4:
		m := &l.counters[some]
		l.raise(c, m, n, []string{"INCRBY", m.key, add})
	case 5:
		m := &l.accounts[some]
		l.raise(c, m, n, []string{"MULTI"}, []string{"DECRBY", m.from, add}, []string{"INCRBY", m.key, add}, []string{"EXEC"})
	case 6, 7, 8:
		l.change(c, &own[rand.IntN(len(own))])
	case 9:
		m := &l.members[some]
		l.look(c, m, []string{"ZSCORE", Set, m.key})
	case 10:
		m := &l.accounts[some]
		l.balance(c, m)
	default:
		l.lowest(c)
	}
}

// raise adds to a number.
func (l *Load) raise(c *conn, m *sum, by int64, commands ...[]string) {
	least := m.acked.Load()
	m.tried.Add(by)
	r, is := l.ask(c, commands...)
	switch is {
	case nothing:
		m.tried.Add(-by)
		return
	case doubt:
		return
	}
	if len(r.all) == 2 {
		r = r.all[1]
	}
	got, err := r.number()
	if err != nil || int64(got) < least+by || int64(got) > m.tried.Load() {
		l.report(fmt.Errorf("%q is answered by %+v (%v): %d were acknowledged before, and %d were asked for", commands, r, err, least, m.tried.Load()))
	}
	m.acked.Add(by)
}

// look reads a number.
func (l *Load) look(c *conn, m *sum, command []string) outcome {
	least := m.acked.Load()
	r, is := l.ask(c, command)
	if is != done {
		return is
	}
	got, err := r.number()
	if most := m.tried.Load(); err != nil || int64(got) < least || int64(got) > most {
		l.report(fmt.Errorf("%q is answered by %+v (%v): %d were acknowledged before, and %d were asked for", command, r, err, least, most))
	}
	return is
}

// balance reads an account: what one key has the other one lacks.
func (l *Load) balance(c *conn, m *sum) outcome {
	least := m.acked.Load()
	r, is := l.ask(c, []string{"MULTI"}, []string{"GET", m.from}, []string{"GET", m.key}, []string{"EXEC"})
	if is != done {
		return is
	}
	var got [2]float64
	err := errors.New("two numbers were asked for")
	if len(r.all) == 2 {
		var also error
		got[0], err = r.all[0].number()
		got[1], also = r.all[1].number()
		err = errors.Join(err, also)
	}
	if most := m.tried.Load(); err != nil || got[0] != -got[1] || int64(got[1]) < least || int64(got[1]) > most {
		l.report(fmt.Errorf("an account has %v and %v (%v): %d were acknowledged before, and %d were asked for", got[0], got[1], err, least, most))
	}
	return is
}

// change adds or removes a member that nobody else changes.
func (l *Load) change(c *conn, m *member) {
	if time.Now().Before(m.rest) {
		return // a late one would be made on top of the next one
	}
	score, command := "", []string{"ZREM", Set, m.name}
	if rand.IntN(3) > 0 {
		score = strconv.Itoa(rand.IntN(1000))
		command = []string{"ZADD", Set, score, m.name}
	}
	r, is := l.ask(c, command)
	switch is {
	case nothing:
		return
	case doubt:
		m.may, m.rest = append(m.may, score), time.Now().Add(l.o.Late)
		return
	}
	there, absent := false, false // before
	for _, was := range m.may {
		there, absent = there || was != "", absent || was == ""
	}
	// ZADD counts those that were absent, ZREM those that were there
	if was := (r.text == "1") == (score == ""); r.text != "0" && r.text != "1" || was && !there || !was && !absent {
		l.report(fmt.Errorf("%q is answered by %+v, and it had one of the scores %q", command, r, m.may))
	}
	m.may = []string{score}
}

// lowest reads the lowest members, of which the anchor is the first.
func (l *Load) lowest(c *conn) {
	r, is := l.ask(c, []string{"ZRANGE", Set, "0", "20", "WITHSCORES"})
	if is == done && (len(r.all) < 2 || r.all[0].text != Anchor || r.all[1].text != AnchorScore) {
		l.report(fmt.Errorf("the lowest members are %+v: the first one has to be %q with %s, which nobody changes", r.all, Anchor, AnchorScore))
	}
}

// Await returns when so many more commands were answered, or something is wrong, or ctx is done.
func (l *Load) Await(ctx context.Context, commands int64) {
	for until := l.asked.Load() + commands; l.asked.Load() < until && ctx.Err() == nil && !l.failed(); {
		time.Sleep(5 * time.Millisecond)
	}
}

// String says how much was done.
func (l *Load) String() string {
	return fmt.Sprintf("%d commands, %d refused, %d in doubt", l.asked.Load(), l.refused.Load(), l.inDoubt.Load())
}
