package operatortest

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Meshed is a pod of a Job with a proxy that a mesh put in, after the program ended with a code.
func Meshed(t *testing.T, job *batchv1.Job, name string, code int32, phase corev1.PodPhase, report *config.BackupReport) corev1.Pod {
	t.Helper()
	text, err := report.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	p := corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy()}
	p.Name, p.Namespace, p.Labels[batchv1.JobNameLabel] = name, job.Namespace, job.Name
	p.Status.Phase = phase
	proxy := corev1.ContainerStatus{Name: "istio-proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if phase != corev1.PodRunning {
		proxy.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143}}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{proxy, {Name: dmv1.ComponentBackup, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: string(text)}}}}
	return p
}

// GoodReport is of a program that dumped or loaded all.
var GoodReport = &config.BackupReport{Keys: 7, Bytes: 100, Digest: strings.Repeat("ab", 32)}
