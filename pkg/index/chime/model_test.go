package chime_test

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/chime"
	"github.com/dmindex/dmindex/pkg/index/indextest"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// nastyOptions are at the limits of what a leaf may be: of one slot more than none, of keys in the
// leaf and outside, of values of no bytes, in the leaf, and of the longest that may be.
var nastyOptions = []index.Options{
	{MaxKeyBytes: 1},
	{MaxKeyBytes: 32, MaxValueBytes: 8, NodeBytes: 512},
	{MaxKeyBytes: 33, MaxValueBytes: 40, NodeBytes: 576},
	{MaxKeyBytes: 255, MaxValueBytes: 32 << 10},
	{MaxKeyBytes: 32, MaxValueBytes: 257},
	{MaxKeyBytes: 32, MaxValueBytes: 3000, InlineBytes: 3000},
	{Uint64: true, NodeBytes: 256},
	{Uint64: true, MaxValueBytes: 32 << 10, InlineBytes: 1},
	{Uint64: true, MaxValueBytes: 8, NodeBytes: 32 << 10}, // 1,000 slots
	{MaxKeyBytes: 2000, MaxValueBytes: 2000},
}

// FuzzModel: see indextest.FuzzModel. Keys also have the same fingerprint, leaves all spans.
func FuzzModel(f *testing.F) {
	indextest.FuzzModel(f, indextest.Fuzz{
		Pool: pooltest.Options{Chunks: 48, Locks: 256},
		Open: chime.Open,
		Options: func(next func() int) (o index.Options, undo func()) {
			o, undo = nastyOptions[next()%len(nastyOptions)], func() {}
			if few := next(); few%2 == 0 {
				undo = chime.FewFingerprints(1 << (few / 2 % 8))
			}
			return o, undo
		},
		Steps: []indextest.Step{
			indextest.Insert, indextest.Upsert, indextest.Upsert, indextest.Update, indextest.Delete,
			indextest.Modify, indextest.Batch, indextest.Scan,
		},
		Seeds: 2 * len(nastyOptions), Bytes: 2500,
	})
}
