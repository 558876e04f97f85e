package backup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// at is a time of March 2026, in UTC unless it says otherwise.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	found, err := time.Parse(time.RFC3339, "2026-03-"+text)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLatest(t *testing.T) {
	f := func(schedule, zone, after, now, want string) {
		t.Helper()
		s, err := parseSchedule(&dmv1.DMBackupScheduleSpec{Schedule: schedule, TimeZone: zone})
		if err != nil {
			t.Fatal(err)
		}
		got := latest(s, at(t, after), at(t, now))
		if want == "" && !got.IsZero() || want != "" && !got.Equal(at(t, want)) {
			t.Errorf("%s %s after %s at %s: %v, want %q", schedule, zone, after, now, got, want)
		}
	}
	f("0 * * * *", "", "01T10:30:00Z", "01T10:59:59Z", "")
	f("0 * * * *", "", "01T10:30:00Z", "01T11:00:00Z", "01T11:00:00Z") // due to the second
	f("0 * * * *", "", "01T11:00:00Z", "01T11:30:00Z", "")             // made already
	f("0 * * * *", "", "01T10:30:00Z", "20T15:30:00Z", "20T15:00:00Z") // of many the newest
	f("* * * * *", "", "01T10:30:00Z", "20T15:30:59Z", "20T15:30:00Z")
	f("0 0 1 1 *", "", "01T10:30:00Z", "20T15:30:00Z", "")
	f("0 0 10 * *", "", "01T10:30:00Z", "30T15:30:00Z", "10T00:00:00Z") // weeks ago
	f("@daily", "", "01T10:30:00Z", "02T15:30:00Z", "02T00:00:00Z")
	f("30 2 * * *", "Europe/Berlin", "01T00:00:00Z", "01T12:00:00Z", "01T01:30:00Z")
	// a night without 2:30
	f("30 2 * * *", "Europe/Berlin", "28T12:00:00Z", "29T12:00:00Z", "29T01:00:00Z")
	f("30 2 * * *", "Europe/Berlin", "29T12:00:00Z", "30T12:00:00Z", "30T00:30:00Z")
}

func TestParseSchedule(t *testing.T) {
	f := func(schedule, zone, want string) {
		t.Helper()
		if _, err := parseSchedule(&dmv1.DMBackupScheduleSpec{Schedule: schedule, TimeZone: zone}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q %q: %v, want %q", schedule, zone, err, want)
		}
	}
	f("nightly", "", "write five fields")
	f("0 0 2 * * *", "", "write five fields")
	f("61 * * * *", "", "write five fields")
	f("@every 5m", "", "write five fields")
	f(" @every 1s", "", "write five fields")
	f("\t@every 1s", "", "write five fields")
	f("TZ=Europe/Berlin 0 2 * * *", "", "in timeZone")
	f("0 2 * * *", "Mars/Olympus", "IANA")
	f("0 2 * * *", "Local", "IANA")
}

// TestDecideSchedule: what is made, missed and waited for.
func TestDecideSchedule(t *testing.T) {
	running := scheduledBackup{name: "old", at: at(t, "01T10:00:00Z")}
	f := func(name string, change func(*scheduleView), run, missed, reason string, next string) {
		t.Helper()
		v := scheduleView{
			spec:  &dmv1.DMBackupScheduleSpec{Schedule: "0 * * * *", ConcurrencyPolicy: dmv1.ConcurrencyForbid},
			since: at(t, "01T10:00:00Z"), now: at(t, "01T11:00:30Z"),
		}
		v.spec.Retention = dmv1.BackupRetention{KeepLast: 7, KeepFailed: 3}
		change(&v)
		times, err := parseSchedule(v.spec)
		if err != nil {
			t.Fatal(err)
		}
		v.times = times
		a := decideSchedule(v)
		show := func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return t.UTC().Format("02T15:04:05Z")
		}
		got := []string{show(a.run), show(a.missed), a.reason, show(a.next)}
		if want := []string{run, missed, reason, next}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q (%s)", name, got, want, a.message)
		}
	}
	f("due", func(*scheduleView) {}, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:00Z")
	f("not due", func(v *scheduleView) { v.since = at(t, "01T11:00:00Z") }, "", "", dmv1.ReasonScheduled, "01T12:00:00Z")
	f("suspended", func(v *scheduleView) { v.spec.Suspend = true }, "", "01T11:00:00Z", dmv1.ReasonSuspended, "")
	f("too late", func(v *scheduleView) { v.spec.StartingDeadlineSeconds = 20 }, "", "01T11:00:00Z", dmv1.ReasonMissed, "01T12:00:00Z")
	f("late enough", func(v *scheduleView) { v.spec.StartingDeadlineSeconds = 30 }, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:00Z")
	f("one is at work", func(v *scheduleView) { v.backups = []scheduledBackup{running} }, "", "", dmv1.ReasonStillRunning, "01T12:00:00Z")
	f("one is at work, until the deadline", func(v *scheduleView) { v.backups, v.spec.StartingDeadlineSeconds = []scheduledBackup{running}, 60 }, "", "", dmv1.ReasonStillRunning, "01T11:01:01Z")
	f("one is at work, beside it", func(v *scheduleView) {
		v.backups, v.spec.ConcurrencyPolicy = []scheduledBackup{running}, dmv1.ConcurrencyAllow
	}, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:00Z")
	f("one is at work, in place of it", func(v *scheduleView) {
		v.backups, v.spec.ConcurrencyPolicy = []scheduledBackup{running}, dmv1.ConcurrencyReplace
	}, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:00Z")
	f("due, and later for its spread", func(v *scheduleView) { v.spread = 40 * time.Second }, "", "", dmv1.ReasonScheduled, "01T11:00:40Z")
	f("due with its spread", func(v *scheduleView) { v.spread = 30 * time.Second }, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:30Z")
	f("its spread does not count as lateness", func(v *scheduleView) { v.spread, v.spec.StartingDeadlineSeconds = 20*time.Second, 10 }, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:20Z")
	f("its deadline begins with its spread", func(v *scheduleView) {
		v.backups, v.spread, v.spec.StartingDeadlineSeconds = []scheduledBackup{running}, 20*time.Second, 60
	}, "", "", dmv1.ReasonStillRunning, "01T11:01:21Z")
	for _, over := range []scheduledBackup{{complete: true}, {failed: true}, {going: true}, {broken: true}} {
		f("one is over", func(v *scheduleView) { v.backups = []scheduledBackup{over} }, "01T11:00:00Z", "", dmv1.ReasonScheduled, "01T12:00:00Z")
	}
}

// TestExpired: what retention deletes. c is a complete backup, f a failed one, r one at work, g one
// that is being deleted, b one whose result cannot be read; each an hour older than the one before
// it.
func TestExpired(t *testing.T) {
	late := time.Duration(0) // how much later than the newest backup it is
	f := func(backups string, keepLast, hours, keepFailed int32, want string) {
		t.Helper()
		now := at(t, "20T00:00:00Z")
		v := scheduleView{spec: &dmv1.DMBackupScheduleSpec{Schedule: "0 * * * *", Retention: dmv1.BackupRetention{KeepLast: keepLast, MaxAgeHours: hours, KeepFailed: keepFailed}}, now: now.Add(late)}
		var err error
		if v.times, err = parseSchedule(v.spec); err != nil {
			t.Fatal(err)
		}
		for i, kind := range backups {
			b := scheduledBackup{name: fmt.Sprint(i), begun: now.Add(-time.Duration(i)*time.Hour - time.Minute), complete: kind == 'c', failed: kind == 'f', going: kind == 'g', broken: kind == 'b'}
			v.backups = append([]scheduledBackup{b}, v.backups...)
		}
		if got := strings.Join(expired(v), ""); got != want {
			t.Errorf("%s, keep %d, %d hours, %d failed: %q, want %q", backups, keepLast, hours, keepFailed, got, want)
		}
	}
	f("cccc", 2, 0, 1, "23")
	f("cccc", 7, 0, 1, "")
	f("cccc", 7, 2, 1, "23")
	f("cccc", 1, 2, 1, "123")
	f("fffc", 1, 1, 2, "2") // the last good one, however old
	f("rrrc", 1, 1, 1, "")
	f("rgfcfcf", 1, 1, 1, "456")
	f("gccc", 2, 0, 1, "3") // one that goes does not count
	f("ffff", 1, 0, 1, "123")
	f("", 1, 1, 1, "")
	f("bcbcb", 1, 1, 1, "3")
	// The clock jumps, or no more are made.
	for _, late = range []time.Duration{24 * time.Hour, 365 * 24 * time.Hour, -24 * time.Hour} {
		f("ccc", 7, 3, 1, "")
		f("fccc", 7, 48, 1, "")
	}
}

// TestClockThatWasWrong: a backup that was made for a time in the future does not end the schedule
// until then.
func TestClockThatWasWrong(t *testing.T) {
	f := func(want string, times ...string) {
		t.Helper()
		var all []time.Time
		for _, text := range times {
			all = append(all, at(t, text))
		}
		if got := newestTime(at(t, "10T12:00:00Z"), all...); want == "" && !got.IsZero() || want != "" && !got.Equal(at(t, want)) {
			t.Errorf("%v: %v, want %q", times, got, want)
		}
	}
	f("10T11:00:00Z", "01T00:00:00Z", "10T11:00:00Z", "09T11:00:00Z")
	f("10T11:00:00Z", "30T00:00:00Z", "10T11:00:00Z", "10T12:00:01Z")
	f("10T12:00:00Z", "10T12:00:00Z", "10T11:00:00Z")
	f("", "30T00:00:00Z")
}
