package resp

import (
	"bytes"
	"math"

	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/sortedset"
)

// by is what a range of a sorted set counts.
type by uint8

const (
	byAny by = iota // by rank, unless the arguments say otherwise
	byRank
	byScore
	byMember
)

// setRange is what a command asks for of a set.
type setRange struct {
	by              by
	reverse, scores bool
	start, stop     int64 // by rank
	limits          [2]sortedset.Limit
	ends            sortedset.Ends
	none            bool  // of ends
	offset, most    int64 // of LIMIT; a negative most is no bound
	turns           bool  // REV may be said
}

func (c *conn) cmdZRange(args [][]byte)    { c.rangeOf(args, setRange{turns: true}) }
func (c *conn) cmdZRevRange(args [][]byte) { c.rangeOf(args, setRange{by: byRank, reverse: true}) }
func (c *conn) cmdZRangeByScore(args [][]byte) {
	c.rangeOf(args, setRange{by: byScore})
}
func (c *conn) cmdZRevRangeByScore(args [][]byte) {
	c.rangeOf(args, setRange{by: byScore, reverse: true})
}

// rangeOf reads the arguments as Redis does, and replies the range.
func (c *conn) rangeOf(args [][]byte, r setRange) {
	if err := r.read(args, c.s.core.Index.MaxKeyBytes); err != nil {
		c.replyError(err.Error())
		return
	}
	s := c.sets(args[1], false)
	if s == nil {
		return
	}
	g := gathered{c: c, scores: r.scores}
	defer c.account.force(holdMany, 0)
	g.end(r.gather(s, bytes.Clone(args[1]), &g), true)
}

func (r *setRange) read(args [][]byte, longest int) error {
	r.most = -1
	for rest := args[4:]; len(rest) > 0; rest = rest[1:] {
		switch o := rest[0]; {
		case isWord(o, "WITHSCORES"):
			r.scores = true
		case isWord(o, "LIMIT") && len(rest) > 2:
			var ok, also bool
			r.offset, ok = engine.ParseInteger(rest[1])
			r.most, also = engine.ParseInteger(rest[2])
			if !ok || !also {
				return errNotInteger
			}
			rest = rest[2:]
		case isWord(o, "REV") && r.turns:
			r.reverse, r.turns = true, false
		case isWord(o, "BYLEX") && r.by == byAny:
			r.by = byMember
		case isWord(o, "BYSCORE") && r.by == byAny:
			r.by = byScore
		default:
			return errSyntax
		}
	}
	if r.by == byAny {
		r.by = byRank
	}
	switch {
	case r.most != -1 && r.by == byRank:
		return errRankLimit
	case r.scores && r.by == byMember:
		return errLexScores
	}
	low, high := args[2], args[3]
	if r.reverse && r.by != byRank {
		low, high = high, low
	}
	var err error
	switch r.by {
	case byRank:
		var ok, also bool
		r.start, ok = engine.ParseInteger(low)
		if r.stop, also = engine.ParseInteger(high); !ok || !also {
			err = errNotInteger
		}
	case byScore:
		r.limits, err = limitsOf(low, high)
	case byMember:
		r.ends, r.none, err = endsOf(low, high, max(longest-sortedset.Overhead, 0))
	}
	return err
}

// gather collects the range.
func (r *setRange) gather(s *sortedset.Sets, key []byte, g *gathered) error {
	switch r.by {
	case byScore:
		g.directly()
		return s.ByScore(key, r.limits, r.reverse, r.hint(), r.limited(g))
	case byMember:
		if r.none {
			r.most = 0
		}
		g.directly()
		return s.ByMember(key, r.ends, r.reverse, r.limited(g))
	}
	return r.gatherRanks(s, key, g)
}

// hint is how many members are read at a time; 0 = many.
func (r *setRange) hint() int {
	if n := r.offset + r.most; r.most > 0 && n > 0 && n < math.MaxInt32 {
		return int(n)
	}
	return 0
}

// limited gathers what LIMIT says.
func (r *setRange) limited(g *gathered) func(p sortedset.Pair) bool {
	skip, most := r.offset, r.most
	return func(p sortedset.Pair) bool {
		switch {
		case skip < 0 || most == 0:
			return false
		case skip > 0:
			skip--
			return true
		}
		most--
		return g.add(p) && most != 0
	}
}

// gatherRanks collects the members from rank start to stop. Ranks are counted from the end that is
// nearer: members before are read.
func (r *setRange) gatherRanks(s *sortedset.Sets, key []byte, g *gathered) error {
	const most = 1 << 62 // no set has as many members, and sums with it do not overflow
	start, stop := max(r.start, -most), min(r.stop, most)
	if start < 0 && stop >= 0 { // only a count says which comes first
		n, err := s.Card(key)
		if err != nil {
			return err
		}
		start = max(start+n, 0)
	}
	if start >= 0 {
		from := setRange{offset: start, most: -1}
		if stop >= 0 {
			if from.most = stop - start + 1; from.most <= 0 {
				from.most = 0
			}
			g.directly()
		}
		err := s.ByScore(key, sortedset.All, r.reverse, from.hint(), from.limited(g))
		if stop < 0 && g.full == nil && err == nil {
			g.pairs = g.pairs[:max(int64(len(g.pairs))+stop+1, 0)]
		}
		return err
	}
	// Both count from the far end.
	from := setRange{offset: -(stop + 1), most: stop - start + 1}
	if from.most <= 0 {
		from.most = 0
	}
	err := s.ByScore(key, sortedset.All, !r.reverse, from.hint(), from.limited(g))
	g.reverse()
	return err
}
