package pool

import (
	"errors"
	"testing"
)

// fakeWords are lock words, of which the one at busy changes under the sweep, once.
type fakeWords struct {
	words []uint64
	busy  int
	fail  error
}

func (f *fakeWords) LoadLocks(at uint64, dst []uint64) error {
	copy(dst, f.words[at/8:])
	return f.fail
}

func (f *fakeWords) SwapLocks(at, compare, swap uint64) (uint64, error) {
	if int(at/8) == f.busy {
		f.busy = -1
		f.words[at/8] |= 9 << 48
	}
	old := f.words[at/8]
	if old == compare {
		f.words[at/8] = swap
	}
	return old, nil
}

func TestSweepLocks(t *testing.T) {
	f := &fakeWords{words: make([]uint64, 2000), busy: 1700}
	for i := range f.words {
		f.words[i] = uint64(i%3)<<32 | 7<<16 // locks of clients 1, 2 and 7
	}
	f.words[3] = uint64(Repair) << 16
	// from word 2 on, 1900 words
	turned, err := SweepLocks(f, 8, 4*1900, []uint16{2, 7, Repair - 1})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for i, w := range f.words {
		expect := uint64(i%3)<<32 | 7<<16
		switch in := i >= 2 && i < 1902; {
		case i == 3:
			expect = uint64(Repair) << 16
		case in && i%3 == 2:
			expect, want = uint64(Repair)<<32|uint64(Repair)<<16, want+2
		case in:
			expect, want = uint64(i%3)<<32|uint64(Repair)<<16, want+1
		}
		if i == 1700 {
			expect |= 9 << 48
		}
		if w != expect {
			t.Fatalf("word %d is %#x, want %#x", i, w, expect)
		}
	}
	if turned != want {
		t.Errorf("%d locks turned, want %d", turned, want)
	}
	f.fail = errors.New("no")
	if _, err := SweepLocks(f, 0, 8, []uint16{1}); !errors.Is(err, f.fail) {
		t.Errorf("a sweep that cannot read says %v", err)
	}
}
