package pool

import (
	"testing"

	"pgregory.net/rapid"
)

func TestAddrRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		server := rapid.Uint16Range(1, MaxServer).Draw(t, "server")
		offset := rapid.Uint64Range(0, 1<<offsetBits-1).Draw(t, "offset")
		a := NewAddr(server, offset)
		if a.Server() != server || a.Offset() != offset || a.Swizzled() || a == Nil {
			t.Fatalf("%v has server %d, offset %#x", a, a.Server(), a.Offset())
		}
		if s := a | swizzledBit; !s.Swizzled() || s.Server() != server || s.Offset() != offset {
			t.Fatalf("swizzled %v lost its parts", a)
		}
	})
}

func TestAddrRefusesWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		server uint16
		offset uint64
	}{{0, 0}, {MaxServer + 1, 0}, {1, 1 << offsetBits}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewAddr(%d, %#x) did not panic", c.server, c.offset)
				}
			}()
			NewAddr(c.server, c.offset)
		}()
	}
}
