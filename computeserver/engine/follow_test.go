package engine

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// crowded is a home at which too many calls wait, so that it answers each at once.
type crowded struct {
	e     env.Env
	m     *partition.Map
	calls int
}

func (s *crowded) Map(uint64, time.Duration) ([]byte, error) {
	s.calls++
	s.e.Sleep(time.Millisecond)
	if s.m == nil {
		return nil, nil
	}
	return s.m.Marshal(nil)
}

// TestFollowACrowdedHome: a home that ends waits early is asked with pauses, whether it has a map
// or not, and a map that it gets is still noticed.
func TestFollowACrowdedHome(t *testing.T) {
	withManager(t, func(e env.Env, c *Engine, _ *scripted) {
		home, ended := &crowded{e: e}, e.NewEvent()
		c.Peers = answering{}
		e.Go("follow", func() { defer ended.Set(); c.Follow(home) })
		for generation := range uint64(3) {
			if generation > 0 {
				home.m = mapFor(t, generation, 1)
				until(t, e, "the map is noticed", func() bool { return c.View.Generation() == generation })
			}
			home.calls = 0
			e.Sleep(10 * time.Second)
			if home.calls < 2 || home.calls > 10 {
				t.Errorf("generation %d: asked %d times in 10 s", generation, home.calls)
			}
		}
		c.End()
		if !ended.Wait(time.Second) {
			t.Error("Follow does not end")
		}
	})
}
