package dolphin_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dolphin"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// nastyOptions have leaves for a few records, keys longer than what an inner node's head has, and
// values that are words, in cells and outside.
var nastyOptions = []index.Options{
	{MaxKeyBytes: 255, MaxValueBytes: 3000},
	{MaxKeyBytes: 255, MaxValueBytes: 3000, InlineBytes: 1},
	{MaxKeyBytes: 20, MaxValueBytes: 8, NodeBytes: 256},
	{MaxKeyBytes: 1},
	{MaxKeyBytes: 2000, MaxValueBytes: 40},
	{Uint64: true, MaxValueBytes: 8, NodeBytes: 256},
	{Uint64: true, MaxValueBytes: 32 << 10, InlineBytes: 1},
}

// FuzzModel: see indextest.FuzzModel. Without pairs the roots are left, and a leaf.
func FuzzModel(f *testing.F) {
	seeds := 2 * len(nastyOptions)
	if testing.Short() {
		seeds = len(nastyOptions)
	}
	indextest.FuzzModel(f, indextest.Fuzz{
		Pool: pooltest.Options{Chunks: 48, Locks: 256},
		Open: dolphin.Open,
		Options: func(next func() int) (o index.Options, undo func()) {
			return nastyOptions[next()%len(nastyOptions)], func() {}
		},
		Steps: []indextest.Step{
			indextest.Insert, indextest.Upsert, indextest.Update, indextest.Delete, indextest.Delete,
			indextest.Modify, indextest.Batch, indextest.Scan,
		},
		Seeds: seeds, Bytes: 4000, MostLeft: 3,
	})
}
