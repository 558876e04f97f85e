package build

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// TestDisk: a server of a pool with persistence keeps its region in the claim of its pod's name and
// nowhere else, can be a copy, and has time to read it back. Views name a further copy by its
// claim.
func TestDisk(t *testing.T) {
	pool := &dmv1.DMMemoryPool{}
	pool.Name, pool.Spec.Memory = "pool", resource.MustParse("64Gi")
	pool.Spec.Persistence = &dmv1.Persistence{Sync: dmv1.Persistence5ms}
	p := MemoryPod(pool, 3, "image")
	c := &p.Spec.Containers[0]
	for arg, want := range map[string]bool{"--persist=" + config.PersistDir: true, "--persist-sync=5ms": true, "--data-dir=" + config.DataDir: false} {
		if slices.Contains(c.Args, arg) != want {
			t.Errorf("%s: %v, want %v: %v", arg, !want, want, c.Args)
		}
	}
	var claims []string
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			t.Errorf("volume %s is empty at first", v.Name)
		}
		if v.PersistentVolumeClaim != nil {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
		}
	}
	if !slices.Equal(claims, []string{Claim(pool, 3, 3).Name}) {
		t.Errorf("the pod has claims %v", claims)
	}
	if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == config.EnvMirror && v.Value == mirrorAddress }) {
		t.Error("the server takes no changes of another one")
	}
	claim := Claim(pool, 1024, 3)
	claim.UID = "claim-uid"
	further := MemoryCopy(pool, 1024, 3, "image", claim)
	if args := further.Spec.Containers[0].Args; !slices.Contains(args, "--pod=claim-uid") || !slices.Contains(args, "--id=4") || claim.Labels[dmv1.LabelVolume] != "3" ||
		further.Name != claim.Name || further.Spec.Volumes[len(further.Spec.Volumes)-1].PersistentVolumeClaim.ClaimName != claim.Name {
		t.Errorf("claim %v has pod %s with %v", claim.Labels, further.Name, args)
	}
	for name, annotation := range map[string]string{config.EnvPersistExisting: dmv1.AnnotationUsed, config.EnvPersistAcceptLoss: dmv1.AnnotationAcceptLoss} {
		if !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool {
			return v.Name == name && v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.annotations['"+annotation+"']"
		}) {
			t.Errorf("%s is not what annotation %s says", name, annotation)
		}
	}
	seconds := int64(c.StartupProbe.PeriodSeconds * c.StartupProbe.FailureThreshold)
	if least := 3 * pool.Spec.Memory.Value() / slowestDisk; seconds < least || seconds > least+600 {
		t.Errorf("it may take %d s to start; want %d to %d", seconds, least, least+600)
	}
	if size := Claim(pool, 3, 3).Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "257Gi" {
		t.Errorf("the claim asks for %s", size.String())
	}
	size := resource.MustParse("300Gi")
	pool.Spec.Persistence.Size = &size
	if bytes := DiskBytes(pool); bytes.Cmp(size) != 0 {
		t.Errorf("the claim asks for %s", bytes.String())
	}
}
