package frame

import "github.com/dmindex/dmindex/pkg/index/internal/slotted"

// Notes of a frame: how it may be changed, and what has been made of it.
const (
	inPlaceNote = 1 << 30 // entries are put over those that they replace
	busyNote    = 1 << 29 // busy has its bits
	allNotes    = inPlaceNote | busyNote
)

// SetInPlace notes whether entries are put over those that they replace. Under the lock, while the
// frame is clean.
func (f *Frame) SetInPlace(over bool) {
	w := f.noted()
	if *w &^= inPlaceNote; over {
		*w |= inPlaceNote
	}
}

// inPlace reports whether an entry is put over the one that it replaces, though the memory server
// may have that one. Under the lock.
func (f *Frame) inPlace() bool { return *f.noted()&inPlaceNote != 0 }

// NoteWords returns the number of words that a frame has behind an image of so many words: busy,
// sets, clears, written, and changed.
func NoteWords(words int) int { return 3*mapWords(words) + 2 }

// notes returns busy, sets, clears, written and changed of f.
func (f *Frame) notes() []uint64 { return f.words[len(f.words):cap(f.words)] }

func mapWords(words int) int { return (words + 63) / 64 }

// noted has written and whether there are entries in place, and busy.
func (f *Frame) noted() *uint64 { return &f.notes()[3*mapWords(len(f.words))] }

// busy has a bit for each word that is in use. Under the lock. Most frames never need it: then it
// is not made. Until it is, each entry that was put took the words of the one before.
func (f *Frame) busy(v *View) []uint64 {
	busy, noted := f.notes()[:mapWords(len(f.words))], f.noted()
	if *noted&busyNote == 0 {
		*noted |= busyNote
		for i := range v.Count {
			if _, off, n := slotted.Slot(f.word(v.dir + i)); n > 0 {
				setBits(busy, off/8, (n+7)/8)
			}
		}
	}
	return busy
}

// sets has a bit for each slot that has another entry than the memory server's, clears one for each
// slot that was emptied.
func (f *Frame) sets() []uint64   { m := mapWords(len(f.words)); return f.notes()[m : 2*m] }
func (f *Frame) clears() []uint64 { m := mapWords(len(f.words)); return f.notes()[2*m : 3*m] }

// written returns the words between which entries were put; 0, 0 = none were.
func (f *Frame) written() (low, high int) {
	w := *f.noted()
	return int(w & (busyNote - 1)), int(w >> 32)
}

// setWritten sets written.
func (f *Frame) setWritten(low, high int) {
	w := f.noted()
	*w = uint64(high)<<32 | uint64(low) | *w&allNotes
}

// changed has bit i%64 for each slot i that got another entry since the leaf has this frame.
func (f *Frame) changed() *uint64 { return &f.notes()[3*mapWords(len(f.words))+1] }

// AnyChanged reports whether the leaf has changed since it has this frame. Under the lock, as all
// of the notes.
func (f *Frame) AnyChanged() bool { return *f.changed() != 0 }

// IsChanged reports whether slot i may be among those that changed.
func (f *Frame) IsChanged(i int) bool { return *f.changed()>>(i%64)&1 != 0 }

// SetChanged counts slot i among those that changed.
func (f *Frame) SetChanged(i int) { *f.changed() |= 1 << (i % 64) }

func setBits(m []uint64, at, n int) {
	for end := at + n; at < end; {
		first := at % 64
		k := min(64-first, end-at)
		m[at/64] |= (1<<k - 1) << first
		at += k
	}
}
