package dolphin

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/combine"
)

// lockFor is lockOr, for a change of a pair of key. A client may have died, or may have found no
// memory, behind the forward word of a leaf, before the leaves in its place got slots. Who brings
// that to its end needs memory for inner nodes, or for a leaf. Where there is none deletes, and
// other changes for which the leaf has room, are made all the same: so pairs can be taken out of a
// pool that is full.
//
// Then the leaf that is the truth for key is locked, by whatever way readers come to it. inPlace
// says why: it is the error of a change for which others would have to take the leaf's place.
// Whoever puts others there comes by the leaf's slot, and so does whoever merges it, so that is
// only done to leaves with slots. A change of records is made under the leaf's lock word, by which
// the leaf has no forward word, and is still the truth: it may have a slot or none. A leaf that is
// shut since a client died takes no new record, which would lie over what that left in part. The
// left leaf of a merge is not changed. It is the truth for its keys until it has the merged leaf's
// address, and that has copies of its records until then.
func (s *Session) lockFor(key []byte, whole bool, c *combine.Change) (bool, error) {
	s.inPlace = nil
	for {
		there, err := s.lockOr(key, whole, c)
		if err == nil || !errors.Is(err, index.ErrPoolFull) || s.PS.Err() != nil {
			return there, err
		}
		full := fmt.Errorf("other leaves are to take the place of a leaf before it takes such a change, and there is no memory for that; delete pairs, or let the index have more memory: %w", err)
		if there, err = s.find(key, false); err != nil {
			return false, err
		}
		if !there || s.leaf.forward() > shut {
			return false, full
		}
		l := &s.leaf
		if err := s.acquire(l.at, whole, nil); err != nil {
			return false, err
		}
		if l.open(s.room, l.at) && !l.below(key, false) && !l.above(key, false) && l.forward() <= shut {
			s.inPlace = full
			return true, nil
		}
		if err := s.Unlock(nil); err != nil {
			return false, err
		}
		if err := s.Reread(l.at); err != nil { // others have taken its place by now
			return false, err
		}
	}
}
