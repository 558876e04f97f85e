package main

import (
	"fmt"
	"math/rand/v2"
)

// Prefixes of keys. An index with two compute servers divides the keys so that the first server,
// the one that tools with one address ask, owns all of nearKeys and half of spreadKeys; the others
// are the second server's, so that it forwards commands on them.
const (
	nearKeys    = "a:"
	millionKeys = nearKeys + "m:" // not of the other rows
	spreadKeys  = "key:"
	ycsbKeys    = "usertable/user" // of go-ycsb, followed by a number of up to 19 digits
)

// dividedKeys are where the ranges of two compute servers begin: the first server's, the second
// one's, and so on in turn. Members of sorted sets lie at the end, with the first server.
func dividedKeys(keys int) []string {
	return []string{"b", spreadKeys, spreadKey(spreadKeys, keys/2), "l", ycsbKeys + "5", "\xff"}
}

// spreadKey is key i as redis-benchmark writes them.
func spreadKey(prefix string, i int) string { return fmt.Sprintf("%s%012d", prefix, i) }

// picker picks random keys without allocating.
type picker struct {
	random *rand.Rand
	keys   int
	key    []byte
}

func newPicker(prefix string, keys, seed int) *picker {
	return &picker{rand.New(rand.NewPCG(uint64(seed), rand.Uint64())), keys, []byte(spreadKey(prefix, 0))}
}

func (p *picker) next() []byte {
	n := p.random.IntN(p.keys)
	for i := range 12 {
		p.key[len(p.key)-1-i] = byte('0' + n%10)
		n /= 10
	}
	return p.key
}
