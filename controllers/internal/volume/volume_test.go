package volume_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/controllers/internal/volumetest"
)

// TestAnswering: the record says which pod answers for a volume; without one it is the pod with the
// volume's number, whatever labels say.
func TestAnswering(t *testing.T) {
	f := func(views map[int]volume.View, want string, pods ...*corev1.Pod) {
		t.Helper()
		answering, elsewhere := volume.Record{Views: views}.Answering(pods, nil)
		var names []string
		for _, p := range answering {
			names = append(names, fmt.Sprintf("%s:%d", p.Name, podstate.VolumeOf(p)))
		}
		if got := fmt.Sprint(names, elsewhere); got != want {
			t.Errorf("%v: %s, want %s", views, got, want)
		}
	}
	labelled := volumetest.CopyPod(0, 0)
	labelled.Labels = map[string]string{dmv1.LabelVolume: "5", dmv1.LabelServerID: "5"}
	failed := volumetest.CopyPod(1025, 0)
	failed.Status.Phase = corev1.PodFailed
	strange := volumetest.CopyPod(1026, 0)
	strange.Spec.Containers[0].Args = nil

	f(nil, "[pool-0:0 pool-1:1] -", volumetest.CopyPod(0, 0), volumetest.CopyPod(1, 1))
	f(nil, "[pool-0:0] -", labelled, volumetest.CopyPod(1024, 0), strange)
	f(map[int]volume.View{0: volumetest.ViewOf(2, 0, 1024)}, "[pool-0:0 pool-1:1] 0", volumetest.CopyPod(0, 0), volumetest.CopyPod(1, 1), volumetest.CopyPod(1024, 0))
	f(map[int]volume.View{0: volumetest.ViewOf(3, 1024)}, "[pool-1024:0 pool-1:1] -", volumetest.CopyPod(1, 1), volumetest.CopyPod(1024, 0))
	// the former primary is there still
	f(map[int]volume.View{0: volumetest.ViewOf(3, 1024)}, "[pool-1024:0] -", volumetest.CopyPod(0, 0), volumetest.CopyPod(1024, 0))
	// it is to be named again
	f(map[int]volume.View{0: volumetest.ViewOf(3, 1024, -1, 0)}, "[] 0", volumetest.CopyPod(0, 0))
	f(map[int]volume.View{0: volumetest.ViewOf(2, 0, 1024)}, "[] 0", volumetest.CopyPod(1024, 0))
	f(map[int]volume.View{0: volumetest.ViewOf(2, 0, 1025)}, "[] -", failed)
	f(map[int]volume.View{0: volumetest.ViewOf(2, 0, 1024)}, "[] -", volumetest.CopyPod(1027, 0))
}

// TestVolumeRecord: what the annotation says, and what is no such thing.
func TestRecord(t *testing.T) {
	pool := &dmv1.DMMemoryPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Annotations: map[string]string{}}}
	r := volume.Record{Next: 1027, Views: map[int]volume.View{0: volumetest.ViewOf(2, 0, 1024), 7: volumetest.ViewOf(3, 1025, -1, 7)}}
	pool.Annotations[dmv1.AnnotationVolumes] = r.String()
	if got, err := volume.RecordOf(pool); err != nil || got.String() != r.String() || got.PodOf("pool", 7) != "pool-1025" || got.PodOf("pool", 8) != "pool-8" {
		t.Errorf("%s %v, want %s", got, err, r)
	}
	if text := (volume.Record{}).String(); text != "" {
		t.Errorf("nothing to say is %q", text)
	}
	for _, text := range []string{"x", `{"views":{"1024":{"view":1,"primary":{"uid":"u"}}}}`, `{"views":{"0":{"view":1}}}`, `{"views":{"0":{"primary":{"uid":"u"}}}}`} {
		pool.Annotations[dmv1.AnnotationVolumes] = text
		if _, err := volume.RecordOf(pool); err == nil || !strings.Contains(err.Error(), dmv1.AnnotationVolumes) {
			t.Errorf("%s is read (%v)", text, err)
		}
	}
}
