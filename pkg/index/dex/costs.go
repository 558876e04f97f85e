package dex

import "time"

// What decides whether a memory server goes on with an operation (section 6.1): a node of level L
// is not in the cache, and so probably none below it. A call takes l_p; READs take (L+1) x (l_o +
// l_s) x c. l_p and l_o are averages of the last few that this session made to that server; l_s,
// the search in a node, and c, what a cache costs beside, are constants.
const (
	lately     = 50                    // of how many the averages are
	searchTime = 150 * time.Nanosecond // l_s
	upkeep     = 1.2                   // c
	steady     = 8                     // samples make an average
	outlier    = 4                     // times the average is the most that a sample counts
	// one decision in so many is turned round, so that the averages stay true
	explore = 100
)

// average of the last few.
type average struct {
	last [lately]time.Duration
	n    int // ever
	sum  time.Duration
}

// add takes a sample. One that is far above the average counts as a multiple of it: a goroutine
// that had to wait for its processor says nothing about a server, and many such samples still raise
// the average soon.
func (a *average) add(d time.Duration) {
	if a.n >= steady {
		d = min(d, outlier*max(a.mean(), time.Microsecond))
	}
	at := &a.last[a.n%lately]
	a.sum += d - *at
	*at = d
	a.n++
}

// mean is the average; it has none without samples.
func (a *average) mean() time.Duration { return a.sum / time.Duration(max(1, min(a.n, lately))) }

// costs are what one session knows of one memory server.
type costs struct{ read, call average }

// reads is how long READs of a node of a level, and of one on each level below it, will take.
func (c *costs) reads(level uint8) time.Duration {
	return time.Duration(float64(time.Duration(level+1)*(c.read.mean()+searchTime)) * upkeep)
}

// worth reports whether a call shall be made for a node of a level. What was never measured is
// tried. dice is any number.
func (c *costs) worth(level uint8, dice uint64) bool {
	switch {
	case c.read.n == 0:
		return false
	case c.call.n == 0:
		return true
	}
	return (c.call.mean() < c.reads(level)) != (dice%explore == 0)
}

// called notes a call for a node of a level. One that brought nothing took the time of the READs,
// too, that have to be made now.
func (c *costs) called(took time.Duration, level uint8, brought bool) {
	if !brought {
		took += c.reads(level)
	}
	c.call.add(took)
}
