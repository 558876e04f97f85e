package fence

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// Limits of nodes, in bytes.
const (
	MaxNodeBytes = 32 << 10
	MinNodeBytes = 256

	// Grain is what parts of a node are aligned to.
	Grain = 8
)

// Layout is what the formats of all nodes of one index depend on. It does not change while the
// index is open.
type Layout struct {
	item.Codec
	NodeBytes int
	// of leaves that are hash tables, as the options have it; 0 = the design's default, or it has
	// none
	Neighbourhood int
	// of the index, for leaves that are hash tables, and the sums of nodes and entries that follow
	// from it (SetSecret)
	Secret siphash.Key
	Sums   *sum.Key
}

// SetSecret makes s the secret of the index.
func (l *Layout) SetSecret(s siphash.Key) { l.Secret, l.Sums = s, sum.NewKey(s) }

// Seal writes the sum of the first unit of the node in b, which ends at end. Users choose fences
// and separators, so it is no CRC.
func (l *Layout) Seal(b []byte, end int, a pool.Addr, version uint32) {
	unit.SealUnder(l.Sums, b, end, a, version)
}

// Verify reports whether the first unit of the node in b, which ends at end, was sealed at a with
// that version.
func (l *Layout) Verify(b []byte, end int, a pool.Addr, version uint32) bool {
	return unit.VerifyUnder(l.Sums, b, end, a, version)
}

// Room returns how many bytes of a node lie behind a header with these fences.
func (l *Layout) Room(low, high []byte) int {
	return l.NodeBytes - RoundUp(HeaderBytes+len(low)+len(high))
}

// FenceOf returns the end of a range as the fence of a leaf; nil where that is an end of all keys.
func (l *Layout) FenceOf(end []byte) []byte {
	if len(end) > 0 && l.Uint64 && len(end) < 8 { // in the order of keys
		return append(bytes.Clone(end), make([]byte, 8-len(end))...)
	}
	if len(end) == 0 {
		return nil
	}
	return end
}

// HeadBytes is how many bytes a header with fences has at most.
func (l *Layout) HeadBytes() int { return RoundUp(HeaderBytes + 2*l.MaxKey) }

// RoundUp returns the next multiple of Grain from n on.
func RoundUp(n int) int { return (n + Grain - 1) &^ (Grain - 1) }
