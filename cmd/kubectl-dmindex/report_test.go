package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

const (
	plantedKey    = "customer-4711"
	plantedSecret = "hunter2-and-more"
)

// planted is a cluster in which keys and secrets are wherever they can be.
type planted struct{ log int }

func (p planted) pod(name, component string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{dmv1.LabelComponent: component},
		Annotations: map[string]string{"vault.example.com/inject": plantedSecret, dmv1.AnnotationIdentity: "uid"}}}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: plantedSecret}}
	pod.Spec.Containers = []corev1.Container{{Name: component, Args: []string{"--password-file=/auth/password"},
		Env: []corev1.EnvVar{{Name: "SIDECAR", Value: plantedSecret}, {Name: "GOMEMLIMIT", Value: "123456"}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}}
	return pod
}

func (p planted) gather(context.Context, string) (*view, error) {
	v := drawn()
	key := base64.StdEncoding.EncodeToString([]byte(plantedKey))
	v.index.Namespace = "shop"
	v.index.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": plantedSecret}
	v.index.Status.Map.Ranges[1].Start = key
	v.index.Status.Conditions[1].Message = `keys ["` + plantedKey + `", end) wait`
	v.events[0].Message = `keys ["", "` + plantedKey + `") go`
	v.memory[0].Name = "demo-memory"
	pod := dmv1.PodTemplate{Annotations: map[string]string{"vault.example.com/inject": plantedSecret}}
	text, err := json.Marshal(map[string]any{"backup": "nightly", "artifact": "a.dump", "template": dmv1.BackupTemplate{IndexName: "demo", Pod: pod}})
	if err != nil {
		return nil, err
	}
	v.index.Annotations[dmv1.AnnotationRestore] = string(text)
	backups, schedules := drawnBackups()
	for i := range backups {
		backups[i].Namespace, backups[i].Spec.Pod = "shop", pod
		backups[i].Status.Conditions = []metav1.Condition{{Type: dmv1.ConditionComplete, Status: "False", Reason: dmv1.ReasonDumpFailed, Message: `key "` + plantedKey + `" is too long`}}
	}
	for i := range schedules {
		schedules[i].Namespace, schedules[i].Spec.Template.Pod = "shop", pod
	}
	v.keepBackups(backups, schedules)
	v.memory[0].Spec.Pod.Annotations = map[string]string{"dmindex.io/mine": plantedSecret}
	return v, nil
}

func (p planted) podsOf(context.Context, *view) ([]corev1.Pod, error) {
	return []corev1.Pod{p.pod("demo-compute-0", dmv1.ComponentCompute), p.pod("demo-memory-0", dmv1.ComponentMemory)}, nil
}

func (p planted) logsOf(_ context.Context, pod *corev1.Pod, o corev1.PodLogOptions) ([]byte, error) {
	if pod.Name == "demo-memory-0" && o.Previous {
		return nil, errors.New("no such container")
	}
	line := `level=INFO msg="serve" keys="[\"` + plantedKey + `\", end)" password=` + plantedSecret + "\n"
	return []byte(strings.Repeat(line, max(1, p.log/len(line))) + "last line\n"), nil
}

func (p planted) get(_ context.Context, pod *corev1.Pod, page string) ([]byte, error) {
	return []byte(page + " of " + pod.Name), nil
}

func (p planted) operators(context.Context, string) ([]corev1.Pod, error) { return nil, nil }

func (p planted) computePools(context.Context, *view) ([]dmv1.DMComputePool, error) {
	return []dmv1.DMComputePool{{ObjectMeta: metav1.ObjectMeta{Name: "demo-compute"}}}, nil
}

func (p planted) backupPods(context.Context, *view) ([]corev1.Pod, error) {
	return []corev1.Pod{p.pod("nightly-2-dump-x", dmv1.ComponentBackup)}, nil
}

func (p planted) allEvents(context.Context) ([]corev1.Event, error) {
	return []corev1.Event{{Reason: "Handover", Message: `keys ["` + plantedKey + `", end) go`}}, nil
}

func reported(t *testing.T, p planted) map[string]string {
	t.Helper()
	var archive bytes.Buffer
	if err := report(t.Context(), p, &archive, "folder", "demo", "dmindex-system", now); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "folder/")] = string(text)
	}
}

// TestReport: it has all that there is to see, and neither keys nor secrets.
func TestReport(t *testing.T) {
	files := reported(t, planted{})
	for file, want := range map[string]string{
		"status.txt":                        "partition map 5: 3 ranges",
		"dmindex.yaml":                      "kind: DMIndex",
		"memorypools/demo-memory.yaml":      "chunksGranted: 16",
		"computepools/demo-compute.yaml":    "name: demo-compute",
		"backups/nightly-3.yaml":            "kind: DMBackup",
		"schedules/nightly.yaml":            "kind: DMBackupSchedule",
		"backups/pods/nightly-2-dump-x.log": "last line",
		"events.txt":                        "Handover: keys [#",
		"pods/demo-compute-0.yaml":          `value: "123456"`,
		"pods/demo-compute-0.log":           "last line",
		"pods/demo-compute-0.previous.log":  "last line",
		"pods/demo-compute-0.describe":      "describe of demo-compute-0",
		"pods/demo-memory-0.metrics":        "metrics of demo-memory-0",
		"problems.txt":                      "pods/demo-memory-0.previous.log: no such container\nthere is no operator in dmindex-system",
	} {
		if !strings.Contains(files[file], want) {
			t.Errorf("%s lacks %q:\n%s", file, want, files[file])
		}
	}
	for file, text := range files {
		for _, bad := range []string{plantedKey, plantedSecret, base64.StdEncoding.EncodeToString([]byte(plantedKey))} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q:\n%s", file, bad, text)
			}
		}
	}
	if !strings.Contains(files["pods/demo-compute-0.yaml"], "dmindex.io/identity: uid") || !strings.Contains(files["pods/demo-compute-0.yaml"], "--password-file=/auth/password") {
		t.Errorf("more than secrets is left out:\n%s", files["pods/demo-compute-0.yaml"])
	}
}

// TestReportIsBounded: of a long log the end is kept.
func TestReportIsBounded(t *testing.T) {
	files := reported(t, planted{log: 3 << 20})
	total := 0
	for file, text := range files {
		total += len(text)
		if len(text) > mostOfFile {
			t.Errorf("%s has %d bytes", file, len(text))
		}
	}
	if !strings.HasSuffix(files["pods/demo-compute-0.log"], "last line\n") || !strings.Contains(files["problems.txt"], "pods/demo-compute-0.log: the first ") {
		t.Errorf("a long log: %q", files["problems.txt"])
	}
	b := &bundle{w: tar.NewWriter(io.Discard), left: 10}
	if err := b.add("large", make([]byte, 11)); err != nil || len(b.problems) != 1 || b.left != 10 {
		t.Errorf("a report that is full: %v, %q", err, b.problems)
	}
}

// TestPrefixed: each line of a log names its pod.
func TestPrefixed(t *testing.T) {
	var out strings.Builder
	if err := prefixed(&out, "demo-memory-0", []byte("one\ntwo")); err != nil || out.String() != "demo-memory-0  one\ndemo-memory-0  two\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
