package dex_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestCrashInGroups kills a client after parts of its requests while its sessions change keys of
// two ranges in groups. Two clients take the ranges then. See groups for what is judged, and
// afterEachPart.
func TestCrashInGroups(t *testing.T) {
	seeds, step := uint64(6), 331
	var sum groupsCounts
	all := afterEachPart(t, seeds, step, func(t *testing.T, seed uint64, part int) (bool, error) {
		return crashInGroups(t, seed, part, &sum)
	})
	t.Logf("%+v", sum)
	if all && (sum.made == 0 || sum.singles == 0 || sum.removed == 0 || sum.looked == 0 || sum.later == 0) {
		t.Errorf("%+v: something never happened", sum)
	}
}

// groupsCounts are groups that were made, changes of one key between them, groups that removed
// keys, groups that only read, and pairs that were there after the client had died.
type groupsCounts struct{ made, singles, removed, looked, later int }

// groups is one run. Its keys are in twins, one in each of two ranges:
//
//   - Even twins are only changed together, to the same value. So nobody may ever see two values of
//     them in a group. A value begins with a number that only rises. So lookups one after the other
//     never find an older one in the second key than in the first.
//   - Every second one of these is removed, too, always with its twin. Then numbers may fall.
//   - Of odd twins groups count both up. Others count the first one up alone. So the difference is
//     how often that was done: nothing came between what a group read and what it wrote.
type groups struct {
	*owners
	sum    *groupsCounts
	number int
	made   [groupTwins]int // the highest number that was acknowledged, of even twins
	begun  [groupTwins]int // changes of one key alone, of odd twins
	ended  [groupTwins]int // those of them that were acknowledged
	counts [groupTwins]int // groups of odd twins that were acknowledged
}

const (
	groupTwins    = 24
	groupSessions = 3
	groupOps      = 40 // of a session
)

func crashInGroups(t *testing.T, seed uint64, part int, sum *groupsCounts) (ended bool, err error) {
	o, err := dying(t, seed, "client-1", part, 2*groupTwins, 256, poolsim.Options{Servers: 1 + int(seed%2), Executor: executor})
	if err != nil {
		return false, err
	}
	if o.opts.CacheBytes < 1<<20 { // a group needs its frames
		o.opts.CacheBytes = 32 << 10
	}
	o.seed = 3*seed + 1 // the first client has no technique off that groups need
	// Others may run between two steps of a group, too.
	o.w = simenv.New(simenv.Options{Seed: seed, MaxEvents: 5_000_000, Preempt: 1 + int(seed%4)})
	if o.c, err = poolsim.New(o.w, o.c.Options); err != nil {
		return false, err
	}
	g := &groups{owners: o, sum: sum}
	return ended, o.w.Run(func(p *simenv.Process) {
		o.main = p
		if err := g.play(&ended); err != nil {
			o.w.Fail(err)
		}
	})
}

func (g *groups) play(ended *bool) error {
	low := &owned{low: 0, high: groupTwins, start: simKey(0), end: simKey(groupTwins)}
	high := &owned{low: groupTwins, high: 2 * groupTwins, start: simKey(groupTwins)}
	g.ranges = []*owned{low, high}
	if g.make() {
		c := g.living[0]
		for _, r := range g.ranges {
			if err := g.moveTo(r, c); err != nil {
				return err
			}
		}
		if low.by == c && high.by == c {
			if err := g.workIn(c); err != nil {
				return err
			}
		}
		if c.p.Dead() {
			g.died(c)
		}
	}
	for alive := false; !alive; {
		for len(g.living) < 2 {
			g.make()
		}
		for i, r := range g.ranges { // each by another client
			if len(g.living) > i {
				if err := g.moveTo(r, g.living[i]); err != nil {
					return err
				}
			}
		}
		var err error
		if alive, err = g.judge(); err != nil {
			return err
		}
	}
	*ended = !g.all[0].gone
	return g.last()
}

// workIn lets the sessions of c work.
func (g *groups) workIn(c *owner) error {
	all := env.NewWaitGroup(g.main)
	for i := range groupSessions {
		over := g.main.NewEvent()
		c.p.AtKill(over.Set) // as in owners.in
		c.p.Go("group", func() {
			defer over.Set()
			if err := g.serve(c, rand.New(rand.NewPCG(g.seed, uint64(i)))); err != nil {
				g.w.Fail(err)
			}
		})
		all.Go("wait", func() { over.Wait(env.Forever) })
	}
	all.Wait(env.Forever)
	return nil
}

// number is what a value begins with; 0 if there is none.
func number(value []byte) int {
	n, _ := strconv.Atoi(strings.TrimRight(string(value), "."))
	return n
}

// padded is a value that begins with a number.
func padded(n int, r *rand.Rand) []byte {
	v := strconv.AppendInt(nil, int64(n), 10)
	for range r.IntN(20) {
		v = append(v, '.')
	}
	return v
}

func (g *groups) serve(c *owner, r *rand.Rand) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	for range groupOps {
		n := r.Uint64N(groupTwins)
		if g.seed%2 == 0 { // all about few keys
			n %= 4
		}
		switch kind := r.IntN(5); {
		case kind == 0:
			err = g.look(s, n)
		case kind == 1:
			err = g.peek(s, n&^1)
		case kind == 2:
			err = g.count(s, n|1, r)
		default:
			err = g.change(s, n, r)
		}
		if err != nil {
			return err
		}
	}
	return s.Close()
}

// change changes some twins together with those of n.
func (g *groups) change(s index.Session, n uint64, r *rand.Rand) error {
	var members []index.Member
	for range 1 + r.IntN(3) {
		members = append(members, index.Member{Key: simKey(n)}, index.Member{Key: simKey(n + groupTwins)})
		if n += 1 + r.Uint64N(4); n >= groupTwins {
			break
		}
	}
	removes := r.IntN(6) == 0
	seed := r.Uint64()
	var numbers []int
	err := s.(index.Grouper).Group(members, func() error {
		r := rand.New(rand.NewPCG(seed, 0))
		numbers = numbers[:0]
		for i := 0; i < len(members); i += 2 {
			a, b := &members[i], &members[i+1]
			n := numberOf(a.Key)
			switch {
			case n%2 == 1:
				a.Action, a.Value = index.Put, padded(number(a.Old)+1, r)
				b.Action, b.Value = index.Put, padded(number(b.Old)+1, r)
			case removes && a.Found && n%4 == 0:
				a.Action, b.Action = index.Remove, index.Remove
			default:
				g.number++
				v := padded(g.number, r)
				a.Action, a.Value, b.Action, b.Value = index.Put, v, index.Put, v
			}
			numbers = append(numbers, number(a.Value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	g.sum.made++
	for i := 0; i < len(members); i += 2 {
		switch n := numberOf(members[i].Key); {
		case n%2 == 1:
			g.counts[n]++
		case numbers[i/2] == 0:
			g.sum.removed++
		default:
			g.made[n] = max(g.made[n], numbers[i/2])
		}
	}
	return nil
}

func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key) >> 32 }

// look reads some twins in a group.
func (g *groups) look(s index.Session, n uint64) error {
	n &^= 1
	members := []index.Member{{Key: simKey(n)}, {Key: simKey(n + groupTwins)}, {Key: simKey(n + 1)}}
	if err := s.(index.Grouper).Group(members, func() error { return nil }); err != nil {
		return err
	}
	g.sum.looked++
	return g.same(n, members[0].Old, members[1].Old)
}

func (g *groups) same(n uint64, a, b []byte) error {
	if !bytes.Equal(a, b) {
		return fmt.Errorf("of a group there is a part: key %d has %q, and key %d has %q", n, a, n+groupTwins, b)
	}
	return nil
}

// peek looks twins up, one after the other.
func (g *groups) peek(s index.Session, n uint64) error {
	had := g.made[n]
	a, err := s.Lookup(simKey(n), nil)
	if err != nil && !errors.Is(err, index.ErrNotFound) {
		return err
	}
	b, err := s.Lookup(simKey(n+groupTwins), nil)
	if err != nil && !errors.Is(err, index.ErrNotFound) {
		return err
	}
	if n%4 == 2 && (number(a) < had || number(b) < number(a)) {
		return fmt.Errorf("key %d is seen at %q, and then key %d at %q; %d was acknowledged", n, a, n+groupTwins, b, had)
	}
	return nil
}

// count counts the first one of odd twins up.
func (g *groups) count(s index.Session, n uint64, r *rand.Rand) error {
	g.begun[n]++
	err := s.Modify(simKey(n), func(old []byte, _ bool) ([]byte, index.Action) {
		return padded(number(old)+1, r), index.Put
	})
	if err == nil {
		g.ended[n]++
		g.sum.singles++
	}
	return err
}

// judge looks at what there is when client 1 has ended. It returns false if a client died.
func (g *groups) judge() (alive bool, err error) {
	var all [2 * groupTwins][]byte
	for n := range all {
		r := g.ranges[n/groupTwins]
		if r.by == nil {
			return false, nil
		}
		by := r.by
		alive, err := g.in(by, "judge", func() error {
			s, err := by.x.Session()
			if err != nil {
				return err
			}
			if all[n], err = s.Lookup(simKey(uint64(n)), nil); errors.Is(err, index.ErrNotFound) {
				all[n], err = nil, nil
			}
			return errors.Join(err, s.Close())
		})
		if err != nil {
			return false, err
		}
		if !alive {
			g.died(by)
			return false, nil
		}
		g.model[string(simKey(uint64(n)))].value = string(all[n])
	}
	for n := range groupTwins {
		a, b := all[n], all[n+groupTwins]
		if len(a) > 0 {
			g.sum.later++
		}
		switch {
		case n%2 == 0:
			if err := g.same(uint64(n), a, b); err != nil {
				return false, err
			}
			if n%4 == 2 && number(a) < g.made[n] {
				return false, fmt.Errorf("key %d has %q, and %d was acknowledged", n, a, g.made[n])
			}
		case number(a)-number(b) < g.ended[n] || number(a)-number(b) > g.begun[n] || number(b) < g.counts[n]:
			return false, fmt.Errorf("key %d has %q, and key %d has %q: %d to %d counts alone, at least %d in groups", n, a, n+groupTwins, b, g.ended[n], g.begun[n], g.counts[n])
		}
	}
	return true, nil
}
