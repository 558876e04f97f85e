package dex

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/pool/redo"
)

// What a replay does with mixed slots (over.go).

// unmixed counts them, for tests: in leaves of the range, and in those that are mended under their
// locks.
type unmixed struct{ within, locked atomic.Int64 }

// unmix makes the mixed slots of f, which was filled from l, verify: their keys, which are among
// those that the replay changes, have empty values then. It returns false if there is damage.
func (p *replayer) unmix(f *frame, v *view, l *slotted.Leaf) bool {
	return l.Mixed(func(i int, w uint64, key []byte) bool {
		fp, off, _ := slotted.Slot(w)
		if !p.isKnown(key) {
			return false
		}
		p.x.unmixed.within.Add(1)
		f.put(p.x.lay, v, i, off/8, fp, p.x.lay.PutEntry(p.entry[:cap(p.entry)], key, nil))
		return true
	})
}

// isKnown reports whether a key of the range has a record.
func (p *replayer) isKnown(key []byte) bool {
	_, ok := slices.BinarySearchFunc(p.known, key, func(c change, key []byte) int { return strings.Compare(c.key, string(key)) })
	return ok
}

// mend is unmix, under its lock, for the leaf that holds key of the range, which may have keys of
// others, too, and may not be changed as in a frame.
func (p *replayer) mend(key []byte) error { return p.mendBy(p.s.Mend, key) }

// mendEnd is mend for a leaf that has keys on both sides of an end of the range. One that begins or
// ends there is none: it may be another client's, which changes it without its lock. The other
// leaves are nobody's: who takes a range divides them first.
func (p *replayer) mendEnd(key []byte) error { return p.mendBy(p.s.MendAround, key) }

func (p *replayer) mendBy(mend func([]byte, func([]byte) bool) error, key []byte) error {
	if len(p.logs) == 0 {
		return nil
	}
	p.s.Begin()
	defer p.s.End()
	var lost error
	err := mend(key, func(key []byte) bool {
		ok := p.isKnown(key)
		if !ok {
			if p.others == nil {
				p.others, lost = p.foreign()
			}
			_, ok = p.others[string(key)]
		}
		if ok {
			p.x.unmixed.locked.Add(1)
		}
		return ok
	})
	return errors.Join(lost, err)
}

// foreign returns the keys of all records of the logs.
func (p *replayer) foreign() (map[string]struct{}, error) {
	keys := map[string]struct{}{} // bounded by the rings
	for i := range p.logs {
		ref, err := redo.DecodeRef(p.logs[i].Log)
		if err != nil {
			return nil, err
		}
		err = redo.Replay(p.x.pool, ref, func(_ uint64, b []byte) error {
			var r record
			if err := r.decode(b); err != nil {
				return err
			}
			keys[string(r.key)] = struct{}{}
			return nil
		})
		if err != nil {
			return nil, op.Failure(err, false)
		}
	}
	return keys, nil
}
