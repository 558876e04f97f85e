package mirror_test

import "testing"

// planted are the faults that are put in on purpose, and the seed from which on each is looked for:
// shortly before the first one that finds it.
var planted = map[mistake]uint64{
	noSettle: 66, oldMode: 86, aside: 119, noNeed: 55, noPermit: 13, half: 0, noLedger: 0, lateStore: 0,
}

// TestSeedsCatchMistakes: each fault that is put in on purpose is found.
func TestSeedsCatchMistakes(t *testing.T) {
	const within = 300
	for wrong, from := range planted {
		t.Run(string(wrong), func(t *testing.T) {
			t.Parallel()
			for seed := from; seed < from+within; seed++ {
				if o := (run{seed: seed, wrong: wrong}).do(); o.err != nil {
					t.Logf("%s: %.300v", wrong, o.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds from %d on", within, from)
		})
	}
}
