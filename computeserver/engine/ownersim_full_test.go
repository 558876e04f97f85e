package engine

import "github.com/dmindex/dmindex/pkg/index"

// scarcity is whether there is memory to give ranges.
type scarcity struct {
	is    bool // most of the time there is none
	lasts bool // there is none at all, and trouble ends before there is some
}

func scarcityOf(r ownRun) scarcity {
	return scarcity{is: r.doomed == 0 && r.seed%8 >= 4 && r.seed%8 <= 5, lasts: r.seed%16 >= 12}
}

// calm reports whether a run is one in which moves are deferred, and nothing else is wrong.
func (s scarcity) calm(r ownRun) bool { return s.is && s.lasts && r.seed%32 >= 16 }

// isFull is the error of a Give that finds no memory.
func (w *ownWorld) isFull() error {
	// at the beginning every key has to be served within a time
	if !w.scarce.is || !w.begun || !w.scarce.lasts && (w.quiet || w.OneIn(6)) {
		return nil
	}
	w.counts.deferred++
	return index.ErrPoolFull
}

// fewHoldings is how many holdings of keys there may be at most; 0 = many. In some runs there are
// so few that moves are put off: hardly twice as many as there are servers, or four times.
func fewHoldings(r ownRun) int {
	if r.doomed > 0 || r.wrong != noMistake || r.seed%8 > 3 || r.seed%8 < 2 {
		return 0
	}
	return []int{6, 8, 16, 20}[r.seed/8%4]
}

// calmHoldings reports whether a run with so few holdings is one in which nothing else is wrong:
// with four for each server there is room in the end. With fewer, what changes hands at once may
// need more than there may be, and keys have no server for a moment.
func calmHoldings(few int) bool { return few >= 16 }

// separate is how many separate ranges a planned map may have; 0 = partition.MaxSeparate.
func (w *ownWorld) separate() int { return w.holdings / 2 }

// mostSeparate is how many those of the mover may have.
func (w *ownWorld) mostSeparate() int {
	if calmHoldings(w.holdings) {
		return w.separate()
	}
	return w.holdings * 3 / 4
}
