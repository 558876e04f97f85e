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
	g := gathered{c: c, scores: true, pairs: gone}
	g.end(nil, len(args) == 3)
}

// gathered are members for a reply, as many as fit it. They are held until all are known, unless
// they are replied in the order in which they come (directly).
type gathered struct {
	c      *conn
	scores bool // are replied, too
	pairs  []sortedset.Pair
	data   []byte // of the members, in few arrays
	size   int
	held   int
	full   error

	direct  bool
	body    body
	replied int // members
}

// gatherStep is by how many bytes what members hold is counted, gatherFirst is for how many of them
// there is room at first, and gatherTogether is how many bytes of members lie in one array.
const (
	gatherStep     = 64 << 10
	gatherFirst    = 128
	gatherTogether = 4 << 10
)

const smallerRange = "use LIMIT, or a smaller range"

// directly has members replied as they come.
func (g *gathered) directly() { g.direct, g.body = true, g.c.newBody() }

// add takes one more, and copies it. It is false where there are too many.
func (g *gathered) add(p sortedset.Pair) bool {
	if g.direct {
		g.full = g.show(g.body, p, g.c.resp3)
		return g.full == nil
	}
	if g.size += len(p.Member) + 64; g.size > g.c.s.maxReply {
		g.full = &engine.Failure{Code: rpcv1.Outcome_INVALID, Message: g.c.tooLarge(smallerRange)}
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
	if cap(g.data)-len(g.data) < len(p.Member) {
		g.data = make([]byte, 0, max(len(p.Member), gatherTogether))
	}
	from := len(g.data)
	g.data = append(g.data, p.Member...)
	p.Member = g.data[from:len(g.data):len(g.data)]
	g.pairs = append(g.pairs, p)
	return true
}

// show adds a member to a reply, as an array with its score if nested says so.
func (g *gathered) show(b body, p sortedset.Pair, nested bool) error {
	c := g.c
	if err := b.add(len(p.Member)+128, smallerRange); err != nil {
		return err
	}
	if g.replied++; nested && g.scores {
		c.out = redcon.AppendArray(c.out, 2)
	}
	c.out = redcon.AppendBulk(c.out, p.Member)
	if g.scores {
		c.out = c.appendScore(c.out, p.Score)
	}
	return nil
}

// end replies what was gathered, or the error that ended it. In RESP3 each member is an array of
// two with its score, if nested says so.
func (g *gathered) end(err error, nested bool) {
	b := g.body
	if nested = nested && g.c.resp3; !g.direct {
		b = g.c.newBody()
	}
	if err != nil {
		b.drop()
		g.c.failSet(err)
		return
	}
	for _, p := range g.pairs {
		if g.full == nil {
			g.full = g.show(b, p, nested)
		}
	}
	if g.full != nil {
		b.fail(g.full)
		return
	}
	n := g.replied
	if g.scores && !nested {
		n *= 2
	}
	b.send(appendHead(nil, n))
}

// reverse turns the order round.
func (g *gathered) reverse() { slices.Reverse(g.pairs) }
