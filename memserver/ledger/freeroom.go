package ledger

import (
	"fmt"
	"slices"
)

// freeSlot is a superblock slot that is free and zeroed.
func (l *Ledger) freeSlot() (int, error) {
	dirty := 0
	for i := range l.places {
		switch l.places[i].state {
		case placeFree:
			return i, nil
		case placeDirty:
			dirty++
		}
	}
	if dirty > 0 {
		return 0, fmt.Errorf("%w: %d superblock slots", ErrCleaning, dirty)
	}
	return 0, fmt.Errorf("%w: all %d superblock slots are in use; an index must be evicted or go to another server", ErrExhausted, len(l.places))
}

// freeLocks finds room for a slice of the lock table in the first of parts that has it: the first
// that fits; for 0, the default. Lock tables are small and slots few, so nothing is kept in order
// between calls.
func (l *Ledger) freeLocks(locks uint64, parts []Part) (first, n uint64, err error) {
	most := uint64(0)
	for _, part := range parts {
		if part.End > l.shape.Locks {
			return 0, 0, fmt.Errorf("%w: locks %d to %d are not all in the table of %d", ErrInvalid, part.First, part.End, l.shape.Locks)
		}
		at, largest, dirty := l.freeIn(part, locks)
		switch {
		case locks == 0 && largest >= LockAlign:
			return at, max(LockAlign, largest/8&^(LockAlign-1)), nil
		case locks != 0 && largest >= locks:
			return at, locks, nil
		case dirty:
			return 0, 0, fmt.Errorf("%w: slices of the lock table", ErrCleaning)
		}
		most = max(most, largest)
	}
	return 0, 0, fmt.Errorf("%w: %d locks asked, the largest free slice of the lock table has %d of %d; ask for fewer or use another server",
		ErrExhausted, max(locks, LockAlign), most, l.shape.Locks)
}

// freeIn finds the first free extent of a part that has so many locks; if there is none, or for 0,
// the largest. dirty: some of the part waits for zeroing.
func (l *Ledger) freeIn(part Part, locks uint64) (at, largest uint64, dirty bool) {
	var used []Part
	for i := range l.places {
		p := &l.places[i]
		t := Part{max(p.firstLock, part.First), min(p.firstLock+p.locks, part.End)}
		if p.state != placeFree && t.First < t.End {
			used = append(used, t)
			dirty = dirty || p.state == placeDirty
		}
	}
	slices.SortFunc(used, func(a, b Part) int { return int(int64(a.First) - int64(b.First)) })
	used = append(used, Part{part.End, part.End})
	next := part.First
	for _, t := range used {
		if free := t.First - min(t.First, next); free > largest {
			at, largest = next, free
			if locks != 0 && free >= locks {
				break
			}
		}
		next = max(next, t.End)
	}
	return at, largest, dirty
}
