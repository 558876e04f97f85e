package volumes

import "testing"

// planted are the faults that are put in on purpose, and the seed from which on each is looked for:
// shortly before the first one that finds it, since the runs before it find nothing.
var planted = map[mistake]uint64{
	volatile: 5, podsForProcs: 0, inSyncEarly: 124, markEarly: 245, noPermission: 32, cachedLook: 419, notWaitedOut: 5, storedEarly: 37, goesOnAlone: 0, notStored: 0,
	toldEarly: 0, lowerViews: 18, oldStream: 1064, otherStream: 5, notEmpty: 30, fenceEarly: 0, joinNotWaited: 0, oneWaited: 790, allTold: 0, lateReturn: 204, pieceAside: 108, unrecorded: 0, blindDelete: 180, forgotten: 182, anewLed: 249,
	notFiled: 0, notFollowed: 0, readEarly: 356, leftOut: 1244, asideFiled: 31, lackingRead: 40, lackingLed: 0,
}

// ofFiles are those that are put into runs with files.
var ofFiles = map[mistake]bool{notFiled: true, notFollowed: true, readEarly: true, leftOut: true, asideFiled: true, lackingRead: true, lackingLed: true}

// TestSeedsCatchMistakes: each fault that is put in on purpose is found.
func TestSeedsCatchMistakes(t *testing.T) {
	const within = 600
	for wrong, from := range planted {
		t.Run(string(wrong), func(t *testing.T) {
			t.Parallel()
			for seed := from; seed < from+within; seed++ {
				if o := (run{seed: seed, wrong: wrong, files: ofFiles[wrong]}).do(); o.err != nil {
					t.Logf("%s: %.300v", wrong, o.err)
					return
				}
			}
			t.Errorf("not caught by %d seeds from %d on", within, from)
		})
	}
}
