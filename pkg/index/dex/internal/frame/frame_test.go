package frame

import (
	"slices"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
	"pgregory.net/rapid"
)

// TestFrameLeavesBusyWordsAlone: an entry is put only into words that neither the image uses nor
// the memory server; whenever it is asked for them.
func TestFrameLeavesBusyWordsAlone(t *testing.T) {
	const count, size = 8, 80
	l, err := slotted.NewLayout(index.Options{Uint64: true, MaxValueBytes: 40})
	if err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	lay := &l
	rapid.Check(t, func(t *rapid.T) {
		f := Frame{words: make([]uint64, size, size+NoteWords(size))}
		f.words[1] = count << 16
		f.SetAddr(1 << 20)
		var v View
		f.Open(&v)
		f.SetInPlace(rapid.Bool().Draw(t, "over"))

		busy := make([]bool, size) // as if it was noted at each step
		words := func(i int) []bool {
			_, off, n := slotted.Slot(f.word(v.dir + i))
			return busy[off/8 : off/8+(n+7)/8]
		}
		fill := func(words []bool, used bool) {
			for i := range words {
				words[i] = used
			}
		}
		room := func(need int) int {
			for at := v.heap; at+need <= size; at++ {
				if !slices.Contains(busy[at:at+need], true) {
					return at
				}
			}
			return 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				i, e := rapid.IntRange(0, count-1).Draw(t, "slot"), make([]byte, rapid.IntRange(9, 48).Draw(t, "bytes"))
				w, need := f.word(v.dir+i), (len(e)+7)/8
				at := 0
				if w&0xfff != 0 {
					at = f.own(i, w, len(e))
				} else if f.clears()[0]>>i&1 != 0 {
					return
				}
				if at == 0 {
					at = f.place(&v, len(e))
					if want := room(need); at != want {
						t.Fatalf("%d words are put at %d, want %d", need, at, want)
					}
				}
				if at == 0 {
					return
				}
				f.Put(lay, &v, i, at, 1, e)
				fill(words(i), true)
			},
			"remove": func(t *rapid.T) {
				i := rapid.IntRange(0, count-1).Draw(t, "slot")
				if f.word(v.dir+i)&0xfff == 0 {
					return
				}
				f.Remove(lay, &v, i)
			},
			"write back": func(*rapid.T) {
				f.Clean()
				fill(busy, false)
				for i := range count {
					fill(words(i), true)
				}
			},
			"look": func(t *rapid.T) {
				need := rapid.IntRange(1, 8).Draw(t, "words")
				if at, want := f.place(&v, 8*need), room(need); at != want {
					t.Fatalf("there is room for %d words at %d, want %d", need, at, want)
				}
			},
		})
	})
}

// TestEmptiedSlotsWait: a slot that was emptied has no other key before its frame is written back.
// Else a crash could leave a key in two slots.
func TestEmptiedSlotsWait(t *testing.T) {
	const count, size = 2, 80
	l, err := slotted.NewLayout(index.Options{Uint64: true, MaxValueBytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	l.SetSecret(siphash.Key{K0: 1, K1: 2})
	f := Frame{words: make([]uint64, size, size+NoteWords(size))}
	f.words[1] = count << 16
	f.SetAddr(1 << 20)
	var v View
	f.Open(&v)
	room := func(what string, want int) (at int) {
		t.Helper()
		slot, at := f.FindRoom(&v, -1, 0, 16)
		if at == 0 {
			slot = -1
		}
		if slot != want {
			t.Errorf("%s: a new key has slot %d, want %d", what, slot, want)
		}
		return at
	}
	f.Put(&l, &v, 0, room("all are empty", 0), 1, make([]byte, 16))
	f.Clean()
	f.Remove(&l, &v, 0)
	f.Put(&l, &v, 1, room("one was emptied", 1), 1, make([]byte, 16))
	room("none is left before the write-back", -1)
	f.Clean()
	room("written back", 0)
}
