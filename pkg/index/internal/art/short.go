package art

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// shortFor is how long memory is called short after an allocation failed.
const shortFor = 2 * time.Second

// NoteShort says that an allocation failed with err, if it did for want of memory.
func (t *Tree) NoteShort(e env.Env, err error) {
	if errors.Is(err, index.ErrPoolFull) {
		t.shortUntil.Store(int64(e.Now() + shortFor))
	}
}

// IsMemoryShort reports whether memory is short: an allocation failed lately.
func (t *Tree) IsMemoryShort(e env.Env) bool {
	until := t.shortUntil.Load()
	return until != 0 && int64(e.Now()) < until
}
