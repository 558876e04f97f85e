package dolphin

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index/internal/art"
	"github.com/dmindex/dmindex/pkg/pool"
)

// slotIn is the slot in b.
func slotIn(b []byte) art.Slot { return art.Slot(binary.LittleEndian.Uint64(b)) }

// shutAfterDeath is the hook of the pool (pool.Rebuild): it shuts the leaf of a lock word whose
// holder died. So what that left in part is never completed by chance, and never taken for whole:
// the next writer copies what counts to another leaf.
//
// The memory may not be a leaf any more. What is a leaf with a forward word stays as it is; what
// has no head of a leaf is not touched. It does not become another thing meanwhile: a leaf whose
// head verifies is given back only after its dead mark, and used again only when this operation is
// over.
func (t *Tree) shutAfterDeath(ps *pool.Session, w pool.Word, _ uint64, room []byte) (mask, own uint64, err error) {
	l := leaf{lay: &t.lay}
	b := room[:atBounds]
	ps.Read(w.Node, b)
	if err := ps.Post(); err != nil {
		return 0, 0, err
	}
	if !l.opensHead(b, w.Node) || l.forward() != 0 {
		return 0, 0, nil
	}
	l.setWord(atForward, shut)
	ps.Write(pool.Shared, w.Node+atForward, b[atForward:atBounds])
	return 0, 0, ps.Post()
}
