package ranges

import (
	"fmt"
	"strings"
	"testing"
)

// String shows a table as the picture does: "[d,k)3 [k,p)7".
func (r *Table) String() string {
	var b strings.Builder
	for i := range r.Len() {
		s := r.Span(i)
		fmt.Fprintf(&b, "[%s,%s)%d ", s.Start, s.End, s.Epoch)
	}
	return strings.TrimSpace(b.String())
}

func span(start, end string, epoch uint64) Span {
	return Span{Start: []byte(start), End: []byte(end), Epoch: epoch}
}

// picture is the table of the package's comment.
func picture() *Table { return Of(span("d", "k", 3), span("k", "p", 7), span("z", "", 3)) }

func TestAt(t *testing.T) {
	f := func(key string, want int) {
		t.Helper()
		if got := picture().At([]byte(key)); got != want {
			t.Errorf("%q is in span %d, want %d", key, got, want)
		}
	}
	f("", -1)
	f("c", -1)
	f("d", 0)
	f("j", 0)
	f("k", 1)
	f("p", -1)
	f("z", 2)
	f("zz", 2)
	if got := Of().At([]byte("a")); got != -1 {
		t.Errorf("an empty table has the key in span %d", got)
	}
}

func TestCovers(t *testing.T) {
	f := func(low, high string, rightmost, want bool) {
		t.Helper()
		if got := picture().Covers([]byte(low), []byte(high), rightmost); got != want {
			t.Errorf("from %q to %q, rightmost %v: %v, want %v", low, high, rightmost, got, want)
		}
	}
	f("d", "p", false, true)
	f("e", "n", false, true)
	f("e", "q", false, false)
	f("c", "e", false, false)
	f("k", "", true, false)
	f("z", "", true, true)
}

func TestMayMerge(t *testing.T) {
	giving := picture().Giving(span("m", "n", 0))
	f := func(low, high string, want bool) {
		t.Helper()
		if got := giving.MayMerge([]byte(low), []byte(high), false); got != want {
			t.Errorf("from %q to %q: %v, want %v", low, high, got, want)
		}
	}
	f("k", "m", true)
	f("m", "mm", false)
	f("n", "o", true)
	f("n", "q", false)
}

func TestWithout(t *testing.T) {
	f := func(start, end, want string) {
		t.Helper()
		if got := picture().Without([]byte(start), []byte(end)).String(); got != want {
			t.Errorf("without %q to %q: %s, want %s", start, end, got, want)
		}
	}
	f("e", "m", "[d,e)3 [m,p)7 [z,)3")
	f("a", "d", "[d,k)3 [k,p)7 [z,)3")
	f("o", "", "[d,k)3 [k,o)7")
	f("", "", "")
	if got := picture().With(span("o", "zz", 9)).String(); got != "[d,k)3 [k,o)7 [o,zz)9 [zz,)3" {
		t.Errorf("with a span over two others: %s", got)
	}
}

// TestBound: a scan goes on over ends between neighbours, stops at gaps, and at what was given and
// taken again since it began.
func TestBound(t *testing.T) {
	f := func(now, before *Table, cursor string, reverse bool, want string, wantOK bool) {
		t.Helper()
		if got, ok := now.Bound(before, []byte(cursor), reverse); ok != wantOK || ok && string(got) != want {
			t.Errorf("from %q, reverse %v: %q %v, want %q %v", cursor, reverse, got, ok, want, wantOK)
		}
	}
	p := picture()
	f(p, p, "e", false, "p", true)
	f(p, p, "n", true, "d", true)
	f(p, p, "z", false, "", true)
	f(p, p, "", true, "z", true)
	f(p, p, "q", false, "", false)
	again := p.With(span("k", "p", 8))
	f(again, p, "e", false, "k", true)
	f(again, p, "l", false, "", false)
	f(again, p, "n", true, "", false)
}
