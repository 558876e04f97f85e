package build

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

func testBackup() *dmv1.DMBackup {
	b := &dmv1.DMBackup{ObjectMeta: metav1.ObjectMeta{Name: "nightly", Namespace: "ns", UID: "uid"}}
	b.Spec.IndexName = "demo"
	b.Spec.Storage.Volume = &dmv1.BackupVolume{ClaimName: "dumps", Path: "a/b"}
	b.Spec.Pod = dmv1.PodTemplate{
		Labels:    map[string]string{"team": "a", dmv1.LabelComponent: "not yours to change"},
		Resources: dmv1.Resources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}},
	}
	return b
}

// TestGoldenJobs compares Jobs with testdata. DMINDEX_REWRITE=1 writes it anew.
func TestGoldenJobs(t *testing.T) {
	s3 := testBackup()
	s3.Spec.Storage = dmv1.BackupStorage{EncryptionSecret: &dmv1.SecretReference{Name: "dumps-key"}, S3: &dmv1.BackupS3{
		Endpoint: "https://s3.example.com", Proxy: "http://proxy:3128", Bucket: "dumps", Prefix: "a/b", CredentialsSecret: dmv1.SecretReference{Name: "keys"}}}
	for name, object := range map[string]any{
		"dump_s3_job":   DumpJob(s3, "server:1", time.Hour),
		"dump_job":      DumpJob(testBackup(), "server:1", time.Hour),
		"delete_s3_job": DeleteJob(s3, ArtifactOf(s3), "server:1", time.Minute),
		"delete_job":    DeleteJob(testBackup(), ArtifactOf(testBackup()), "server:1", time.Minute),
	} {
		got, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".yaml")
		if os.Getenv("DMINDEX_REWRITE") != "" {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
			t.Errorf("%s is\n%s\nand not as in testdata: %v", name, got, err)
		}
	}
}
