package record

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// someGroup is a group of n members, and what they say.
func someGroup(r *rand.Rand, n int) (group []byte, said []string) {
	group = Append(nil, Group, 0, nil, nil)
	size := FixedBytes
	for range n {
		op, key, value := byte(Put+r.IntN(2)), make([]byte, r.IntN(9)), make([]byte, r.IntN(9))
		if op == Delete {
			value = nil
		}
		epoch := r.Uint64()
		group = AppendMember(group, op, epoch, key, value)
		size += MemberBytes(len(key), len(value))
		said = append(said, fmt.Sprintf("%d %d %x %x", op, epoch, key, value))
	}
	if size != len(group) {
		panic(fmt.Sprintf("a group of %d bytes has %d", size, len(group)))
	}
	return group, said
}

// visited is what a record says. Members that were visited before an error are told.
func visited(b []byte) (said []string, err error) {
	var r Record
	if err = r.Decode(b); err == nil {
		err = r.Each(func(r Record) { said = append(said, fmt.Sprintf("%d %d %x %x", r.Op, r.Epoch, r.Key, r.Value)) })
	}
	return said, err
}

// TestGroups: a group has all of its members, in their order. One that is cut short, or whose
// members are not plain, is refused, and none of its members is visited. So is a kind of record
// that a later version has.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for n := range 40 {
		group, want := someGroup(r, n)
		if got, err := visited(group); fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
			t.Fatalf("%d members are %v, %v, not %v", n, got, err, want)
		}
		for _, wrong := range []byte{0, Load, Cancel, PutIfAbsent, Group, Group + 1} {
			bad := AppendMember(bytes.Clone(group), wrong, 1, []byte("k"), nil)
			if got, err := visited(bad); len(got) > 0 || !errors.Is(err, index.ErrFormat) {
				t.Fatalf("%d members and one of kind %d: %v, %v", n, wrong, got, err)
			}
		}
	}
	group, want := someGroup(r, 5)
	for cut := range len(group) {
		got, err := visited(group[:cut])
		if err == nil && len(got) == len(want) || err != nil && (len(got) > 0 || !errors.Is(err, index.ErrFormat)) {
			t.Errorf("%d bytes of %d are %v, %v", cut, len(group), got, err)
		}
	}
	newer := Append(nil, Group+1, 1, []byte("k"), nil)
	if got, err := visited(newer); len(got) > 0 || !errors.Is(err, index.ErrFormat) {
		t.Errorf("a record of a later version is %v, %v", got, err)
	}
}

// FuzzGroups: whatever a group has is refused, or said.
func FuzzGroups(f *testing.F) {
	group, _ := someGroup(rand.New(rand.NewPCG(1, 1)), 3)
	f.Add(group)
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := visited(b); err != nil && len(got) > 0 {
			t.Errorf("%v, and %v", got, err)
		}
	})
}
