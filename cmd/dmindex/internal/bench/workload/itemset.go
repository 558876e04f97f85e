package workload

import (
	"math/bits"
	"sync/atomic"
)

// ItemSet is a set of items. Safe for concurrent use.
type ItemSet []atomic.Uint64

// NewItemSet makes an empty set of items below n.
func NewItemSet(n uint64) ItemSet { return make(ItemSet, (n+63)/64) }

// Has reports whether an item is in the set.
func (s ItemSet) Has(i uint64) bool { return s[i/64].Load()>>(i%64)&1 != 0 }

// Add puts an item into the set.
func (s ItemSet) Add(i uint64) { s[i/64].Or(1 << (i % 64)) }

// Len is how many items are in the set.
func (s ItemSet) Len() (n uint64) {
	for i := range s {
		n += uint64(bits.OnesCount64(s[i].Load()))
	}
	return n
}
