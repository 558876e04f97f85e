package backup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// dumps are complete backups, the oldest first, each an hour older than the next: the name of the
// index, the identity of its incarnation, and how many keys there are. "~" is a copy of the one
// before it.
func dumps(t *testing.T, list string) (all []dmv1.DMBackup) {
	t.Helper()
	fields := strings.Fields(list)
	for i, field := range fields {
		b := dmv1.DMBackup{}
		b.Name = fmt.Sprint(i)
		if field == "~" {
			b.Annotations, b.Spec = all[i-1].Annotations, all[i-1].Spec
			all = append(all, b)
			continue
		}
		result := dmv1.BackupResult{Digest: strings.Repeat("a", 64), Started: metav1.NewTime(at(t, "20T00:00:00Z").Add(-time.Duration(len(fields)-i) * time.Hour))}
		parts := strings.Split(field, ":")
		b.Spec.IndexName, result.Index = parts[0], parts[1]
		result.Artifact = build.ArtifactOf(&b)
		if _, err := fmt.Sscan(parts[2], &result.Keys); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		b.Annotations = map[string]string{dmv1.AnnotationBackup: string(text)}
		all = append(all, b)
	}
	return all
}

// TestRetentionKeepsTheLastGoodCopy: what an index has after it was made anew, or after its keys
// were deleted, and what another index has, pushes out no last copy of what there was before.
func TestRetentionKeepsTheLastGoodCopy(t *testing.T) {
	f := func(name, backups string, keepLast, hours int32, want string) {
		t.Helper()
		v := scheduleView{
			spec: &dmv1.DMBackupScheduleSpec{Schedule: "0 * * * *", Retention: dmv1.BackupRetention{KeepLast: keepLast, MaxAgeHours: hours, KeepFailed: 1}},
			now:  at(t, "20T00:00:00Z"),
		}
		var err error
		if v.times, err = parseSchedule(v.spec); err != nil {
			t.Fatal(err)
		}
		list := dumps(t, backups)
		for i := range list {
			v.backups = append(v.backups, scheduled(&list[i]))
		}
		if got := strings.Join(decideSchedule(v).remove, " "); got != want {
			t.Errorf("%s: %s: %q are deleted, want %q", name, backups, got, want)
		}
	}
	f("an index made anew", "a:u:1000 a:u:1000 a:u/1:900 a:u/1:900 a:u/1:900", 1, 0, "3 2 0")
	f("an index made anew, by age", "a:u:1000 a:u:1000 a:u/1:900 a:u/1:900 a:u/1:900", 9, 1, "3 2 0")
	f("an index made anew, twice", "a:u:1000 a:u/1:0 a:u/2:0 a:u/2:0", 1, 0, "2")
	f("another index", "a:u:1000 a:u:1000 b:v:1000 b:v:1000 b:v:1000", 2, 0, "2")
	f("another index, and back", "a:u:9 b:v:9 a:u:9", 1, 0, "0")
	f("another index, by age", "a:u:9 a:u:9 a:u:9 b:v:9 b:v:9 b:v:9", 9, 2, "3 0")
	f("deleted keys", "a:u:1000 a:u:1000 a:u:0 a:u:0 a:u:0", 2, 0, "2 0")
	f("deleted keys, incarnation not known", "a::1000 a::1000 a::0 a::0", 1, 0, "2 0")
	f("deleted keys, by age", "a:u:1000 a:u:1000 a:u:100 a:u:100 a:u:100", 9, 1, "3 2 0")
	f("keys that are back", "a:u:1000 a:u:1000 a:u:0 a:u:0 a:u:101", 1, 0, "3 2 1 0")
	f("a copy by hand", "a:u:9 ~ a:u/1:9", 1, 0, "")
	f("copies take nobody's place", "a:u:9 a:u:9 ~ ~ ~", 2, 0, "2")
	f("a copy of what was before the collapse", "a:u:1000 ~ a:u:0", 1, 0, "")
	f("a few times fewer", "a:u:1000 a:u:1000 a:u:101 a:u:101", 1, 0, "2 1 0")
}

// TestKeysCollapsed: a schedule says that the newest backup has far fewer keys than one before it,
// with one event, and no index is loaded from the newest then, unless it is named.
func TestKeysCollapsed(t *testing.T) {
	s := &dmv1.DMBackupSchedule{}
	s.Spec.Template.IndexName, s.Spec.Schedule = "a", "0 * * * *"
	events := &operatortest.LastNote{}
	r := &DMBackupScheduleReconciler{reconciler.Base{Events: events}}
	f := func(backups, status, names string) {
		t.Helper()
		list := dumps(t, backups)
		v := scheduleView{spec: &s.Spec, now: at(t, "20T00:00:00Z")}
		var err error
		if v.times, err = parseSchedule(v.spec); err != nil {
			t.Fatal(err)
		}
		for i := range list {
			v.backups = append(v.backups, scheduled(&list[i]))
		}
		events.Note = ""
		told := apimeta.FindStatusCondition(s.Status.Conditions, dmv1.ConditionKeysCollapsed)
		before := told != nil && told.Status == metav1.ConditionTrue
		r.summarize(s, list, v, scheduleActions{reason: dmv1.ReasonScheduled})
		got, message := "", ""
		if c := apimeta.FindStatusCondition(s.Status.Conditions, dmv1.ConditionKeysCollapsed); c != nil {
			got, message = string(c.Status), c.Message
		}
		if got != status || !strings.Contains(message, names) || (events.Note != "") != (got == "True" && !before) {
			t.Errorf("%s: %s %q, event %q", backups, got, message, events.Note)
		}
		if newest := NewestComplete(list); newest != nil && newest.Spec.IndexName == "a" {
			if err := StillHasKeys(newest, list); (err != nil) != (status == "True") {
				t.Errorf("%s: loading from the newest: %v", backups, err)
			}
		}
	}
	f("", "", "")
	f("a:u:1000 a:u:900", "False", "")
	f("a:u:1000 a:u:1000 a:u/1:100", "True", "backup 2 has 100 keys, and backup 1 before it 1000")
	f("a:u:1000 a:u/1:100 a:u/1:0", "True", "backup 2 has 0 keys, and backup 1 before it 100")
	f("a:u:1000 a:u/1:0 a:u/1:101", "False", "")
	f("a:u:1000 b:v:0", "False", "") // the newest of the index that the schedule is for
	s.Spec.Template.IndexName = "b"
	f("a:u:1000", "", "") // there is none of it yet
	if s.Status.LastComplete != "" || s.Status.Complete != 1 {
		t.Errorf("status %+v", s.Status)
	}
}
