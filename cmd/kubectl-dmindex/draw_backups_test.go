package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// drawnBackups are those of demo: twelve by a schedule, of which the newest failed and the next one
// is complete; the schedule waits for one that is at work.
func drawnBackups() (backups []dmv1.DMBackup, schedules []dmv1.DMBackupSchedule) {
	for i := range 12 {
		b := dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("nightly-", i), CreationTimestamp: metav1.NewTime(now.Add(time.Duration(i-13) * time.Hour))}}
		b.Spec.IndexName, b.Status.Phase, b.Status.Started = "demo", dmv1.BackupComplete, &b.CreationTimestamp
		b.Status.Keys, b.Status.Bytes = ptr.To[int64](7), ptr.To[int64](64<<20)
		state := metav1.Condition{Type: dmv1.ConditionComplete, Status: "True", Reason: dmv1.ReasonVerified, Message: "read back"}
		if i == 11 {
			b.Status.Phase, b.Status.Keys, b.Status.Bytes = dmv1.BackupFailed, nil, nil
			state.Status, state.Reason, state.Message = "False", dmv1.ReasonDumpFailed, "no space left on device"
			b.Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionFailed, Status: "True", Reason: dmv1.ReasonDumpFailed}}
		}
		b.Status.Conditions = append(b.Status.Conditions, state)
		backups = append(backups, b)
	}
	other := dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "of-another"}}
	other.Spec.IndexName = "other"
	s := dmv1.DMBackupSchedule{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
	s.Spec.Template.IndexName, s.Spec.Schedule, s.Spec.TimeZone = "demo", "30 2 * * *", "Europe/Berlin"
	s.Status.LastComplete, s.Status.Complete, s.Status.NextScheduleTime = "nightly-10", 11, ptr.To(metav1.NewTime(now.Add(time.Hour)))
	s.Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionScheduled, Status: "False", Reason: dmv1.ReasonStillRunning}}
	return append(backups, other), []dmv1.DMBackupSchedule{s}
}

// TestDrawBackups: schedules, the newest backups, what is wrong with them, and what the index is
// loaded from.
func TestDrawBackups(t *testing.T) {
	v := drawn()
	if strings.Contains(v.status(now), "backups:") {
		t.Error("an index without backups shows some")
	}
	backups, schedules := drawnBackups()
	v.keepBackups(backups, schedules)
	v.index.Annotations = map[string]string{dmv1.AnnotationRestore: `{"backup":"first","artifact":"a/first.dump"}`}
	got := v.status(now)
	for _, want := range []string{
		"\nbackups:\n  the index is being loaded from backup first (a/first.dump) by Job demo-restore\n",
		"nightly   30 2 * * * Europe/Berlin  StillRunning  11        nightly-10  3h ago  2026-11-21T13:00:00Z\n",
		"nightly-11  Failed    120m ago  -     -     DumpFailed  no space left on device\n",
		"nightly-10  Complete  3h ago    7     64Mi  Verified    read back\n",
		"and 4 older ones: kubectl get dmb\n",
		"  DumpFailed\n    means: the Job of a backup failed",
		"  StillRunning\n    means: a backup is due,",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, "of-another") || strings.Contains(got, "nightly-3 ") {
		t.Error("shows other or older backups")
	}
	if t.Failed() {
		t.Log("\n" + got)
	}
	v.index.Annotations[dmv1.AnnotationRestore] = `{"backup":"first","artifact":"a/first.dump","done":true}`
	if got := v.status(now); !strings.Contains(got, "the index was loaded from backup first (a/first.dump)\n") {
		t.Errorf("an index that was loaded:\n%s", got)
	}
}

// TestLastBackup: a line of the overview says how old the newest complete backup is, and that a
// later one failed, with what that means.
func TestLastBackup(t *testing.T) {
	v := drawn()
	v.keepBackups(drawnBackups())
	f := func(want string) {
		t.Helper()
		if got, _ := v.lastBackup(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("3h ago, then failed")
	if got := overview([]*view{v}, false, now); !strings.Contains(got, "  3h ago, then failed\n") || !strings.Contains(got, "\nDumpFailed\n  means:") {
		t.Errorf("the overview:\n%s", got)
	}
	v.backups = v.backups[:1]
	f("failed")
	v.backups = nil
	f("-")
}
