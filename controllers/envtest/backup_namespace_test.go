package envtest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestBackupGoesWithItsNamespace: where no Job can be made any more the artifact stays, and the
// backup does not hold up the deletion of its namespace.
func TestBackupGoesWithItsNamespace(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(strings.Replace(backup, "indexName: demo", "indexName: demo\n  deletionPolicy: Delete", 1), "a")
	c.attempt(c.job("a-dump"), 1, &good)
	c.end("a-dump", false)
	c.phase("a", dmv1.BackupComplete, dmv1.ReasonVerified, "")
	if err := api.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), c.backup("a")); err != nil {
		t.Fatal(err)
	}
	c.gone("a", &dmv1.DMBackup{})
}
