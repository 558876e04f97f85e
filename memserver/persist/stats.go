package persist

import "time"

// Stats are what a Store does, for metrics.
type Stats struct {
	// LogBytes is how long the log is behind the newest checkpoint.
	LogBytes uint64
	// Waits says that changes wait: the disk is full, or the log as long as it may be.
	Waits bool
	// Syncs is how often a log was put on disk, and SyncTime how long all of that took.
	Syncs    uint64
	SyncTime time.Duration
}

// Stats may be called by any goroutine, at any time.
func (s *Store) Stats() Stats {
	start := s.start.Load()
	return Stats{LogBytes: max(s.at.Load(), start) - start, Waits: s.waits.Load(), Syncs: s.syncs.Load(), SyncTime: time.Duration(s.syncTime.Load())}
}
