package dolphin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

const testAt = pool.Addr(1<<48 + 0x10000)

// newLeaf is a leaf of keys from low on, and below high, with records of some keys.
func newLeaf(t *testing.T, o index.Options, keys ...string) (l *leaf, end cursor) {
	t.Helper()
	lay, err := newLayout(o)
	if err != nil {
		t.Fatal(err)
	}
	lay.secret = siphash.Key{K0: 1, K1: 2}
	lay.Sums = sum.NewKey(lay.secret)
	l = &leaf{lay: &lay}
	l.build(make([]byte, lay.size), testAt, 7, 0x123456789ABCDEF3, []byte("a"), []byte("x"), testAt+64, pool.Nil)
	end = l.first()
	for _, k := range keys {
		if !l.hasRoom(end, lay.recordSize(len(k), 3)) {
			t.Fatalf("no room for %q", k)
		}
		_, end = l.put(end, []byte(k), lay.tagOf([]byte(k)), []byte(k[:3]), false)
	}
	return l, end
}

var leafOptions = []index.Options{{MaxKeyBytes: 20, MaxValueBytes: 8}, {MaxKeyBytes: 20, MaxValueBytes: 40}}

// TestLeaf: a leaf says what was put into it, and where it ends.
func TestLeaf(t *testing.T) {
	for _, o := range leafOptions {
		l, end := newLeaf(t, o, "bbb", "ccc and more than", "ccc")
		var r leaf
		r.lay = l.lay
		if !r.open(l.b, testAt) || string(r.low) != "a" || string(r.high) != "x" || r.endless || r.right != testAt+64 || r.merged != pool.Nil || r.forward() != 0 {
			t.Fatalf("%+v", r)
		}
		if other := (&leaf{lay: l.lay}); other.open(l.b, testAt+64) {
			t.Error("a leaf verifies at another address")
		}
		for _, k := range []string{"bbb", "ccc and more than", "ccc"} {
			f, damaged := r.find([]byte(k), r.lay.tagOf([]byte(k)))
			if damaged || !f.is || f.end != end {
				t.Fatalf("%q: %+v, %v", k, f, damaged)
			}
			if v, long, ok := r.value(f.cursor, f.w); string(v) != k[:3] || long || !ok {
				t.Errorf("%q: %q, %v, %v", k, v, long, ok)
			}
		}
		if f, damaged := r.find([]byte("cc"), r.lay.tagOf([]byte("cc"))); f.is || damaged {
			t.Errorf("a key that is not there: %+v", f)
		}
		l.b[l.records-1]++ // the last byte of max, or what fills it up
		if r.open(l.b, testAt) {
			t.Error("a leaf verifies with another max")
		}
		l.b[l.records-1]--
		unit.PutDead(l.b, testAt, 200, 9)
		if r.open(l.b, testAt) {
			t.Error("a leaf that is marked dead verifies")
		}
	}
}

// TestRecordInPart: a record of which any words are not there yet is not there, or has no value
// yet, and those before it are as they were.
func TestRecordInPart(t *testing.T) {
	for _, o := range leafOptions {
		before, _ := newLeaf(t, o, "bbb")
		after, _ := newLeaf(t, o, "bbb", "ccc and more than")
		key := []byte("ccc and more than")
		var changed []int
		for at := 0; at < len(after.b); at += wordBytes {
			if before.word(at) != after.word(at) {
				changed = append(changed, at)
			}
		}
		for there := range 1 << len(changed) {
			b := bytes.Clone(before.b)
			for i, at := range changed {
				if there>>i&1 != 0 {
					binary.LittleEndian.PutUint64(b[at:], after.word(at))
				}
			}
			l := leaf{lay: before.lay}
			if !l.open(b, testAt) {
				t.Fatal("the leaf does not verify")
			}
			f, damaged := l.find(key, l.lay.tagOf(key))
			whole := there == 1<<len(changed)-1
			value := false
			if f.is {
				_, _, value = l.value(f.cursor, f.w)
			}
			if damaged || f.is && value != whole {
				t.Errorf("%d of %d words: %+v, its value %v, damaged %v", there, len(changed), f, value, damaged)
			}
			_, end := newLeaf(t, o, "bbb")
			if w, ok, _ := l.get(end); ok && !bytes.Equal(l.key(end, w), key) {
				part := l.key(end, w) // may be a key of another user
				if f, _ := l.find(part, l.lay.tagOf(part)); f.is {
					t.Errorf("%q is there, of which nothing was written", part)
				}
			}
			if f, _ := l.find([]byte("bbb"), l.lay.tagOf([]byte("bbb"))); !f.is {
				t.Error("the record before is not there")
			}
		}
	}
}

// TestLayout: sizes with which a split makes no room are refused, with what to do.
func TestLayout(t *testing.T) {
	for says, o := range map[string]index.Options{
		"in less than 896; make leaves larger, or keys":                         {MaxKeyBytes: 200, NodeBytes: 256},
		"at most 8 and 100 bytes of a value in a leaf a split makes no room in": {Uint64: true, MaxValueBytes: 100, InlineBytes: 100, NodeBytes: 256},
		"leaves of 100 bytes: a multiple of 64 from 256 to 65536, or 0":         {Uint64: true, MaxValueBytes: 8, NodeBytes: 100},
		"leaves of -64 bytes: a multiple of 64 from 256 to 65536, or 0":         {Uint64: true, MaxValueBytes: 8, NodeBytes: -64},
		"leaves of 131072 bytes: a multiple of 64 from 256 to 65536, or 0":      {Uint64: true, MaxValueBytes: 8, NodeBytes: 128 << 10},
		"the limits are 4095 and 4096":                                          {MaxKeyBytes: 5000},
		"in leaves of at most 5000: the limits are 4095 and 4096":               {MaxKeyBytes: 8, MaxValueBytes: 5000, InlineBytes: 5000},
		"the limit is 32768":                           {MaxKeyBytes: 8, MaxValueBytes: 1 << 20},
		"the limit must be at least 1":                 {MaxValueBytes: 8},
		"uint64 keys have 8 bytes, not 9":              {Uint64: true, MaxKeyBytes: 9},
		"values of at most -1 bytes: the limit must":   {MaxKeyBytes: 8, MaxValueBytes: -1},
		"inline values of at most -1 bytes: the limit": {MaxKeyBytes: 8, MaxValueBytes: 8, InlineBytes: -1},
		"neighbourhoods of 8: the design has none":     {Uint64: true, MaxValueBytes: 8, Neighbourhood: 8},
	} {
		if _, err := newLayout(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, and not %q", o, err, says)
		}
	}
	l, err := newLayout(index.Options{Uint64: true, MaxValueBytes: 8})
	if got := fmt.Sprint(l.size, l.words, l.keysEnd, err); got != "1024 true 712 <nil>" {
		t.Error(got)
	}
}
