package meettest

import "testing"

// TestRounds: nothing runs beside before and after, and each round has one call of each.
func TestRounds(t *testing.T) {
	var a, b, rounds int
	Rounds(1000, func() {
		if a != rounds || b != rounds {
			t.Errorf("before round %d there were %d and %d calls", rounds, a, b)
		}
	}, func() { a++ }, func() { b++ }, func() {
		if rounds++; a != rounds || b != rounds {
			t.Errorf("after round %d there were %d and %d calls", rounds, a, b)
		}
	})
	if rounds == 0 || rounds > 1000 {
		t.Errorf("%d rounds", rounds)
	}
}
