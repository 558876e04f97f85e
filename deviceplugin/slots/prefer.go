package slots

import (
	"cmp"
	"fmt"
	"slices"
)

// Prefer picks n slots out of those that are available, among them all that are a must. Who asks
// for several wants several HCAs, close to each other; who asks for one wants the HCA that fewest
// others use. So the next slot is always one of
//
//  1. an HCA that works,
//  2. an HCA that was not picked yet,
//  3. the NUMA node of the first one; and that is one which has enough HCAs for all, if there is
//     any,
//  4. the HCA with most slots left,
//  5. the HCA whose name comes first; of its slots the lowest.
func (s *Set) Prefer(available, must []string, n int) ([]string, error) {
	if n < 0 || n > len(available) || len(must) > n {
		return nil, fmt.Errorf("pick %d of %d available slots with %d that are a must: impossible", n, len(available), len(must))
	}
	free := make([][]int, len(s.hcas)) // numbers of available slots by HCA
	for _, id := range available {
		r, err := s.find(id)
		if err != nil {
			return nil, err
		}
		free[r.place] = append(free[r.place], r.number)
	}
	for _, numbers := range free {
		slices.Sort(numbers)
	}
	p := picker{set: s, free: free, taken: make([]bool, len(s.hcas)), enough: s.nodesWithEnough(free, n)}
	for _, id := range must {
		r, err := s.find(id)
		if err != nil {
			return nil, err
		}
		at, ok := slices.BinarySearch(free[r.place], r.number)
		if !ok {
			return nil, fmt.Errorf("slot %q is a must, but is not available", id)
		}
		p.take(r.place, at)
	}
	for len(p.picked) < n {
		p.take(p.next(), 0)
	}
	return p.picked, nil
}

// nodesWithEnough is the NUMA nodes on which n different HCAs have a free slot.
func (s *Set) nodesWithEnough(free [][]int, n int) map[int]bool {
	count, enough := map[int]int{}, map[int]bool{}
	for i, h := range s.hcas {
		if len(free[i]) > 0 && h.Healthy() == nil {
			count[h.NUMANode]++
			enough[h.NUMANode] = count[h.NUMANode] >= n
		}
	}
	return enough
}

// picker is a choice under way.
type picker struct {
	set    *Set
	free   [][]int // by HCA, in order
	taken  []bool  // HCAs with a picked slot
	enough map[int]bool
	first  int // HCA of the first pick
	picked []string
}

func (p *picker) take(place, at int) {
	if len(p.picked) == 0 {
		p.first = place
	}
	p.taken[place] = true
	p.picked = append(p.picked, p.set.ids[place][p.free[place][at]])
	p.free[place] = slices.Delete(p.free[place], at, at+1)
}

// next is the HCA of the next slot. There is one with a free slot.
func (p *picker) next() int {
	best := -1
	for i := range p.set.hcas {
		if len(p.free[i]) > 0 && (best < 0 || p.compare(i, best) < 0) {
			best = i
		}
	}
	return best
}

// compare is negative if HCA a comes before b.
func (p *picker) compare(a, b int) int {
	x, y := p.set.hcas[a], p.set.hcas[b]
	return cmp.Or(
		falseFirst(x.Healthy() != nil, y.Healthy() != nil),
		falseFirst(p.taken[a], p.taken[b]),
		falseFirst(!p.near(x.NUMANode), !p.near(y.NUMANode)),
		cmp.Compare(len(p.free[b]), len(p.free[a])),
		cmp.Compare(x.Name, y.Name),
	)
}

// near reports whether a NUMA node is a good one for the next slot.
func (p *picker) near(node int) bool {
	if len(p.picked) == 0 {
		return p.enough[node]
	}
	return node == p.set.hcas[p.first].NUMANode
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
