//go:build e2e && e2efull

package e2e

import (
	"testing"
	"time"
)

// TestSettledForLong: nobody writes to a settled index for five minutes.
func TestSettledForLong(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	s.rests(5*time.Minute, 8*time.Minute, "a settled index", func() string {
		return s.versions() + "\nevents:" + s.jsonpath("events", "{.items[*].metadata.resourceVersion}")
	})
}
