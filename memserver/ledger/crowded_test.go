package ledger

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestReleaseLeavesRoomForGrants: keys are not taken back from a client when they might find no
// other holder, since holdings are too many. What adds none can be taken back always, so a client
// can join its own.
func TestReleaseLeavesRoomForGrants(t *testing.T) {
	d := newDying(t)
	l, most := d.l, 16
	l.LimitHoldings(most)
	d.mustAcquire(t, "", "m00")
	held := func() []Holding {
		all, _ := l.Holdings("a")
		return slices.Clone(all)
	}
	room := most - most/8
	for n := 0; needed(held()) < room; n++ { // one after the other, up to the end
		d.mustAcquire(t, fmt.Sprintf("m%02d", n), fmt.Sprintf("m%02d", n+1))
	}
	first := held()[0]
	before := string(l.Append(nil))
	for _, keys := range [][2]string{{"f", "g"}, {"", "g"}, {"f", "m00"}} {
		if _, err := l.Release("a", d.last, []byte(keys[0]), []byte(keys[1]), first.Epoch, true); !errors.Is(err, ErrHoldings) || string(l.Append(nil)) != before {
			t.Errorf("keys %q are taken back: %v", keys, err)
		}
	}
	for _, h := range held()[1:5] {
		if _, err := l.Release("a", d.last, h.Start, h.End, h.Epoch, true); err != nil {
			t.Fatalf("a whole holding is not taken back: %v", err)
		}
	}
	if _, err := l.Release("a", d.last, []byte("f"), []byte("g"), first.Epoch, true); err != nil {
		t.Fatalf("there is room, and keys are not taken back: %v", err)
	}
	// by as many claims as divide them, whatever their order
	d.mustAcquire(t, "f", "f5")
	d.mustAcquire(t, "f5", "g")
	d.mustAcquire(t, "m00", "m02")
	d.mustAcquire(t, "m02", "m04")
	if n := len(held()); n > most {
		t.Errorf("%d holdings", n)
	}
}

// TestCrowdedClaim: a claim of keys of orphans, and of keys between theirs that nobody holds, at
// the limit of holdings. The claimant learns whom it has to fence elsewhere although nothing can be
// granted yet, until it has all of the keys.
func TestCrowdedClaim(t *testing.T) {
	const most = 8
	d := newDying(t)
	d.l.LimitHoldings(most)
	for n := range most {
		d.mustAcquire(t, fmt.Sprintf("%02d", 2*n), fmt.Sprintf("%02d", 2*n+1))
		d.die()
	}
	claim := Claim{Client: d.last, Generation: 1, Start: []byte("00"), End: []byte("99")}
	crowded := 0
	for {
		_, blocked, news, err := d.l.Acquire("a", claim, func(uint32) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if len(blocked) == 0 {
			break
		}
		fence, full := uint32(0), false
		for _, b := range blocked {
			switch {
			case b.Why == Elsewhere:
				fence = b.Client
			case b.Why == Crowded && (b.Client == 0 || slices.Contains(claim.Fenced, b.Client)):
				full = true
			default:
				t.Errorf("%q waits for client %d: %d", b.Start, b.Client, b.Why)
			}
		}
		if fence == 0 || full && news {
			t.Fatalf("%d are fenced elsewhere, %v is blocked, changed: %v", len(claim.Fenced), blocked, news)
		}
		if full {
			crowded++
		}
		claim.Fenced = append(claim.Fenced, fence)
	}
	if all, _ := d.l.Holdings("a"); crowded == 0 || len(all) > most {
		t.Errorf("%d times too many, %d holdings", crowded, len(all))
	}
}
