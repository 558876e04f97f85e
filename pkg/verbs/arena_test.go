package verbs

import (
	"errors"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func TestArenaAlloc(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 1 << 16
		a, err := MapArena(size)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		var cut [][]byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(-1, size/4), 1, 50).Draw(t, "sizes") {
			b, err := a.Alloc(n)
			used := 0
			for _, c := range cut {
				used += (len(c) + 63) &^ 63
			}
			if fits := n > 0 && used+n <= size; fits != (err == nil) {
				t.Fatalf("%d bytes after %d of %d: %v", n, used, size, err)
			}
			if err != nil {
				continue
			}
			if len(b) != n || cap(b) != n || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%64 != 0 || !a.Contains(b) {
				t.Fatalf("%d bytes: %d long, %d capacity, at %p", n, len(b), cap(b), b)
			}
			for _, v := range b {
				if v != 0 {
					t.Fatal("a fresh buffer is not zero, or overlaps another")
				}
			}
			for i := range b {
				b[i] = 0xff
			}
			cut = append(cut, b)
		}
	})
}

func TestArenaContains(t *testing.T) {
	mem := make([]byte, 300)
	a := NewArena(mem[100:200], func([]byte) error { return nil })
	f := func(b []byte, want bool) {
		t.Helper()
		if got := a.Contains(b); got != want {
			t.Errorf("%d bytes: %v, want %v", len(b), got, want)
		}
	}
	f(mem[100:200], true)
	f(mem[100:101], true)
	f(mem[199:200], true)
	f(mem[99:150], false)
	f(mem[150:201], false)
	f(mem[50:99], false)
	f(mem[0:300], false)
	f(mem[200:201], false)
	f(mem[100:100], false)
	f(nil, false)
}

func TestArenaClose(t *testing.T) {
	released := 0
	failure := errors.New("kept")
	a := NewArena(make([]byte, 64), func([]byte) error { released++; return failure })
	if err := a.Close(); err != failure {
		t.Errorf("Close: %v, want %v", err, failure)
	}
	if err := a.Close(); err != nil || released != 1 {
		t.Errorf("the second Close: %v, released %d times", err, released)
	}
	if _, err := a.Alloc(1); err == nil {
		t.Error("a closed arena gives memory")
	}
	if _, err := MapArena(0); err == nil {
		t.Error("an arena of nothing can be made")
	}
}
