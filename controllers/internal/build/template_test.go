package build

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

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

// TestTemplates: each field of a template is in every pod that is made of it, and what is the
// operator's stays: of two variables with one name a container has the last.
func TestTemplates(t *testing.T) {
	given := dmv1.PodTemplate{
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, NodeSelector: map[string]string{"a": "b"},
		Resources:   dmv1.Resources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")}},
		Tolerations: []corev1.Toleration{{Key: "a"}}, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "a"}}, PriorityClassName: "a", SchedulerName: "a", RuntimeClassName: ptr.To("a"),
		ServiceAccountName: "a", HostAliases: []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a"}}}, DNSConfig: &corev1.PodDNSConfig{Searches: []string{"a"}},
		Env: []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "1"}}, ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "a"}},
		Patch: &runtime.RawExtension{Raw: []byte(`{"dnsPolicy": "Default"}`)},
	}
	index := testIndex()
	made := func(template dmv1.PodTemplate) map[string]string {
		memory, compute := MemoryPool(index, index.Spec.MemoryPools[0], "i"), ComputePool(index, index.Spec.ComputePools[0], "i")
		memory.Spec.Pod, compute.Spec.Pod = template, template
		all := map[string]string{}
		job := artifactJob("job", "ns", dmv1.BackupTemplate{Pod: template}, "i", time.Minute).Spec.Template
		for name, pod := range map[string]*corev1.Pod{
			"memory": MemoryPod(memory, 0, "i"), "compute": ComputePod(compute, 0, 0, "uid", "i", "h"),
			"job": {ObjectMeta: job.ObjectMeta, Spec: job.Spec},
		} {
			if err := Patch(&pod.Spec, template.Patch); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
		for name, p := range map[string]*corev1.Pod{"memory": MemoryPod(memory, 0, "i"), "compute": ComputePod(compute, 0, 0, "uid", "i", "h")} {
			last := ""
			for _, v := range p.Spec.Containers[0].Env {
				if v.Name == "GOMEMLIMIT" {
					last = v.Value
				}
			}
			if last == "1" || last == "" {
				t.Errorf("%s: the limit of the heap is %q", name, last)
			}
		}
		return all
	}
	without := made(dmv1.PodTemplate{})
	for i := range reflect.TypeFor[dmv1.PodTemplate]().NumField() {
		var one dmv1.PodTemplate
		field := reflect.TypeFor[dmv1.PodTemplate]().Field(i).Name
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(given).Field(i))
		for name, pod := range made(one) {
			if pod == without[name] {
				t.Errorf("%s: a pod is made without %s", name, field)
			}
		}
	}
}
