package backup

import (
	"fmt"
	"time"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
)

// NewestComplete is the complete backup that was begun last; nil = none is complete.
func NewestComplete(backups []dmv1.DMBackup) (newest *dmv1.DMBackup) {
	var begun time.Time
	for i := range backups {
		b := &backups[i]
		if result, err := decision.BackupResult(b); err == nil && result != nil && b.DeletionTimestamp.IsZero() && (newest == nil || result.Started.After(begun)) {
			newest, begun = b, result.Started.Time
		}
	}
	return newest
}

// StillHasKeys halts the loading of an index from the newest backup of a schedule if the keys have
// collapsed in it: it may be of an index that was made anew, empty, after the loss for which this
// one is to be loaded.
func StillHasKeys(newest *dmv1.DMBackup, all []dmv1.DMBackup) error {
	var backups []scheduledBackup
	for i := range all {
		backups = append(backups, scheduled(&all[i]))
	}
	from := collapsedFrom(byAge(backups), newest.Spec.IndexName)
	if from == nil {
		return nil
	}
	return outcome.WaitFor(dmv1.ReasonWaitingForBackup, fmt.Sprintf("the newest backup %s of the schedule has %d keys, and backup %s before it %d: name the one that is meant in spec.recovery.fromBackup.name",
		newest.Name, scheduled(newest).keys, from.name, from.keys), 0)
}
