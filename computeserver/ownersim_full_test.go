package computeserver

import "github.com/dmindex/dmindex/pkg/index"

// isFull is the error of a Give that finds no memory.
func (w *ownWorld) isFull() error {
	// at the beginning every key has to be served within a time
	if !w.tight || !w.begun || w.quiet || w.oneIn(6) {
		return nil
	}
	w.counts.deferred++
	return index.ErrPoolFull
}
