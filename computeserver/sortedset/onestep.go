package sortedset

import (
	"bytes"
	"encoding/binary"
	"math"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// SET_MEMBER is a change of one member in one step, by the server that owns all that it is about
// (package comment, "In one step"). Its key is that of the item. Its value is that of an addition,
// or empty for a removal:
//
//	rule | score (8 bytes) | stamp (6) | head (13) | key of the set
//
// Its operand is what the item has to be; an empty one says nothing.

// Change is a SET_MEMBER at the server that makes it.
type Change struct {
	number number
	member []byte
	expect []byte

	adds  bool
	rule  Rule
	score float64
	stamp stamp
	head  []byte
	set   []byte
}

const (
	ruleAbsent = 1 << iota
	rulePresent
	ruleGreater
	ruleLess
	ruleAdd

	additionBytes = 1 + scoreBytes + stampBytes + headBytes
)

func (r Rule) bits() (b byte) {
	in := [...]bool{r.Absent, r.Present, r.Greater, r.Less, r.Add} // the order of the bits
	for bit, is := range in {
		if is {
			b |= 1 << bit
		}
	}
	return b
}

// appendAddition appends the value of a SET_MEMBER that adds e.
func appendAddition(dst []byte, e *edit, of stamp, h head, key []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, e.of.Rule.bits()), math.Float64bits(e.Score))
	return append(h.appendTo(append(dst, of[:]...)), key...)
}

// Parse makes c that of an operation, whose bytes it keeps. False: it is none.
func (c *Change) Parse(op *rpcv1.Operation) bool {
	n, ok := numberOf(op.Key)
	if !ok || !bytes.HasPrefix(op.Key, []byte(Prefix)) || len(op.Key) < underBytes || op.Key[underBytes-1] != isItem {
		return false
	}
	*c = Change{number: n, member: op.Key[underBytes:], expect: op.Operand}
	b := op.Value
	if len(b) == 0 {
		return true
	}
	if len(b) < additionBytes {
		return false
	}
	is := func(bit byte) bool { return b[0]&bit != 0 }
	c.adds, c.rule = true, Rule{Absent: is(ruleAbsent), Present: is(rulePresent), Greater: is(ruleGreater), Less: is(ruleLess), Add: is(ruleAdd)}
	c.score = math.Float64frombits(binary.BigEndian.Uint64(b[1:]))
	copy(c.stamp[:], b[1+scoreBytes:])
	c.head, c.set = b[additionBytes-headBytes:additionBytes], b[additionBytes:]
	return true
}

// Steps is what becomes of the pairs of a member, all at one moment. It is made again and again in
// the same memory.
type Steps struct {
	Item   []byte // what the item gets; empty: it goes
	Entry  []byte // key of the entry that gets Mark; empty: none does
	Former []byte // key of the entry that goes; empty: none does
	// The set whose head must be Head at the same moment; empty: none has to.
	Set, Head []byte
}

// Verdict is what a Change does with an item.
type Verdict byte

// The verdicts.
const (
	Nothing Verdict = iota // nothing: the rule says so, or the member is not there
	Do                     // the steps
	Other                  // nothing: that takes several steps, or the item is another one
)

// Mark is the value of an entry that counts whatever its item is: it was written in one step.
var Mark = []byte{1}

// marks reports whether the value of an entry is Mark.
func marks(value []byte) bool { return len(value) == 1 && value[0] == Mark[0] }

// Plan says what becomes of the member whose item is stored, if it was found.
func (c *Change) Plan(stored []byte, found bool, to *Steps) Verdict {
	was, ok := item{}, true
	if found {
		was, ok = parseItem(stored)
	}
	if !ok || was.pending || len(c.expect) > 0 && !bytes.Equal(stored, c.expect) {
		return Other
	}
	to.Item, to.Entry, to.Former, to.Set, to.Head = to.Item[:0], to.Entry[:0], to.Former[:0], nil, nil
	if !found && !c.adds {
		return Nothing
	}
	if c.adds {
		score, do, err := c.rule.decide(c.score, was.score, found)
		if err != nil || !do || found && score == was.score {
			return Nothing
		}
		is := item{score: score, stamp: c.stamp, marked: true}
		to.Item, to.Entry = is.appendTo(to.Item), c.number.appendEntry(to.Entry, score, c.member, c.stamp)
	}
	if found {
		to.Former = c.number.appendEntry(to.Former, was.score, c.member, was.stamp)
	} else {
		to.Set, to.Head = c.set, c.head
	}
	return Do
}

// ItemBytes is how many bytes the item of a member that is settled has.
const ItemBytes = 1 + scoreBytes + stampBytes

// Entry appends the key of the entry that c is going to write to dst, as far as is known before the
// item is. False: none is.
func (c *Change) Entry(dst []byte) ([]byte, bool) {
	if !c.adds || c.rule.Add {
		return dst, false
	}
	return c.number.appendEntry(dst, c.score, c.member, c.stamp), true
}

// addInOneStep adds members in one step each, where one server owns what each is about. It returns
// those for which that is not so, or whose items are pending: nothing was done for them.
func (s *Sets) addInOneStep(key []byte, h head, edits []*edit) (left []*edit) {
	t := newStep(len(edits), itemKeys(edits)+entryKeys(edits)+len(edits)*(additionBytes+len(key)))
	tried := make([]*edit, 0, len(edits))
	for _, e := range edits {
		item, of := t.item(h.number, e.Member), s.draw()
		// With Rule.Add the score is not known, and any other is as good a guess.
		if !s.Index.OneOwner(item, t.entry(h.number, e.Score, e.Member, of)) {
			left = append(left, e)
			continue
		}
		tried = append(tried, e)
		op := t.add(rpcv1.Operation_SET_MEMBER)
		op.Key = item
		from := len(t.data)
		op.Value = t.ownValue(appendAddition(t.data, e, of, h, key), from)
	}
	for i, o := range s.do(t) {
		e := tried[i]
		switch o.Code {
		case rpcv1.Outcome_OK:
			e.was = item{}
			if o.Found {
				e.was, _ = parseItem(o.Value) // its owner knew the form
			}
			e.decide()
			e.did, e.touched = e.err == nil, e.changed
		case rpcv1.Outcome_MISMATCH, rpcv1.Outcome_UNSUPPORTED, rpcv1.Outcome_INVALID:
			left = append(left, e)
		default:
			e.touched, e.err = o.Code == rpcv1.Outcome_UNKNOWN, &Failure{o}
		}
	}
	return left
}

// removeInOneStep removes members in one step each, and returns those that it removed. With known
// it removes only those whose items are still as they were read. left is as of addInOneStep.
func (s *Sets) removeInOneStep(n number, edits []*edit, known bool) (gone, left []*edit, err error) {
	t := newStep(len(edits), itemKeys(edits)+itemBytes*len(edits))
	for _, e := range edits {
		op := t.add(rpcv1.Operation_SET_MEMBER)
		if op.Key = t.item(n, e.Member); known {
			op.Operand = t.stored(e.was)
		}
	}
	for i, o := range s.do(t) {
		e := edits[i]
		switch o.Code {
		case rpcv1.Outcome_OK:
			s.changed, e.did = true, true
			e.was, _ = parseItem(o.Value) // its owner knew the form
			gone = append(gone, e)
		case rpcv1.Outcome_NOT_FOUND:
			e.did = true
		case rpcv1.Outcome_MISMATCH, rpcv1.Outcome_UNSUPPORTED, rpcv1.Outcome_INVALID:
			left = append(left, e)
		default:
			s.doubt = s.doubt || o.Code == rpcv1.Outcome_UNKNOWN
			s.changed = s.changed || s.doubt
			err = &Failure{o}
		}
	}
	return gone, left, err
}
