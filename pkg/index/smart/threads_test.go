package smart_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/smart"
)

// TestStructureOnThreads: see indextest.Threads. Some values are in blocks.
func TestStructureOnThreads(t *testing.T) {
	indextest.Threads(t, smart.Open, index.Options{MaxKeyBytes: 40, MaxValueBytes: 60, InlineBytes: 30})
}
