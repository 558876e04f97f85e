package chime

import (
	"bytes"
	"testing"
)

// TestVersionsDoNotWrap: between the READ of one half of what a lookup needs and that of the other
// half there are as many changes as let versions of four bits come again, and of eight and sixteen.
// A reader finds that out, whether entries changed or the leaf was rewritten.
func TestVersionsDoNotWrap(t *testing.T) {
	const home = 9
	for _, changes := range []int{1, 15, 16, 17, 32, 256, 1 << 16} {
		l := newTestLeaf(t, Span, Neighbourhood)
		key := l.homeKeys(home, 1)[0]
		l.set(home, key, key64(0))
		before := bytes.Clone(l.b)
		for n := 1; n <= changes; n++ {
			l.set(home, key, key64(uint64(n)*0x9E3779B97F4A7C15))
		}
		seen := *l
		at := l.slotAt(home)
		for from := 0; from < l.slot; from += 8 { // the slot's words from one on are from before
			seen.b = bytes.Clone(l.b)
			copy(seen.b[at+from:at+l.slot], before[at+from:])
			_, e, o := seen.find(key, home, testVersion)
			if o == present && !bytes.Contains(e, key64(0)) && !bytes.Contains(e, key64(uint64(changes)*0x9E3779B97F4A7C15)) || o == absent {
				t.Errorf("%d changes, the words from %d on are from before: outcome %d, %x", changes, from, o, e)
			}
		}

		// As many rewrites: a split took the key away.
		h, _ := l.open()
		h.Version += uint32(changes)
		after := *l
		after.b = make([]byte, len(l.b))
		after.build(&h, nil, nil)
		if _, _, o := after.find(key, home, testVersion+uint32(changes)); o != absent {
			t.Fatalf("%d rewrites: outcome %d", changes, o)
		}
		seen.b = bytes.Clone(before)
		copy(seen.b[at:at+l.slot], after.b[at:])
		for _, version := range []uint32{testVersion, testVersion + uint32(changes)} {
			if _, _, o := seen.find(key, home, version); o != torn {
				t.Errorf("%d rewrites, the slot is from after them, the version %d: outcome %d", changes, version-testVersion, o)
			}
		}
	}
}
