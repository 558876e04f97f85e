package reconciler

import (
	"fmt"
	"testing"
)

func TestSpareIDs(t *testing.T) {
	s := NewSpareIDs()
	f := func(want string, n int) {
		t.Helper()
		if got := fmt.Sprint(s.Take("pool", n)); got != want {
			t.Errorf("took %s, want %s", got, want)
		}
	}
	f("[]", 2)
	s.Put("pool", []int{7, 8})
	s.Put("pool", []int{3})
	s.Put("other", []int{1})
	f("[3 7]", 2)
	f("[8]", 2)
	f("[]", 2)
	if got := fmt.Sprint(s.Pick("pool", []int{1, 2, 3}, 2)); got != "[1 2]" {
		t.Errorf("picked %s", got)
	}
	s.Avoid("pool", 1)
	if got := fmt.Sprint(s.Pick("pool", []int{1, 2, 3}, 2)); got != "[2 3]" {
		t.Errorf("picked %s beside a number whose name is taken", got)
	}
}
