package dex

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// OnFabrics runs f on two fabrics. Where a WRITE is whole up to an MTU, a locked node is written at
// once. Where it is whole only up to a word, an image of the node is written before
// (pool.Pool.WholeAlways).
func OnFabrics(t *testing.T, f func(t *testing.T, o sim.Options)) {
	for _, whole := range []int{8, 4096} {
		t.Run(fmt.Sprintf("WRITEs of %d bytes are whole", whole), func(t *testing.T) {
			f(t, sim.Options{Capabilities: verbs.Capabilities{WholeWrite: whole, WholeAlways: true}})
		})
	}
}
