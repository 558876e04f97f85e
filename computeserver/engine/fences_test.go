package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestFencesOutliveAFailedClaim: a former owner that was fenced at a memory server stays so,
// whatever becomes of claims meanwhile. It is fenced there once, and its keys find an owner as soon
// as a claim is answered.
func TestFencesOutliveAFailedClaim(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, s *scripted) {
		fences := map[uint16]int{}
		s.fence = func(server uint16) error {
			e.Sleep(300 * time.Millisecond)
			fences[server]++
			return nil
		}
		claims, granted := 0, false
		s.acquire = func(claim pool.Claim) (got pool.Acquired, err error) {
			switch claims++; {
			case claims%2 == 0:
				return got, verbs.ErrTimeout
			case slices.Contains(claim.Fenced, 7):
				granted = true
				got.Own = []pool.Holding{{Start: claim.Start, End: claim.End, Epoch: 2}}
			default:
				got.Blocked = []pool.Blocked{{Start: claim.Start, End: claim.End, Client: 7, Why: pool.ToBeFenced}}
			}
			return got, nil
		}
		c.View.Apply(mapFor(t, 1, 1))
		until(t, e, "the keys are granted", func() bool { return granted })
		if fences[2] != 1 || fences[3] != 1 {
			t.Errorf("times that the former owner was fenced, by memory server: %v", fences)
		}
	})
}
