package dolphin_test

import (
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dolphin"
	"github.com/dmindex/dmindex/pkg/index/indextest"
)

// TestStructureOnThreads: see indextest.Threads. Values are words, or some of them are in blocks.
// Leaves are small, so that they come and go as well.
func TestStructureOnThreads(t *testing.T) {
	for _, o := range []index.Options{
		{MaxKeyBytes: 40, MaxValueBytes: 8, NodeBytes: 320},
		{MaxKeyBytes: 40, MaxValueBytes: 60, InlineBytes: 30, NodeBytes: 512},
	} {
		t.Run(fmt.Sprint(o.MaxValueBytes), func(t *testing.T) { indextest.Threads(t, dolphin.Open, o) })
	}
}
