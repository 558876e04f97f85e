package backup

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// TestBackupMetrics: the newest backup that is over counts, of each schedule and of those by hand,
// and a schedule says by when it owes the next one.
func TestBackupMetrics(t *testing.T) {
	var backups []dmv1.DMBackup
	keys := int64(7)
	add := func(schedule, begun, kind string) {
		b := dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(len(backups)), Namespace: "shop", CreationTimestamp: metav1.NewTime(at(t, begun))}}
		b.Spec.IndexName, b.Status.Phase = "demo", dmv1.BackupPhase(kind)
		if schedule != "" {
			b.Labels = map[string]string{dmv1.LabelSchedule: schedule}
		}
		switch dmv1.BackupPhase(kind) {
		case dmv1.BackupComplete:
			text, err := json.Marshal(dmv1.BackupResult{Artifact: "a.dump", Digest: strings.Repeat("a", 64), Keys: keys, Started: b.CreationTimestamp})
			if err != nil {
				t.Fatal(err)
			}
			b.Annotations = map[string]string{dmv1.AnnotationBackup: string(text)}
		case dmv1.BackupFailed:
			report.SetCondition(&b.Status.Conditions, 1, dmv1.ConditionFailed, true, dmv1.ReasonDumpFailed, "")
		case dmv1.BackupDeleting:
			b.DeletionTimestamp = &b.CreationTimestamp
		}
		backups = append(backups, b)
	}
	schedule := func(name, times, made string, timeout int32) dmv1.DMBackupSchedule {
		s := dmv1.DMBackupSchedule{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", CreationTimestamp: metav1.NewTime(at(t, made))}}
		s.Spec.Schedule, s.Spec.Template.IndexName, s.Spec.Template.TimeoutSeconds = times, "demo", timeout
		return s
	}
	add("nightly", "03T02:30:00Z", "Complete")
	add("nightly", "02T02:30:00Z", "Complete")
	add("nightly", "04T02:30:00Z", "Failed")
	add("nightly", "05T02:30:00Z", "Running")
	add("nightly", "06T02:30:00Z", "Deleting")
	add("", "01T00:00:00Z", "Failed")
	add("", "02T00:00:00Z", "Complete")
	add("", "03T00:00:00Z", "")
	keys = 1000
	add("shrunk", "01T02:30:00Z", "Complete")
	keys = 100
	add("shrunk", "02T02:30:00Z", "Complete")
	// of the index that the schedule was for before: it owes one of the other
	add("shrunk", "04T02:30:00Z", "Complete")
	backups[len(backups)-1].Spec.IndexName = "other"
	suspended := schedule("suspended", "@hourly", "01T00:10:00Z", 60)
	suspended.Spec.Suspend = true
	schedules := []dmv1.DMBackupSchedule{
		schedule("nightly", "30 2 * * *", "01T00:00:00Z", 3600),
		schedule("shrunk", "30 2 * * *", "01T00:00:00Z", 3600),
		schedule("new", "30 2 * * *", "01T03:00:00Z", 3600),
		schedule("hourly", "@hourly", "01T00:10:00Z", 6*3600),
		schedule("bad", "now and then", "01T00:10:00Z", 60),
		schedule("never", "0 0 30 2 *", "01T00:10:00Z", 60),
		suspended,
	}
	got := map[string]string{}
	Show(backups, schedules, func(d *prometheus.Desc, v float64, labels ...string) {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "dmindex_backup`), `"`)
		text := fmt.Sprint(v)
		if strings.HasSuffix(name, "_seconds") {
			text = time.Unix(int64(v), 0).UTC().Format("02T15:04:05Z")
		}
		got[name+" "+strings.Join(labels, " ")] = text
	})
	const collapsed = "_schedule_keys_collapsed shop demo "
	const complete, due = "_schedule_last_complete_timestamp_seconds shop demo ", "_schedule_due_timestamp_seconds shop demo "
	want := map[string]string{
		"s shop demo nightly Complete":     "2",
		"s shop demo nightly Failed":       "1",
		"s shop demo nightly Running":      "1",
		"s shop demo nightly Deleting":     "1",
		"s shop demo  Failed":              "1",
		"s shop demo  Complete":            "1",
		"s shop demo  Pending":             "1",
		"_newest_failed shop demo nightly": "1",
		"_newest_failed shop demo ":        "0",
		"s shop demo shrunk Complete":      "2",
		"_newest_failed shop demo shrunk":  "0",
		"s shop other shrunk Complete":     "1",
		"_newest_failed shop other shrunk": "0",
		complete + "nightly":               "03T02:30:00Z",
		collapsed + "nightly":              "0",
		complete + "shrunk":                "02T02:30:00Z",
		collapsed + "shrunk":               "1",
		due + "nightly":                    "04T03:30:00Z",
		due + "shrunk":                     "03T03:30:00Z",
		due + "new":                        "02T03:30:00Z",
		due + "hourly":                     "01T02:00:00Z",
		due + "bad":                        "01T00:10:00Z",
		due + "never":                      "01T00:10:00Z",
	}

	if !maps.Equal(got, want) {
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s is %q, want %q", name, got[name], v)
			}
			delete(got, name)
		}
		t.Errorf("besides there is %v", got)
	}
}
