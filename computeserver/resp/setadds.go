package resp

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// ZADD and ZINCRBY. Those of a window that follow each other and name one set are a run: the first
// one does all of them side by side (sortedset.Sets.AddEach), and each is replied when its turn
// comes. Nothing lies between two commands of a run that could make the reply another one.

// addition is what one command adds, and how it is replied.
type addition struct {
	rule    sortedset.Rule
	changed bool     // CH
	args    [][]byte // scores and members
}

// addsMembers reports whether a command is of those that add members.
func (k *command) addsMembers() bool { return k != nil && (k == zaddCommand || k == zincrbyCommand) }

// readAddition reads the arguments of k as Redis does.
func readAddition(k *command, args [][]byte) (a addition, err error) {
	if k == zincrbyCommand {
		return addition{rule: sortedset.Rule{Add: true}, args: args[2:]}, nil
	}
	at, r := 2, &a.rule
options:
	for ; at < len(args); at++ {
		switch o := args[at]; {
		case isWord(o, "NX"):
			r.Absent = true
		case isWord(o, "XX"):
			r.Present = true
		case isWord(o, "GT"):
			r.Greater = true
		case isWord(o, "LT"):
			r.Less = true
		case isWord(o, "CH"):
			a.changed = true
		case isWord(o, "INCR"):
			r.Add = true
		default:
			break options
		}
	}
	a.args = args[at:]
	switch {
	case len(a.args) == 0 || len(a.args)%2 != 0:
		err = errSyntax
	case r.Absent && r.Present:
		err = errNXAndXX
	case r.Greater && r.Absent || r.Less && r.Absent || r.Greater && r.Less:
		err = errGTAndLT
	case r.Add && len(a.args) > 2:
		err = errOneIncrement
	}
	return a, err
}

var (
	errNXAndXX      = errors.New("ERR XX and NX options at the same time are not compatible")
	errGTAndLT      = errors.New("ERR GT, LT, and/or NX options at the same time are not compatible")
	errOneIncrement = errors.New("ERR INCR option supports a single increment-element pair")
)

// pairBytes is what a member takes beside its argument while it is added.
const pairBytes = int(unsafe.Sizeof(sortedset.Pair{}))

// pairs are the members that scores stand before.
func (a addition) pairs() ([]sortedset.Pair, error) {
	pairs := make([]sortedset.Pair, len(a.args)/2)
	for i := range pairs {
		score, ok := scoreOf(a.args[2*i])
		if !ok {
			return nil, errNotFloat
		}
		pairs[i] = sortedset.Pair{Member: a.args[2*i+1], Score: score}
	}
	return pairs, nil
}

// addRun is what came of a run, until its commands are replied.
type addRun struct {
	first int // its first command, in the window
	asked []addition
	ended []sortedset.Addition
}

// addCommand adds a command to the run, for which the account has room.
func (r *addRun) addCommand(of *account, k *command, args [][]byte) error {
	a, err := readAddition(k, args)
	if err != nil {
		return err
	}
	if err := of.set(holdMany, int(of.bytes[holdMany])+len(a.args)/2*pairBytes); err != nil {
		return err
	}
	pairs, err := a.pairs()
	if err != nil {
		return err
	}
	r.asked = append(r.asked, a)
	r.ended = append(r.ended, sortedset.Addition{Rule: a.rule, Pairs: pairs})
	return nil
}

func (c *conn) cmdZAdd(args [][]byte) { c.addMembers(zaddCommand, args) }

func (c *conn) cmdZIncrBy(args [][]byte) { c.addMembers(zincrbyCommand, args) }

// addMembers replies a command, and does its run if it is the first one.
func (c *conn) addMembers(k *command, args [][]byte) {
	var alone addRun
	run, at := &alone, 0
	if w := c.window; w != nil {
		run, at = &w.adds, w.at
	}
	if n := at - run.first; n < 0 || n >= len(run.ended) {
		if !c.runAdditions(run, at, k, args) {
			return
		}
	}
	a, did := run.asked[at-run.first], run.ended[at-run.first]
	switch {
	case did.Err != nil:
		c.failSet(did.Err)
	case a.rule.Add && !did.Did.Done:
		c.replyNull()
	case a.rule.Add:
		c.out = c.appendScore(c.out, did.Did.Score)
		c.tally.Count(count.OK)
	case a.changed:
		c.replyInt(int64(did.Did.New + did.Did.Changed))
	default:
		c.replyInt(int64(did.Did.New))
	}
}

// runAdditions does the command that runs, and those of its run behind it. It is false if the
// command has its reply.
func (c *conn) runAdditions(run *addRun, at int, k *command, args [][]byte) bool {
	*run = addRun{first: at}
	defer c.account.force(holdMany, 0)
	switch err := run.addCommand(&c.account, k, args); {
	case err == errBudget:
		c.fail(err)
		return false
	case err != nil:
		c.replyError(err.Error())
		return false
	}
	if w := c.window; w != nil && c.multi.watched == nil {
		for i := range w.behind {
			p := &w.behind[i]
			if !p.k.addsMembers() || !p.k.allowsArgs(len(p.args)) || len(p.args) > respArgs || !bytes.Equal(p.args[1], args[1]) || !c.mayRun(p.k, p.args) || run.addCommand(&c.account, p.k, p.args) != nil {
				break
			}
		}
	}
	s := c.sets(args[1], true)
	if s == nil {
		*run = addRun{}
		return false
	}
	s.AddEach(bytes.Clone(args[1]), run.ended)
	for i := range run.ended {
		run.ended[i].Pairs = nil
	}
	return true
}
