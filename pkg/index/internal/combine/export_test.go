package combine

import "time"

// Meet lets readers of t meet from now on, whatever READs take.
func (t *Reads) Meet() {
	for i := range t.loads {
		t.loads[i].loaded.Store(true)
	}
}

// SizeOf is sizeOf.
var SizeOf = sizeOf

// Limits of a table.
const (
	MaxReaders = maxReaders
	MaxCopied  = maxCopied
)

// Load is load, for tests.
type Load struct{ load }

// Add is add.
func (l *Load) Add(now, d time.Duration) { l.add(now, d) }

// Loaded reports whether READs stand in line.
func (l *Load) Loaded() bool { return l.loaded.Load() }
