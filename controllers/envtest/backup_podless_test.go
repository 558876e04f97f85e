package envtest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestBackupWithoutAPod: the quota that keeps the pod of a Job away is named, which Kubernetes
// tells in events of the Job alone.
func TestBackupWithoutAPod(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.now = func() time.Time { return time.Now().Add(10 * time.Second) } // as if the Job were older
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	quota := c.fillQuota(corev1.ResourcePods)
	c.create(backup, "one")
	c.job("one-dump")
	c.phase("one", dmv1.BackupRunning, dmv1.ReasonDumping, "exceeded quota: full")
	c.delete(quota)
}
