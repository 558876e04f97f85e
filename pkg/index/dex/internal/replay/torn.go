package replay

import (
	"maps"
	"slices"
	"strings"

	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/record"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Torn slots in a replay (frame/inplace.go).

// repairTorn makes the torn slots of f, which was filled from l, verify: their keys, which are
// among those that the replay changes, have values of zeros then, as long as before, so that the
// changes need no room. It returns false if there is damage.
func (p *replayer) repairTorn(f *frame.Frame, v *frame.View, l *slotted.Leaf) bool {
	return l.Mixed(func(i int, w uint64, key []byte) bool {
		fp, off, n := slotted.Slot(w)
		if !p.isKnown(key) {
			return false
		}
		p.torn.Within++
		f.Put(p.Lay, v, i, off/8, fp, slotted.PutZeros(p.Lay, p.entry[:cap(p.entry)], key, n))
		return true
	})
}

// isKnown reports whether the replay changes a key of the range whatever its leaf has.
func (p *replayer) isKnown(key []byte) bool {
	i, ok := slices.BinarySearchFunc(p.known, key, func(c change, key []byte) int { return strings.Compare(c.key, string(key)) })
	return ok && p.known[i].Overwrites()
}

// mend is repairTorn, under its lock, for the leaf that holds key of the range, which may have keys
// of others, too, and may not be changed as in a frame.
func (p *replayer) mend(key []byte) error { return p.mendBy(p.s.Mend, key) }

// mendEnd is mend for a leaf that has keys on both sides of an end of the range. One that begins or
// ends there is none: it may be another client's, which changes it without its lock. The other
// leaves are nobody's: who takes a range divides them first.
func (p *replayer) mendEnd(key []byte) error { return p.mendBy(p.s.MendAround, key) }

// mendBy reads the logs for keys of other ranges, if there are torn slots of such, without the
// leaf's lock.
func (p *replayer) mendBy(mend func([]byte, func([]byte) bool) error, key []byte) error {
	if len(p.logs) == 0 {
		return nil
	}
	p.s.Begin()
	defer p.s.End()
	n, unread := int64(0), false
	known := func(key []byte) bool {
		n++
		if p.taken.At(key) >= 0 {
			return p.isKnown(key)
		}
		unread = p.others == nil
		_, ok := p.others[string(key)]
		return ok
	}
	err := mend(key, known)
	if err != nil && unread {
		if p.others, err = p.foreign(); err != nil {
			return err
		}
		n = 0
		err = mend(key, known)
	}
	if err == nil {
		p.torn.Locked += n
	}
	return err
}

// foreign returns the keys of other ranges that a replay of the logs would change whatever their
// leaf has, in whichever epoch.
func (p *replayer) foreign() (map[string]struct{}, error) {
	all := map[string]*record.History{} // bounded by the rings
	err := p.eachRecord(p.logs, func(i int, _ *pool.Inherited, position uint64, r record.Record) {
		switch {
		case r.Op == record.Load:
			maps.DeleteFunc(all, func(_ string, h *record.History) bool { return h.Epoch() == r.Epoch })
		case p.taken.At(r.Key) < 0:
			note(all, r, position, i)
		}
	})
	if err != nil {
		return nil, err
	}
	keys := map[string]struct{}{}
	for key, h := range all { //env:real a set of them
		if r, ok := h.Outcome(); ok && r.Overwrites() {
			keys[key] = struct{}{}
		}
	}
	return keys, nil
}
