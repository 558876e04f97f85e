package envtest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	opconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestBackupToS3: the Job waits for its Secrets, and gets them.
func TestBackupToS3(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(strings.Replace(backup, "{volume: {claimName: dumps, path: nightly}}",
		"{encryptionSecret: {name: identities}, s3: {endpoint: 'http://s3.example.com:9000', bucket: dumps, credentialsSecret: {name: keys}}}", 1), "a")
	c.phase("a", dmv1.BackupPending, dmv1.ReasonSecretMissing, "there is no Secret keys")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys", Namespace: c.namespace}, StringData: map[string]string{opconfig.S3AccessKey: "a"}}
	if err := api.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.phase("a", dmv1.BackupPending, dmv1.ReasonSecretMissing, "Secret keys has no "+opconfig.S3SecretKey)
	secret.StringData = map[string]string{opconfig.S3SecretKey: "b"}
	if err := api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	c.phase("a", dmv1.BackupPending, dmv1.ReasonSecretMissing, "there is no Secret identities")
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "identities", Namespace: c.namespace}, StringData: map[string]string{opconfig.BackupIdentities: "AGE-SECRET-KEY-1"}}
	if err := api.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	args := strings.Join(c.job("a-dump").Spec.Template.Spec.Containers[0].Args, " ")
	if !strings.Contains(args, "--s3-endpoint=http://s3.example.com:9000 --s3-bucket=dumps") || !strings.Contains(args, "--encryption="+opconfig.BackupEncryptionDir) || strings.Contains(args, "--dir") {
		t.Errorf("the Job is called with %s", args)
	}
}
