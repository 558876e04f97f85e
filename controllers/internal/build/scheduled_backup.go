package build

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// ScheduledBackup is the backup of a schedule for a time. Its name follows from both: it is made
// once.
func ScheduledBackup(s *dmv1.DMBackupSchedule, at time.Time) *dmv1.DMBackup {
	b := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{
		Name: s.Name + "-" + strconv.FormatInt(at.Unix()/60, 10), Namespace: s.Namespace,
		Labels:      map[string]string{dmv1.LabelSchedule: s.Name},
		Annotations: map[string]string{dmv1.AnnotationScheduled: at.UTC().Format(time.RFC3339)},
	}}
	b.Spec.BackupTemplate = *s.Spec.Template.DeepCopy()
	// A schedule of before may have them, and the CRD would refuse each of its backups.
	b.Spec.Pod.Labels, b.Spec.Pod.Annotations = beside(nil, b.Spec.Pod.Labels), beside(nil, b.Spec.Pod.Annotations)
	if b.Spec.DeletionPolicy == "" {
		b.Spec.DeletionPolicy = dmv1.BackupDelete
	}
	return b
}
