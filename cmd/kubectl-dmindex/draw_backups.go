package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// backupsShown is how many backups of an index are drawn, the newest first.
const backupsShown = 8

// listBackups reads the backups and schedules of the namespace, or of all.
func (c *cluster) listBackups(ctx context.Context) (backups []dmv1.DMBackup, schedules []dmv1.DMBackupSchedule, err error) {
	all, of := &dmv1.DMBackupList{}, &dmv1.DMBackupScheduleList{}
	if err = c.objects.List(ctx, all, client.InNamespace(c.namespace)); err == nil {
		err = c.objects.List(ctx, of, client.InNamespace(c.namespace))
	}
	return all.Items, of.Items, err
}

// keepBackups keeps the backups and schedules of the view's index, the newest backup first.
func (v *view) keepBackups(backups []dmv1.DMBackup, schedules []dmv1.DMBackupSchedule) {
	for _, b := range backups {
		if b.Namespace == v.index.Namespace && b.Spec.IndexName == v.index.Name {
			v.backups = append(v.backups, b)
		}
	}
	for _, s := range schedules {
		if s.Namespace == v.index.Namespace && s.Spec.Template.IndexName == v.index.Name {
			v.schedules = append(v.schedules, s)
		}
	}
	slices.SortStableFunc(v.backups, func(a, b dmv1.DMBackup) int { return cmp.Compare(beganAt(&b).UnixNano(), beganAt(&a).UnixNano()) })
	slices.SortFunc(v.schedules, func(a, b dmv1.DMBackupSchedule) int { return cmp.Compare(a.Name, b.Name) })
}

// beganAt is when a backup was begun, or made if it waits.
func beganAt(b *dmv1.DMBackup) time.Time {
	if b.Status.Started != nil {
		return b.Status.Started.Time
	}
	return b.CreationTimestamp.Time
}

// found is a condition; without a reason if there is none.
func found(conditions []metav1.Condition, kind string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

// ago is how long ago something was; a dash if it never was.
func ago(now time.Time, t *metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t.Time)) + " ago"
}

// loadedFrom says what the index was loaded from, or is being; empty = it was made empty.
func (v *view) loadedFrom() string {
	var record struct {
		Backup, Artifact string
		Done             bool
	}
	if json.Unmarshal([]byte(v.index.Annotations[dmv1.AnnotationRestore]), &record) != nil || record.Backup == "" {
		return ""
	}
	if record.Done {
		return fmt.Sprintf("was loaded from backup %s (%s)", record.Backup, record.Artifact)
	}
	return fmt.Sprintf("is being loaded from backup %s (%s) by Job %s-restore", record.Backup, record.Artifact, v.index.Name)
}

// drawBackups draws the schedules of the index, its newest backups, and what it was loaded from.
// The meaning of a reason is told once; said has those that were.
func (v *view) drawBackups(b *strings.Builder, now time.Time, said map[string]bool) {
	from := v.loadedFrom()
	if len(v.backups)+len(v.schedules) == 0 && from == "" {
		return
	}
	b.WriteString("\nbackups:\n")
	if from != "" {
		fmt.Fprintf(b, "  the index %s\n", from)
	}
	var wrong []metav1.Condition
	if len(v.schedules) > 0 {
		table(b, func(line func(...any)) {
			line("SCHEDULE", "TIMES", "STATE", "COMPLETE", "LAST", "BEGUN", "NEXT")
			for i := range v.schedules {
				s := &v.schedules[i]
				state := found(s.Status.Conditions, dmv1.ConditionScheduled)
				if state.Status == metav1.ConditionFalse {
					wrong = append(wrong, state)
				}
				next := "-"
				if t := s.Status.NextScheduleTime; !t.IsZero() {
					next = t.UTC().Format(time.RFC3339)
				}
				var last *metav1.Time
				for j := range v.backups {
					if v.backups[j].Name == s.Status.LastComplete {
						last = v.backups[j].Status.Started
					}
				}
				line(s.Name, s.Spec.Schedule+" "+s.Spec.TimeZone, orDash(state.Reason), s.Status.Complete, orDash(s.Status.LastComplete), ago(now, last), next)
			}
		})
	}
	table(b, func(line func(...any)) {
		if len(v.backups) > 0 {
			line("BACKUP", "PHASE", "BEGUN", "KEYS", "SIZE", "REASON", "MESSAGE")
		}
		for i := range v.backups[:min(len(v.backups), backupsShown)] {
			o := &v.backups[i]
			keys, bytes := "-", "-"
			if o.Status.Keys != nil && o.Status.Bytes != nil {
				keys, bytes = fmt.Sprint(*o.Status.Keys), size(uint64(*o.Status.Bytes))
			}
			state := found(o.Status.Conditions, dmv1.ConditionComplete)
			if state.Status == metav1.ConditionFalse {
				wrong = append(wrong, state)
			}
			line(o.Name, orDash(string(o.Status.Phase)), ago(now, o.Status.Started), keys, bytes, orDash(state.Reason), orDash(state.Message))
		}
	})
	if more := len(v.backups) - backupsShown; more > 0 {
		fmt.Fprintf(b, "and %d older ones: kubectl get dmb\n", more)
	}
	for _, c := range wrong {
		if text := explain(c.Reason, "    "); !said[c.Reason] && text != "" {
			said[c.Reason] = true
			fmt.Fprintf(b, "  %s\n%s", c.Reason, text)
		}
	}
}

// lastBackup is how old the newest complete backup of an index is, and whether a later one failed,
// with its reason.
func (v *view) lastBackup(now time.Time) (text, reason string) {
	failed := ""
	for i := range v.backups {
		switch b := &v.backups[i]; b.Status.Phase {
		case dmv1.BackupComplete:
			if text = ago(now, b.Status.Started); failed != "" {
				text += ", then failed"
			}
			return text, failed
		case dmv1.BackupFailed:
			if failed == "" {
				failed = found(b.Status.Conditions, dmv1.ConditionFailed).Reason
			}
		}
	}
	if failed != "" {
		return "failed", failed
	}
	return "-", ""
}
