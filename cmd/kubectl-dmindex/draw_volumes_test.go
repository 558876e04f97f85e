package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestDrawVolumes: an index whose memory is kept twice, or on disks, is drawn with its volumes,
// what is wrong with its pools, and claims; others are not.
func TestDrawVolumes(t *testing.T) {
	v := drawn()
	for _, without := range []string{"MEMORY POOL", "CLAIM", "memory pool", "(now"} {
		if got := v.status(now); strings.Contains(got, without) {
			t.Errorf("an index without volumes has %q:\n%s", without, got)
		}
	}
	v.index.Spec.Durability, v.index.Status.Durability = dmv1.DurabilityReplicated, dmv1.DurabilityMemory
	pool := v.memory[0]
	pool.Name = "demo-memory"
	pool.Spec.Persistence = &dmv1.Persistence{}
	pool.Status.Servers[0].Claim = "demo-memory-0"
	pool.Status.Conditions = []metav1.Condition{
		{Type: dmv1.ConditionPoolReady, Status: "True", Reason: dmv1.ReasonServing},
		{Type: dmv1.ConditionDegraded, Status: "True", Reason: dmv1.ReasonCopyMissing, Message: "volume 1: pod demo-memory-1025 gets its copy", LastTransitionTime: metav1.NewTime(now.Add(-5 * time.Second))},
	}
	pool.Status.Volumes = []dmv1.VolumeStatus{
		{ID: 0, View: 4, Primary: "demo-memory-0", Backup: "demo-memory-1024", State: dmv1.VolumeInSync},
		{ID: 1, View: 7, Primary: "demo-memory-1", State: dmv1.VolumeCopying, Percent: 40, Message: "pod demo-memory-1025 gets its copy"},
	}
	got := v.status(now)
	for _, want := range []string{
		"durability Replicated (now Memory)\n",
		"  memory pool demo-memory: Degraded=True for 5s  CopyMissing: volume 1: pod demo-memory-1025 gets its copy\n    means: a volume of a memory pool has fewer copies than wanted",
		"LOCKS         CLAIM\n", "16384 OnChip  demo-memory-0\n",
		"MEMORY POOL  VOLUME  VIEW  STATE    PRIMARY        BACKUP            COPIED            WAITS FOR\n",
		"demo-memory  0       4     InSync   demo-memory-0  demo-memory-1024  -                 -\n",
		"demo-memory  1       7     Copying  demo-memory-1  -                 ████······  40 %  pod demo-memory-1025 gets its copy\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, "PoolReady") {
		t.Error("shows a condition that is as it should be")
	}
	pool.Status.Conditions[0].Status, pool.Status.Conditions[0].Reason, pool.Status.Conditions[0].Message = "False", dmv1.ReasonClaimMissing, "pod demo-memory-1 waits for its claim"
	if got := v.status(now); !strings.Contains(got, "memory pool demo-memory: PoolReady=False for ") || !strings.Contains(got, "ClaimMissing: pod demo-memory-1 waits for its claim\n    means: ") {
		t.Errorf("a pool that is not ready:\n%s", got)
	}
	if t.Failed() {
		t.Log("\n" + got)
	}
}
