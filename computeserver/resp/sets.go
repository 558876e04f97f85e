package resp

import (
	"bytes"
	"slices"

	"github.com/tidwall/redcon"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// Commands on sorted sets. A command is many operations, on keys of many servers, so it is run by
// itself: what was asked before is done first, and no session is held. Package sortedset keeps
// keys, and copies members: these may lie in the read buffer.

// sets are the sets for one command; nil if the failure has been replied.
func (c *conn) sets(key []byte, changes bool) *sortedset.Sets {
	c.settle()
	s, err := c.s.core.Sets(key, changes, c.timeLeft(changes), c.term)
	if err != nil {
		c.fail(err)
		return nil
	}
	return s
}

// failSet replies an error of package sortedset.
func (c *conn) failSet(err error) {
	err = engine.SetFailure(err)
	c.noteWait(engine.CodeOf(err))
	c.fail(err)
}

func (c *conn) cmdZRem(args [][]byte) {
	if s := c.sets(args[1], true); s != nil {
		n, err := s.Remove(bytes.Clone(args[1]), args[2:])
		c.replySetInt(int64(n), err)
	}
}

func (c *conn) replySetInt(n int64, err error) {
	if err != nil {
		c.failSet(err)
		return
	}
	c.replyInt(n)
}

func (c *conn) cmdZCard(args [][]byte) {
	if s := c.sets(args[1], false); s != nil {
		c.replySetInt(s.Card(bytes.Clone(args[1])))
	}
}

func (c *conn) cmdZCount(args [][]byte) {
	of, err := limitsOf(args[2], args[3])
	if err != nil {
		c.replyError(err.Error())
		return
	}
	if s := c.sets(args[1], false); s != nil {
		c.replySetInt(s.Count(bytes.Clone(args[1]), of))
	}
}

func (c *conn) cmdZRemRangeByScore(args [][]byte) {
	of, err := limitsOf(args[2], args[3])
	if err != nil {
		c.replyError(err.Error())
		return
	}
	if s := c.sets(args[1], true); s != nil {
		c.replySetInt(s.RemoveByScore(bytes.Clone(args[1]), of))
	}
}

// cmdZScore is ZSCORE, and cmdZMScore ZMSCORE.
func (c *conn) cmdZScore(args [][]byte) { c.scores(args, true) }

func (c *conn) cmdZMScore(args [][]byte) { c.scores(args, false) }

func (c *conn) scores(args [][]byte, one bool) {
	s := c.sets(args[1], false)
	if s == nil {
		return
	}
	b := c.newBody()
	var full error
	found := false
	err := s.Scores(bytes.Clone(args[1]), args[2:], func(score float64, there bool) {
		if full == nil {
			full = b.add(64, "ask for fewer members")
		}
		if found = there; there {
			c.out = c.appendScore(c.out, score)
		} else {
			c.out = c.appendNull(c.out)
		}
	})
	switch {
	case err != nil:
		b.fail(engine.SetFailure(err))
	case full != nil:
		b.fail(full)
	case one && !found:
		b.drop()
		c.replyNull()
	case one:
		b.send(nil)
	default:
		b.send(appendHead(nil, len(args)-2))
	}
}

func (c *conn) cmdZRank(args [][]byte)    { c.rank(args, false) }
func (c *conn) cmdZRevRank(args [][]byte) { c.rank(args, true) }

func (c *conn) rank(args [][]byte, reverse bool) {
	withScore := len(args) == 4 && isWord(args[3], "WITHSCORE")
	if len(args) > 3 && !withScore {
		c.replyError(errSyntax.Error())
		return
	}
	s := c.sets(args[1], false)
	if s == nil {
		return
	}
	rank, score, there, err := s.Rank(bytes.Clone(args[1]), bytes.Clone(args[2]), reverse)
	switch {
	case err != nil:
		c.failSet(err)
	case !there && withScore && !c.resp3:
		c.out = append(c.out, "*-1\r\n"...)
		c.tally.Count(count.Miss)
	case !there:
		c.replyNull()
	case withScore:
		c.out = c.appendScore(redcon.AppendInt(redcon.AppendArray(c.out, 2), rank), score)
		c.tally.Count(count.OK)
	default:
		c.replyInt(rank)
	}
}

func (c *conn) cmdZPopMin(args [][]byte) { c.pop(args, false) }
func (c *conn) cmdZPopMax(args [][]byte) { c.pop(args, true) }

// popMost is how many members a command removes and replies at most.
const popMost = 100_000

// pop is ZPOPMIN and ZPOPMAX.
func (c *conn) pop(args [][]byte, reverse bool) {
	wanted := int64(1)
	if len(args) > 3 {
		c.replyError(errSyntax.Error())
		return
	}
	if len(args) == 3 {
		var ok bool
		if wanted, ok = engine.ParseInteger(args[2]); !ok || wanted < 0 {
			c.replyError(errNegative.Error())
			return
		}
	}
	s := c.sets(args[1], true)
	if s == nil {
		return
	}
	// The members that are removed must fit the reply, and cannot be counted before. Afterwards
	// they would be lost.
	each := c.s.core.Index.MaxKeyBytes + 64
	if most := int64(c.s.maxReply / each); wanted > 1 && wanted > most {
		wanted = max(min(most, popMost), 1)
	}
	err := c.account.set(holdMany, int(wanted)*each)
	defer c.account.force(holdMany, 0)
	if err == nil {
		err = c.reserve(int(wanted)*each + 2*headRoom)
	}
	if err != nil {
		c.fail(err)
		return
	}
	gone, err := s.Pop(bytes.Clone(args[1]), reverse, int(wanted))
	if err != nil {
		c.failSet(err)
		return
	}
	g := gathered{c: c, pairs: gone}
	g.reply(true, len(args) == 3)
}

// gathered are members for a reply, as many as fit it.
type gathered struct {
	c     *conn
	pairs []sortedset.Pair
	size  int
	held  int
	full  error
}

// gatherStep is by how many bytes what members hold is counted, and gatherFirst is for how many of
// them there is room at first.
const (
	gatherStep  = 64 << 10
	gatherFirst = 128
)

// add takes one more. It is false where there are too many.
func (g *gathered) add(p sortedset.Pair) bool {
	if g.size += len(p.Member) + 64; g.size > g.c.s.maxReply {
		g.full = &engine.Failure{Code: rpcv1.Outcome_INVALID, Message: g.c.tooLarge("use LIMIT, or a smaller range")}
		return false
	}
	if g.size > g.held {
		if g.full = g.c.account.set(holdMany, g.held+gatherStep); g.full != nil {
			return false
		}
		g.held += gatherStep
	}
	if g.pairs == nil { // counted with the first step
		g.pairs = make([]sortedset.Pair, 0, gatherFirst)
	}
	g.pairs = append(g.pairs, p)
	return true
}

// reply replies the members, with their scores or without. In RESP3 each member is an array of two
// with its score, if nested says so.
func (g *gathered) reply(scores, nested bool) {
	c := g.c
	b := c.newBody()
	n := len(g.pairs)
	if nested = nested && scores && c.resp3; scores && !nested {
		n *= 2
	}
	for _, p := range g.pairs {
		if err := b.add(len(p.Member)+128, "use LIMIT, or a smaller range"); err != nil {
			b.fail(err)
			return
		}
		if nested {
			c.out = redcon.AppendArray(c.out, 2)
		}
		c.out = redcon.AppendBulk(c.out, p.Member)
		if scores {
			c.out = c.appendScore(c.out, p.Score)
		}
	}
	b.send(appendHead(nil, n))
}

// reverse turns the order round.
func (g *gathered) reverse() { slices.Reverse(g.pairs) }
