package workload

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Distribution says how popular items are.
type Distribution struct {
	Theta  float64 // 0 = all alike
	Latest bool    // the youngest items are the popular ones
	// draw from so many, more or fewer than there are items; 0 = as many. See ParseDistribution
	Ranks uint64
}

// ParseDistribution reads "uniform", "zipfian", "zipfian:THETA", "zipfian:THETA/RANKS" or "latest".
// With RANKS, popular items are as popular as among so many: rank r stands for item r modulo the
// number of items. With fewer ranks than items the others are not drawn.
func ParseDistribution(text string) (Distribution, error) {
	name, exponent, given := strings.Cut(text, ":")
	d := Distribution{Theta: 0.99}
	switch name {
	case "uniform":
		d.Theta = 0
	case "zipfian":
	case "latest":
		d.Latest = true
	default:
		return d, fmt.Errorf("unknown distribution %q: there are uniform, zipfian:THETA (0.99 unless given) and latest", text)
	}
	if given && name == "zipfian" {
		var ranks string
		if exponent, ranks, given = strings.Cut(exponent, "/"); given {
			n, err := strconv.ParseFloat(ranks, 64)
			if err != nil || !(n >= 1 && n <= 1e15) {
				return d, fmt.Errorf("distribution %q: write zipfian:THETA/RANKS with a number of ranks, as in zipfian:0.99/1e9", text)
			}
			d.Ranks = uint64(n)
		}
		given = true
	}
	if given {
		theta, err := strconv.ParseFloat(exponent, 64)
		if err != nil || name == "uniform" || !(theta > 0 && theta <= 5) {
			return d, fmt.Errorf("distribution %q: write zipfian:THETA or latest:THETA with a number above 0 and at most 5", text)
		}
		d.Theta = theta
	}
	return d, nil
}

// String is how ParseDistribution reads it.
func (d Distribution) String() string {
	switch {
	case d.Theta == 0:
		return "uniform"
	case d.Latest && d.Theta == 0.99:
		return "latest"
	case d.Latest:
		return fmt.Sprintf("latest:%g", d.Theta)
	}
	text := fmt.Sprintf("zipfian:%g", d.Theta)
	if d.Ranks > 0 {
		text += strings.Replace(fmt.Sprintf("/%g", float64(d.Ranks)), "e+0", "e", 1)
	}
	return text
}

// ranksOf is from how many ranks so many items are drawn.
func (d Distribution) ranksOf(items uint64) uint64 {
	if d.Ranks > 0 {
		return d.Ranks
	}
	return items
}

// Chooser draws items.
type Chooser struct {
	d    Distribution
	zipf *zipf
}

// NewChooser makes a chooser that draws from so many items at first.
func NewChooser(d Distribution, items uint64) *Chooser {
	c := &Chooser{d: d}
	if d.Theta > 0 {
		c.zipf = newZipf(d.Theta, items)
	}
	return c
}

// Next draws one of the first items.
func (c *Chooser) Next(r *rand.Rand, items uint64) uint64 {
	if c.zipf == nil {
		return r.Uint64N(items)
	}
	c.zipf.grow(c.d.ranksOf(items))
	rank := c.zipf.next(r) % items
	if c.d.Latest {
		return items - 1 - rank
	}
	return rank
}
