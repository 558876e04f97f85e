package resp

import (
	"math"
	"strconv"
	"testing"
)

// TestWholeScores: what is read by digits is what strconv reads, and nothing else is read so.
func TestWholeScores(t *testing.T) {
	for _, s := range []string{"1", "-1", "9", "10", "999999999999999", "-999999999999999", "123456"} {
		want, err := strconv.ParseFloat(s, 64)
		got, ok := whole([]byte(s))
		if all, is := scoreOf([]byte(s)); err != nil || !ok || !is || got != want || all != want {
			t.Errorf("%s is %v, %v and %v, %v", s, got, ok, all, is)
		}
	}
	for _, s := range []string{"", "-", "--1", "+1", "0", "-0", "01", "1.0", "1e3", "0x1", "inf", "1a", "1000000000000000", "1 ", "/", "1:"} {
		if got, ok := whole([]byte(s)); ok {
			t.Errorf("%q is taken for the whole number %v", s, got)
		}
	}
	if f, ok := scoreOf([]byte("-0")); !ok || f != 0 || !math.Signbit(f) {
		t.Errorf("-0 is %v, %v", f, ok)
	}
	if got := testing.AllocsPerRun(100, func() { scoreOf([]byte("123456")) }); got > 0 {
		t.Errorf("a score takes %v allocations", got)
	}
}
