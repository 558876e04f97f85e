package computeservertest

import (
	"math/rand/v2"
	"os"
	"strconv"
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

// Seeded are random numbers whose seed the log of the test says. DMINDEX_TEST_SEED replays one.
func Seeded(t testing.TB) *rand.Rand {
	seed, err := strconv.ParseUint(os.Getenv("DMINDEX_TEST_SEED"), 10, 64)
	if err != nil {
		seed = env.Real().Uint64()
	}
	t.Logf("replay with DMINDEX_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
