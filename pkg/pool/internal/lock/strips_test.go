package lock

import (
	"encoding/binary"
	"errors"
	"testing"
)

// TestSweepOfStrips: a fence turns the words of strips that a fenced client holds, which no slot
// names. It leaves those of others, what is no strip any more, and what lies in no memory of the
// index; also after it was cut short anywhere. What a client owes under such a word is marked
// first.
func TestSweepOfStrips(t *testing.T) {
	const strip, words, gone, outside = 1600, 100, 3200, 512
	there := func(is bool) func() (bool, error) { return func() (bool, error) { return is, nil } }
	strips := func(see func(*Strip) error) error {
		for _, s := range []Strip{{strip, words, there(true)}, {gone, 4, there(false)}, {outside, 4, there(true)}} {
			if err := see(&s); err != nil {
				return err
			}
		}
		return nil
	}
	for cut := 0; ; cut++ {
		m := &memory{words: make([]uint64, 512), swaps: cut}
		for k, b := 0, slotOf(3, strip+8*7, 2, 4096, 1); k < SlotBytes/8; k++ {
			m.words[k] = binary.NativeEndian.Uint64(b[8*k:])
		}
		want := map[uint64]uint64{
			strip + 8*7: 3 | 0xabc<<16, strip + 8*70: 3 | 0x1<<16, strip + 8*99: 5,
			strip: 4 | 0xdef<<16, strip + 8: 0x123 << 16, strip + 16: Repair | 0x7<<16, strip + 8*100: 3, gone: 3, outside: 3,
		}
		for at, w := range want {
			m.words[at/8] = w
		}
		_, err := Sweep(m, 0, 1, []uint16{3, 5}, strips)
		if err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if turned := m.words[(strip+8*7)/8]; Holder(turned) == Repair && m.words[0]&Owed == 0 {
			t.Errorf("cut short after %d swaps: the word is turned, and what is owed under it is not marked", cut)
		}
		m.swaps = 1000
		if _, err := Sweep(m, 0, 1, []uint16{3, 5}, strips); err != nil {
			t.Fatal(err)
		}
		for _, at := range []uint64{strip + 8*7, strip + 8*70, strip + 8*99} {
			want[at] |= Repair
		}
		for at, w := range want {
			if got := m.words[at/8]; got != w {
				t.Errorf("cut short after %d swaps: the word at %d is %#x, want %#x", cut, at, got, w)
			}
		}
		if err == nil {
			return
		}
	}
}
