package resp

import (
	"math"
	"strconv"
	"testing"
)

// TestWholeScores: a whole number, which is read by its digits, is what strconv reads, and what is
// none is read, or refused, as before.
func TestWholeScores(t *testing.T) {
	for _, s := range []string{
		"0", "1", "-1", "9", "10", "999999999999999", "-999999999999999", "123456", "9007199254740992", "9007199254740993", "-9007199254740993",
		"9223372036854775807", "9223372036854775808", "01", "+1", "1.0", "1e3", "1000000000000000",
	} {
		want, err := strconv.ParseFloat(s, 64)
		if got, ok := scoreOf([]byte(s)); err != nil || !ok || got != want {
			t.Errorf("%s is %v, %v, and strconv's is %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "-", "--1", "1a", "1 ", "/", "1:"} {
		if got, ok := scoreOf([]byte(s)); ok {
			t.Errorf("%q is taken for %v", s, got)
		}
	}
	if f, ok := scoreOf([]byte("-0")); !ok || f != 0 || !math.Signbit(f) {
		t.Errorf("-0 is %v, %v", f, ok)
	}
	if got := testing.AllocsPerRun(100, func() { scoreOf([]byte("123456")) }); got > 0 {
		t.Errorf("a score takes %v allocations", got)
	}
}
