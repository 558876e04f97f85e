package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// A group is several operations in one step. They run one after the other on copies of the pairs
// (groupPairs), and the index then makes what comes of that, in one step, if the pairs are still
// what the copies were made of (index.Grouper). So an operation of a group is the one that it is
// alone, and no operation knows of groups. The time stands still in a group.

// MostGroupAnswer bounds the bytes of a group's outcomes.
const MostGroupAnswer = 1 << 20

// checkGroup returns an error for a group that no server of this design can run.
func (c *Engine) checkGroup(op *rpcv1.Operation) error {
	ops, err := op.Group()
	if err == nil && !bytes.Equal(ops[0].Key, op.Key) {
		err = fmt.Errorf("a group for the key %s begins with %s", keyrange.Quote(op.Key), keyrange.Quote(ops[0].Key))
	}
	if err != nil {
		return &Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}
	}
	groups := c.Sessions.Groups()
	for _, each := range ops {
		if each.Kind == rpcv1.Operation_GROUP {
			return &Failure{Code: rpcv1.Outcome_INVALID, Message: "a group in a group"}
		}
		if err := c.CheckMember(each); err != nil {
			return err
		}
		if !groups && !isOnlyOn(each, op.Key) {
			return ErrNoGroups
		}
	}
	return nil
}

// isOnlyOn reports whether key is all that an operation of a group is on.
func isOnlyOn(op *rpcv1.Operation, key []byte) bool {
	is := true
	op.Keys(func(each []byte) { is = is && bytes.Equal(each, key) })
	return is
}

// placeOf is where an operation belongs by m, and the server. other is a key of a group that
// belongs to another one; nil = there is none.
func (c *Engine) placeOf(m *partition.Map, op *rpcv1.Operation) (place ownership.Placement, owner uint32, other []byte) {
	place, owner = c.View.Place(m, op.Key)
	if op.Kind != rpcv1.Operation_GROUP || place == ownership.Unknown {
		return place, owner, nil
	}
	ops, _ := op.Group() // it was checked
	for _, op := range ops {
		op.Keys(func(key []byte) {
			if _, of := c.View.Place(m, key); of != owner {
				other = key
			}
		})
	}
	return place, owner, other
}

// ErrNoGroups is the error of a group of several keys in a design that cannot keep a half of it
// from being seen.
var ErrNoGroups error = &Failure{Code: rpcv1.Outcome_UNSUPPORTED, Message: "in an index of this design every server changes every key, so commands on several keys are not done in one step, and nothing was done; send one transaction for each key, or use an index of design dex"}

// SplitGroup is the error of a group of keys that belong to different servers.
func SplitGroup(one, other []byte) error {
	return &Failure{Code: rpcv1.Outcome_INVALID, Message: fmt.Sprintf("the keys %s and %s belong to different servers, so these commands are not done in one step, and nothing was done; send one transaction for each server, or use an index whose spec.partitioning.atomicPrefix keeps such keys together", keyrange.Quote(one), keyrange.Quote(other))}
}

// servesAll reports whether a borrowed session may use all keys of an operation, or returns one
// that it may not.
func (s *Session) servesAll(op *rpcv1.Operation) (lacks []byte, all bool) {
	if !s.Serves(op.Key) {
		return op.Key, false
	}
	if op.Kind == rpcv1.Operation_GROUP {
		ops, _ := op.Group() // it was checked
		for _, op := range ops {
			op.Keys(func(key []byte) {
				if lacks == nil && !s.Serves(key) {
					lacks = key
				}
			})
		}
	}
	return lacks, lacks == nil
}

// grouping is what a session runs groups with.
type grouping struct {
	pairs  groupPairs
	over   Session // on pairs
	moment int64

	// of the scripts of the group under way
	scripted bool
	tries    int
	budget   scriptBudget
	turns    []int // that it has
}

// newGrouping makes that of s.
func newGrouping(s *Session) *grouping {
	g := &grouping{}
	now := func() int64 { return g.moment }
	g.over.Session = &g.pairs
	g.over.modification = modification{most: s.modification.most, now: now}
	g.over.scripts, g.over.in = s.scripts, g
	g.over.change, g.over.changeMark = g.over.modification.change, g.over.modification.changeMark
	if s.expiring != nil {
		g.over.expiring = expiry.New(&g.pairs, now)
	}
	return g
}

// runGroup is GROUP.
func runGroup(s *Session, op *rpcv1.Operation, dst []byte, o *rpcv1.Outcome) ([]byte, error) {
	ops, err := op.Group()
	if err != nil {
		return dst, &Failure{Code: rpcv1.Outcome_INVALID, Message: err.Error()}
	}
	if s.groups == nil {
		s.groups = newGrouping(s)
	}
	g := s.groups
	g.scripted, g.tries, g.budget.all = false, 0, mostSteps
	for _, op := range ops {
		op.Keys(s.note)
		g.scripted = g.scripted || op.Kind.IsScript()
	}
	var outcomes []*rpcv1.Outcome
	g.pairs.begin(ops)
	defer g.pairs.end()
	err = g.pairs.inOneStep(s.Session, g.scripted, func() (err error) {
		if g.scripted {
			if err := s.scripts.begin(g); err != nil {
				return err
			}
			g.moment = s.scripts.now()
		}
		if s.expiring != nil {
			g.moment = s.modification.now()
		}
		outcomes, err = g.run(ops, outcomes[:0])
		return err
	})
	if g.turns != nil {
		s.scripts.turns.leaveAll(g)
	}
	if err != nil {
		return dst, err
	}
	if dst, err = rpcv1.AppendGroupOutcomes(dst, outcomes); err != nil {
		return dst, fmt.Errorf("the group is done, and its answers are lost: %w: %w", index.ErrUnknown, err)
	}
	o.Value = dst
	return dst, nil
}

// run runs the operations on the pairs that they have now, and notes what these become. An error
// ends the group.
func (g *grouping) run(ops []*rpcv1.Operation, outcomes []*rpcv1.Outcome) ([]*rpcv1.Outcome, error) {
	g.pairs.load()
	g.over.counts.left = math.MaxUint32 // none is counted here
	size := 0
	for _, op := range ops {
		o := &rpcv1.Outcome{}
		_, err := Run(&g.over, op, nil, o)
		var ends *groupEnd
		switch means := o.Code.Meaning(); {
		case op.Kind == rpcv1.Operation_DIGEST && err != nil, !means.Healthy:
			return nil, err
		case errors.As(err, &ends):
			return nil, ends.error
		case !means.Answer:
			o = OutcomeOf(err)
		}
		if size += len(o.Value) + len(o.Message) + opOverhead; size > MostGroupAnswer {
			return nil, &Failure{Code: rpcv1.Outcome_INVALID, Message: fmt.Sprintf("the answers of the commands would take more than %d bytes, and nothing was done; ask for less in one transaction", MostGroupAnswer)}
		}
		outcomes = append(outcomes, o)
	}
	g.pairs.store()
	return outcomes, nil
}

// opOverhead is about what an outcome takes beside its value.
const opOverhead = 16

// groupPairs is the pairs of a group as an index.Session, of which only what operations use is
// there.
type groupPairs struct {
	index.Session
	members []index.Member
	at      map[string]int
	now     []groupPair // of members
}

// groupPair is what a key has while the operations of a group run.
type groupPair struct {
	value []byte
	found bool
	is    index.Action // Keep: as the index has it
}

// begin makes members those of the keys of ops.
func (p *groupPairs) begin(ops []*rpcv1.Operation) {
	p.members, p.at, p.now = p.members[:0], map[string]int{}, p.now[:0]
	for _, op := range ops {
		op.Keys(func(key []byte) {
			if _, there := p.at[string(key)]; !there {
				p.at[string(key)] = len(p.members)
				p.members, p.now = append(p.members, index.Member{Key: key}), append(p.now, groupPair{})
			}
		})
	}
}

// end drops what the pairs were.
func (p *groupPairs) end() {
	clear(p.members)
	clear(p.now)
	p.at = nil
}

// inOneStep has the index change the pairs as change says. A single pair is an ordinary
// modification, which every design has; where change takes long, it is asked before.
func (p *groupPairs) inOneStep(s index.Session, long bool, change func() error) (err error) {
	if len(p.members) > 1 {
		if by, ok := s.(index.Grouper); ok {
			return by.Group(p.members, change)
		}
		return ErrNoGroups
	}
	if long {
		return p.compared(s, change)
	}
	m := &p.members[0]
	failed := s.Modify(m.Key, func(old []byte, found bool) ([]byte, index.Action) {
		m.Old, m.Found, m.Value, m.Action = old, found, nil, index.Keep
		if err = change(); err != nil {
			return nil, index.Keep
		}
		return m.Value, m.Action
	})
	if failed != nil {
		return failed
	}
	return err
}

// compared looks the only pair up, asks change, and has the index do what it says if the pair is
// still the same; else it does so again. change bounds how often.
func (p *groupPairs) compared(s index.Session, change func() error) error {
	m := &p.members[0]
	for {
		old, err := s.Lookup(m.Key, m.Old[:0])
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return read(err)
		}
		m.Old, m.Found, m.Value, m.Action = old, err == nil, nil, index.Keep
		if err := change(); err != nil || m.Action == index.Keep {
			return err
		}
		moved := false
		err = s.Modify(m.Key, func(old []byte, found bool) ([]byte, index.Action) {
			if moved = found != m.Found || found && !bytes.Equal(old, m.Old); moved {
				return nil, index.Keep
			}
			return m.Value, m.Action
		})
		if err != nil || !moved {
			return err
		}
	}
}

// load makes the pairs what the index has.
func (p *groupPairs) load() {
	for i := range p.members {
		p.now[i] = groupPair{value: p.members[i].Old, found: p.members[i].Found}
	}
}

// store notes what the pairs have become.
func (p *groupPairs) store() {
	for i := range p.members {
		p.members[i].Action, p.members[i].Value = p.now[i].is, p.now[i].value
	}
}

func (p *groupPairs) pairOf(key []byte) *groupPair { return &p.now[p.at[string(key)]] }

func (x *groupPair) put(value []byte) {
	x.value, x.found, x.is = slices.Clone(value), true, index.Put
}

func (x *groupPair) remove() { x.value, x.found, x.is = nil, false, index.Remove }

// Lookup implements index.Session.
func (p *groupPairs) Lookup(key, dst []byte) ([]byte, error) {
	x := p.pairOf(key)
	if !x.found {
		return dst, index.ErrNotFound
	}
	return append(dst, x.value...), nil
}

// Insert implements index.Session.
func (p *groupPairs) Insert(key, value []byte) error {
	if p.pairOf(key).found {
		return index.ErrExists
	}
	return p.Upsert(key, value)
}

// Update implements index.Session.
func (p *groupPairs) Update(key, value []byte) error {
	if !p.pairOf(key).found {
		return index.ErrNotFound
	}
	return p.Upsert(key, value)
}

// Upsert implements index.Session.
func (p *groupPairs) Upsert(key, value []byte) error {
	p.pairOf(key).put(value)
	return nil
}

// Delete implements index.Session.
func (p *groupPairs) Delete(key []byte) error {
	x := p.pairOf(key)
	if !x.found {
		return index.ErrNotFound
	}
	x.remove()
	return nil
}

// Modify implements index.Session.
func (p *groupPairs) Modify(key []byte, change index.Change) error {
	x := p.pairOf(key)
	switch value, action := change(x.value, x.found); action {
	case index.Put:
		x.put(value)
	case index.Remove:
		x.remove()
	}
	return nil
}
