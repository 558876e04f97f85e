package users

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestReadable: the ranges that a user may read, one after the other, have the keys that it may
// read, each once, and no others.
func TestReadable(t *testing.T) {
	const longest = 3
	letters := []string{"a", "b", "\xff"}
	all := []string{""}
	for from, n := 0, 0; n < longest; n++ {
		to := len(all)
		for _, key := range all[from:to] {
			for _, l := range letters {
				all = append(all, key+l)
			}
		}
		from = to
	}
	slices.Sort(all)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		text := "user u on nopass +@" + []string{"read", "write", "all"}[r.IntN(3)]
		for range r.IntN(5) {
			// which may be longer than keys are
			prefix := all[r.IntN(len(all))] + []string{"", "", "a"}[r.IntN(3)]
			text += " " + []string{"~", "%R~", "%W~"}[r.IntN(3)] + prefix + "*"
		}
		users, err := Parse([]byte(text + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		u := users["u"]
		var want, got []string
		for _, key := range all {
			if u.MayRead([]byte(key)) {
				want = append(want, key)
			}
		}
		ranges := 0
		from, end, ok := u.Readable(nil, longest)
		for ; ok; from, end, ok = u.Readable(end, longest) {
			for _, key := range all {
				if k := []byte(key); bytes.Compare(k, from) >= 0 && (len(end) == 0 || bytes.Compare(k, end) < 0) {
					got = append(got, key)
				}
			}
			if ranges++; len(end) == 0 || ranges > 10 {
				break
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
