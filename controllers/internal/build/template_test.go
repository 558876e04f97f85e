package build

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestReservedKeys: labels and annotations of the operator's domain are left out of what is made
// of templates that CRDs of before let through, and all others are in it.
func TestReservedKeys(t *testing.T) {
	index := testIndex()
	template := dmv1.PodTemplate{
		Labels:      map[string]string{"team": "a", dmv1.LabelReleased: "true"},
		Annotations: map[string]string{"team": "a", dmv1.AnnotationLeaving: "2026-11-28T00:00:00Z", dmv1.LabelReleased: "x"},
	}
	index.Spec.Endpoints.Service.Annotations = template.Annotations
	memory, compute := MemoryPool(index, index.Spec.MemoryPools[0], "i"), ComputePool(index, index.Spec.ComputePools[0], "i")
	memory.Spec.Pod, compute.Spec.Pod = template, template
	schedule := &dmv1.DMBackupSchedule{}
	schedule.Spec.Template.Pod = template
	scheduled := ScheduledBackup(schedule, time.Unix(0, 0)).Spec.Pod
	job := artifactJob("job", "ns", dmv1.BackupTemplate{Pod: template}, "i", time.Minute)
	for what, made := range map[string]metav1.ObjectMeta{
		"memory pod":   MemoryPod(memory, 0, "i").ObjectMeta,
		"compute pod":  ComputePod(compute, 0, 0, "uid", "i", "h").ObjectMeta,
		"probe":        ImageProbe(memory, serverOnNode(memory), 0, "i").ObjectMeta,
		"pod of a Job": job.Spec.Template.ObjectMeta,
		"Service":      ClientService(index).ObjectMeta,
		"backup":       {Labels: scheduled.Labels, Annotations: scheduled.Annotations},
	} {
		_, released := made.Labels[dmv1.LabelReleased]
		_, leaving := made.Annotations[dmv1.AnnotationLeaving]
		if released || leaving || made.Annotations["team"] != "a" || what != "Service" && made.Labels["team"] != "a" {
			t.Errorf("%s: labels %v, annotations %v", what, made.Labels, made.Annotations)
		}
	}
	if got, want := ReservedOf(&template), []string{dmv1.AnnotationLeaving, dmv1.LabelReleased}; !slices.Equal(got, want) {
		t.Errorf("%v are left out, want %v", got, want)
	}
	if len(template.Annotations) != 3 {
		t.Errorf("the template was changed: %v", template.Annotations)
	}
}
