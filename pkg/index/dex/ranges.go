package dex

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/index/internal/slottedtree"
	"github.com/dmindex/dmindex/pkg/pool"
)

// ranges are the keys that this client has taken, sorted and disjoint. It is a value; each change
// makes a new one.
type ranges struct {
	spans   []span
	leaving *span // the span being given, which is still in spans; nil = none (give.go)
}

// span is the keys from start up to end; an empty end is the upper end of the key space.
type span struct {
	start, end []byte
	epoch      uint64
}

// at returns the number of the span that holds key; -1 if none does.
func (r *ranges) at(key []byte) int {
	from, to := 0, len(r.spans) // the first span that starts above key
	for from < to {
		if mid := (from + to) / 2; bytes.Compare(r.spans[mid].start, key) > 0 {
			to = mid
		} else {
			from = mid + 1
		}
	}
	if from == 0 || !r.spans[from-1].reaches(key) {
		return -1
	}
	return from - 1
}

func (s *span) reaches(key []byte) bool { return len(s.end) == 0 || bytes.Compare(key, s.end) < 0 }

// whole reports whether all keys from low up to high (without bound if rightmost) were taken.
func (r *ranges) whole(low, high []byte, rightmost bool) bool {
	if r.at(low) < 0 {
		return false
	}
	_, end := r.around(low)
	return len(end) == 0 || !rightmost && bytes.Compare(high, end) <= 0
}

// mayMerge reports whether a leaf of the keys from low up to high may be merged with a neighbour:
// all its keys were taken, and it is not in a range that is being given. So no merge crosses an end
// of that range once a leaf begins there: at the lower end the right one of the two lies in the
// range, at the upper end the left one.
func (r *ranges) mayMerge(low, high []byte, rightmost bool) bool {
	return r.whole(low, high, rightmost) && (r.leaving == nil || bytes.Compare(low, r.leaving.start) < 0 || !r.leaving.reaches(low))
}

// around returns the taken keys around key without a gap, from low up to high; an empty high is the
// upper end of the key space. key must have been taken.
func (r *ranges) around(key []byte) (low, high []byte) {
	i := r.at(key)
	k := i
	for ; i > 0 && bytes.Equal(r.spans[i-1].end, r.spans[i].start); i-- {
	}
	for ; k+1 < len(r.spans) && bytes.Equal(r.spans[k].end, r.spans[k+1].start); k++ {
	}
	return r.spans[i].start, r.spans[k].end
}

// below returns the number of the span that holds the keys right below key (of all keys, if key is
// empty); -1 if none does.
func (r *ranges) below(key []byte) int {
	for i := range r.spans {
		s := &r.spans[i]
		if len(key) == 0 && len(s.end) == 0 {
			return i
		}
		if len(key) > 0 && bytes.Compare(s.start, key) < 0 && (len(s.end) == 0 || bytes.Compare(key, s.end) <= 0) {
			return i
		}
	}
	return -1
}

// giving returns r with s being given.
func (r *ranges) giving(s span) *ranges { return &ranges{spans: r.spans, leaving: &s} }

// without returns r without the keys from start up to end. Nothing of r is being given.
func (r *ranges) without(start, end []byte) *ranges {
	out := &ranges{}
	for _, s := range r.spans {
		if bytes.Compare(s.start, start) < 0 {
			left := s
			if s.reaches(start) {
				left.end = start
			}
			out.spans = append(out.spans, left)
		}
		if len(end) > 0 && s.reaches(end) {
			right := s
			if bytes.Compare(s.start, end) < 0 {
				right.start = end
			}
			out.spans = append(out.spans, right)
		}
	}
	return out
}

// with returns r and s.
func (r *ranges) with(s span) *ranges {
	out := r.without(s.start, s.end)
	out.spans = append(out.spans, s)
	slices.SortFunc(out.spans, func(a, b span) int { return bytes.Compare(a.start, b.start) })
	return out
}

// Take implements index.Partitioned. It first repairs the unfinished changes of dead clients:
// owners change leaves without their locks, so a later repair would undo changes. Then it divides
// the leaves at both ends, so that each belongs to one range entirely. Then it replays the logs:
// the last record of each key is written to the tree. In a full pool the last two steps alternate
// (room.go).
//
// It takes effect when the table of ranges has the range. It returns no error afterwards, because a
// session may have changed a key of the range by then.
func (x *dex) Take(r pool.Holding) error {
	x.moves.Lock()
	defer x.moves.Unlock()
	s, err := x.tree.NewSession()
	if err != nil {
		return fmt.Errorf("take a range: %w", err)
	}
	if err = x.take(s, r); err != nil {
		return fmt.Errorf("take a range: %w", errors.Join(err, s.Close()))
	}
	x.cache.evictions.recordAll()
	x.ranges.Store(x.ranges.Load().with(span{bytes.Clone(r.Start), bytes.Clone(r.End), r.Epoch}))
	// Where this range meets another one of this client, their leaves may be merged.
	for _, key := range [][]byte{x.fence(r.Start), x.fence(r.End)} {
		if key != nil {
			_ = s.MergeAt(key) // if it fails, later deletes do it
		}
	}
	// The session is not needed any more. The next operation notices a lost connection.
	_ = s.Close()
	return nil
}

func (x *dex) take(s *slottedtree.Session, r pool.Holding) error {
	if err := s.RepairAll(); err != nil {
		return err
	}
	return x.replay(s, &r)
}

// fence returns key as the fence of a leaf; nil if nothing has to be divided there.
func (x *dex) fence(key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	if x.lay.Uint64 && len(key) < 8 { // in the order of keys
		return append(bytes.Clone(key), make([]byte, 8-len(key))...)
	}
	return key
}

// within reports whether f's leaf lies in r, which is so if its low fence does: leaves are divided
// at the ends of ranges.
func (f *frame) within(v *view, r *ranges) bool {
	var low [128]byte
	return r.at(f.bytes(8*fenceWord, v.lowLen, low[:0])) >= 0
}
