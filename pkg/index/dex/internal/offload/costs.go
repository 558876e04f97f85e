package offload

import "time"

// The rule that decides whether a memory server continues a search (section 6.1). A node of level L
// is not in the cache, and so probably no node below it is. A call takes l_p; READs take (L+1) x
// (l_o + l_s) x c. l_p and l_o are averages of this session's last calls to and READs from that
// server. l_s, the search in a node, and c, the other cost of a cache, are constants.
const (
	lately     = 50                    // samples in an average
	searchTime = 150 * time.Nanosecond // l_s
	upkeep     = 1.2                   // c
	steady     = 8                     // samples from which on an outlier is recognized
	outlier    = 4                     // a sample counts at most as so many times the average
	// one decision in so many is reversed, so that both averages stay current
	explore = 100
)

// average is the average of the last few samples.
type average struct {
	last [lately]time.Duration
	n    int // ever
	sum  time.Duration
}

// add adds a sample. A sample far above the average counts as a multiple of it: a goroutine that
// waited for its processor says nothing about a server. Many such samples still raise the average
// soon.
func (a *average) add(d time.Duration) {
	if a.n >= steady {
		d = min(d, outlier*max(a.mean(), time.Microsecond))
	}
	at := &a.last[a.n%lately]
	a.sum += d - *at
	*at = d
	a.n++
}

// mean returns the average; 0 without samples.
func (a *average) mean() time.Duration { return a.sum / time.Duration(max(1, min(a.n, lately))) }

// Costs are what one session knows of one memory server.
type Costs struct{ read, call average }

// ReadTook records a READ of a leaf.
func (c *Costs) ReadTook(d time.Duration) { c.read.add(d) }

// reads estimates how long READs of a node of a level, and of one node on each level below it, will
// take.
func (c *Costs) reads(level uint8) time.Duration {
	return time.Duration(float64(time.Duration(level+1)*(c.read.mean()+searchTime)) * upkeep)
}

// Worth reports whether to call for a node of a level. Without a measurement the call is tried.
// dice is any number.
func (c *Costs) Worth(level uint8, dice uint64) bool {
	switch {
	case c.read.n == 0:
		return false
	case c.call.n == 0:
		return true
	}
	return (c.call.mean() < c.reads(level)) != (dice%explore == 0)
}

// Called records a call for a node of a level. A call that did not help also counts the time of the
// READs that have to be made now.
func (c *Costs) Called(took time.Duration, level uint8, brought bool) {
	if !brought {
		took += c.reads(level)
	}
	c.call.add(took)
}
