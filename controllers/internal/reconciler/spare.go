package reconciler

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// SpareIDs are numbers that pools took for pods that were never made. An operator that starts knows
// none: then they stay unused.
type SpareIDs struct {
	mu    sync.Mutex
	pools map[types.UID][]int
	// numbers whose pods' names somebody else has
	others map[types.UID]map[int]bool
}

// NewSpareIDs returns SpareIDs without numbers.
func NewSpareIDs() *SpareIDs {
	return &SpareIDs{pools: map[types.UID][]int{}, others: map[types.UID]map[int]bool{}}
}

// Avoid says that a number's name is somebody else's.
func (s *SpareIDs) Avoid(pool types.UID, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others[pool] == nil {
		s.others[pool] = map[int]bool{}
	}
	s.others[pool][id] = true
}

// Pick is up to n of free numbers of a pool, the lowest ones whose names are not somebody else's.
func (s *SpareIDs) Pick(pool types.UID, free []int, n int) (ids []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range free {
		if len(ids) < n && !s.others[pool][id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// Take takes up to n numbers of a pool, the lowest ones.
func (s *SpareIDs) Take(pool types.UID, n int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.pools[pool]
	n = min(n, len(has))
	taken := slices.Clone(has[:n])
	if has = has[n:]; len(has) > 0 {
		s.pools[pool] = has
	} else {
		delete(s.pools, pool)
	}
	return taken
}

// Put gives numbers back.
func (s *SpareIDs) Put(pool types.UID, ids []int) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools[pool] = append(s.pools[pool], ids...)
	slices.Sort(s.pools[pool])
}
