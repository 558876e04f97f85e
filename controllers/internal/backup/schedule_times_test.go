package backup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestClockChanges: times of chosen hours are due once a day where the clock is set forward or
// back, also at midnight. Those of every hour are due whenever the clock shows them.
func TestClockChanges(t *testing.T) {
	f := func(schedule, zone, first, last, want string) {
		t.Helper()
		s, err := parseSchedule(&dmv1.DMBackupScheduleSpec{Schedule: schedule, TimeZone: zone})
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse("2006-01-02 15:04", first)
		if err != nil {
			t.Fatal(err)
		}
		until, err := time.Parse("2006-01-02 15:04", last)
		if err != nil {
			t.Fatal(err)
		}
		var due []string
		for at := s.Next(from); at.Before(until) && len(due) < 9; at = s.Next(at) {
			due = append(due, at.Format("02 15:04"))
		}
		if got := strings.Join(due, ", "); got != want {
			t.Errorf("%s in %s: %s; want %s", schedule, zone, got, want)
		}
	}
	f("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-27 00:00", "25 00:30, 26 01:30")
	// within the hour that is shown for the second time
	f("30 2 * * *", "Europe/Berlin", "2026-10-25 01:10", "2026-10-27 00:00", "26 01:30")
	f("30 2 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-31 00:00", "29 01:00, 30 00:30")
	f("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28 12:00", "2026-03-29 12:00", "29 01:00, 29 01:30")
	f("0 3 * * *", "Europe/Berlin", "2026-10-24 12:00", "2026-10-26 12:00", "25 02:00, 26 02:00")
	f("@daily", "Africa/Cairo", "2026-04-22 12:00", "2026-04-25 12:00", "22 22:00, 23 22:00, 24 21:00")
	f("@weekly", "Africa/Cairo", "2026-10-24 12:00", "2026-11-02 00:00", "24 21:00, 31 22:00")
	f("0 0 * * *", "America/Santiago", "2026-09-04 12:00", "2026-09-07 12:00", "05 04:00, 06 04:00, 07 03:00")
	f("0 0 6 9 *", "America/Santiago", "2026-09-01 00:00", "2027-09-07 12:00", "06 04:00, 06 03:00")
	f("0 * * * *", "Europe/Berlin", "2026-10-24 23:10", "2026-10-25 03:10", "25 00:00, 25 01:00, 25 02:00, 25 03:00")
	f("0 * * * *", "Europe/Berlin", "2026-03-28 23:10", "2026-03-29 02:10", "29 00:00, 29 01:00, 29 02:00")
	f("0 * 24 4 *", "Africa/Cairo", "2026-04-23 12:00", "2026-04-24 00:10", "23 22:00, 23 23:00, 24 00:00")
	f("*/30 * * * *", "Australia/Lord_Howe", "2026-04-04 14:10", "2026-04-04 16:10", "04 14:30, 04 15:00, 04 15:30, 04 16:00")
}

// TestSpread: hundreds of schedules of the same time are made apart, and each always as late.
func TestSpread(t *testing.T) {
	seen := map[time.Duration]int{}
	for i := range 500 {
		s := &dmv1.DMBackupSchedule{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("uid-", i))}}
		if spread := spreadOf(s); spread != 0 {
			t.Fatalf("without a spread: %v", spread)
		}
		s.Spec.SpreadSeconds = 60
		spread := spreadOf(s)
		if spread < 0 || spread >= time.Minute || spread != spreadOf(s.DeepCopy()) {
			t.Fatalf("%v", spread)
		}
		seen[spread]++
	}
	for spread, n := range seen {
		if n > 30 {
			t.Errorf("%d of 500 after %v", n, spread)
		}
	}
}

// TestSundayIsSeven: crontabs call Sunday 0 or 7.
func TestSundayIsSeven(t *testing.T) {
	for given, same := range map[string]string{
		"0 3 * * 7": "0 3 * * 0", "0 3 * * 1,7": "0 3 * * 0,1", "0 3 * * 5-7": "0 3 * * 0,5,6", "0 3 * * 1-7/2": "0 3 * * 0,1,3,5", "0 3 * * 0-7": "0 3 * * 0-6",
	} {
		a, err := parseSchedule(&dmv1.DMBackupScheduleSpec{Schedule: given})
		b, err2 := parseSchedule(&dmv1.DMBackupScheduleSpec{Schedule: same})
		if err != nil || err2 != nil {
			t.Errorf("%s: %v, %v", given, err, err2)
			continue
		}
		for at, n := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), 0; n < 14; n++ {
			next := a.Next(at)
			if want := b.Next(at); !next.Equal(want) {
				t.Errorf("%s after %v: %v, want %v", given, at, next, want)
			}
			at = next
		}
	}
	for _, bad := range []string{"0 3 * * 8", "0 3 * * 6-8", "0 3 * * 7-1"} {
		if _, err := parseSchedule(&dmv1.DMBackupScheduleSpec{Schedule: bad}); err == nil {
			t.Errorf("%s has times", bad)
		}
	}
}
