package computeservertest

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Clock is the real world, but for a clock that can jump, as it does for a process that stood
// still.
type Clock struct {
	env.Env
	By atomic.Int64
}

// NewClock goes right until By is raised.
func NewClock() *Clock { return &Clock{Env: env.Real()} }

// Now implements env.Env.
func (j *Clock) Now() time.Duration { return j.Env.Now() + time.Duration(j.By.Load()) }

// Seeded are random numbers whose seed the log of the test says.
func Seeded(t testing.TB) *rand.Rand {
	seed := env.Real().Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
