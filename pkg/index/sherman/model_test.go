package sherman_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// nastyOptions have small nodes and large ones.
var nastyOptions = []index.Options{
	{MaxKeyBytes: 1},
	{MaxKeyBytes: 40, MaxValueBytes: 60, NodeBytes: 512},
	{MaxKeyBytes: 255, MaxValueBytes: 32 << 10},
	{Uint64: true, NodeBytes: 256},
	{Uint64: true, MaxValueBytes: 32 << 10, InlineBytes: 1},
}

// FuzzModel: see indextest.FuzzModel.
func FuzzModel(f *testing.F) {
	indextest.FuzzModel(f, indextest.Fuzz{
		Pool: pooltest.Options{Chunks: 48, Locks: 256},
		Open: sherman.Open,
		Options: func(next func() int) (o index.Options, undo func()) {
			return nastyOptions[next()%len(nastyOptions)], func() {}
		},
		Steps: []indextest.Step{
			indextest.Insert, indextest.Upsert, indextest.Update, indextest.Delete, indextest.Modify,
			indextest.Batch, indextest.Scan,
		},
		Seeds: 2 * len(nastyOptions), Bytes: 2500,
	})
}
