package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmindex/dmindex/pkg/partition"
)

// MapSource delivers the partition map: the index's home memory server.
type MapSource interface {
	// Map waits, up to wait, for a map of a generation above newerThan, and returns the present
	// map, encoded; nil if there is none yet. It returns early when the source is closed.
	Map(newerThan uint64, wait time.Duration) ([]byte, error)
}

const (
	mapWait = 20 * time.Second // of one long poll
	// The pause after one that failed, or from the begin of one to the next if it brought nothing
	// new. Doubled up to mapRetrySlowest.
	mapRetry        = 200 * time.Millisecond
	mapRetrySlowest = 5 * time.Second
)

// Follow keeps the server's map as new as its source, until End. While the source cannot be reached
// the map stays. A source at which too many wait ends waits early (memserver/waits.go), so an early
// answer without news is a reason to ask less often.
func (c *Engine) Follow(source MapSource) {
	retry := mapRetry
	for !c.stopped.Load() {
		known, begun := c.View.Generation(), c.Env.Now()
		err := c.poll(source)
		c.setMapError(err)
		pause := retry
		if err == nil {
			pause -= c.Env.Now() - begun
		}
		if pause <= 0 || err == nil && c.View.Generation() != known {
			retry = mapRetry
			continue
		}
		c.stop.Wait(pause)
		retry = min(2*retry, mapRetrySlowest)
	}
}

// poll asks once.
func (c *Engine) poll(source MapSource) error {
	data, err := source.Map(c.View.Generation(), mapWait)
	if err != nil {
		return fmt.Errorf("read the partition map: %w", err)
	}
	if len(data) == 0 {
		if c.View.Current() != nil {
			return errors.New("read the partition map: the memory server has none any more")
		}
		return nil
	}
	m, err := partition.Unmarshal(data)
	if err != nil {
		return fmt.Errorf("read the partition map: %w", err)
	}
	if m.Index != c.Index.Identity {
		return fmt.Errorf("read the partition map: it belongs to index %s, this server has index %s", m.Index, c.Index.Identity)
	}
	if c.View.Apply(m) {
		c.Peers.Keep(m.Servers)
		c.Log.Info("partition map", "generation", m.Generation, "servers", len(m.Servers), "ranges", len(m.Ranges), "planned_moves", len(m.Planned))
	}
	return nil
}
