package memorypool

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// TestFreeIDs: numbers on whose servers no index was made are given out again, unless there is a
// pod of them.
func TestFreeIDs(t *testing.T) {
	f := func(used, want string, there ...int) {
		t.Helper()
		pool := &dmv1.DMMemoryPool{}
		pool.Annotations = map[string]string{dmv1.AnnotationNextID: "6"}
		if used != "" {
			pool.Annotations[dmv1.AnnotationUsedIDs] = used
		}
		var pods []*corev1.Pod
		for _, id := range there {
			p := &corev1.Pod{}
			p.Name = build.PodName("pool", id)
			pods = append(pods, p)
		}
		ids, err := freeIDs(pool, pods, volume.Record{}, volume.IDs{})
		if got := fmt.Sprint(ids.Free, ids.Next, ids.Also, err); got != want {
			t.Errorf("%s: %s, want %s", used, got, want)
		}
	}
	f("0-1,4", "[3 5] 6 map[dmindex.io/used-ids:0-1,4] <nil>", 0, 1, 2)
	f("-", "[] 6 map[dmindex.io/used-ids:-] <nil>", 0, 1, 2, 3, 4, 5)
	f("", "[] 6 map[dmindex.io/used-ids:0-5] <nil>", 0)
}

// TestIDsLast: a pool whose pods are all refused by kubelets does not run out of numbers.
func TestIDsLast(t *testing.T) {
	const servers, rounds = 64, 100
	pool, now := &dmv1.DMMemoryPool{}, operatortest.Noon
	pool.Annotations = map[string]string{dmv1.AnnotationNextID: "0", dmv1.AnnotationUsedIDs: volume.IDs{}.String()}
	var pods []*corev1.Pod
	made := 0
	for range rounds {
		s := scope{pool: pool, size: servers, image: "a", answering: pods}
		a := decide(s.view(now))
		for _, id := range a.remove {
			for i, p := range pods {
				if podstate.ID(p) == id {
					pods = append(pods[:i:i], pods[i+1:]...)
					break
				}
			}
		}
		ids, err := freeIDs(pool, pods, volume.Record{}, volume.IDs{})
		if err != nil {
			t.Fatal(err)
		}
		for range a.create {
			id := ids.Next
			if len(ids.Free) > 0 {
				id, ids.Free = ids.Free[0], ids.Free[1:]
			} else {
				ids.Next++
			}
			if id > build.MaxVolume {
				t.Fatalf("no number is left after %d pods", made)
			}
			p := &corev1.Pod{}
			p.Name = build.PodName("pool", id)
			p.Labels = map[string]string{dmv1.LabelComponent: dmv1.ComponentMemory}
			p.Spec.NodeName, p.Spec.Containers = "n", []corev1.Container{{Name: dmv1.ComponentMemory, Image: "a"}}
			p.Status.Phase, p.CreationTimestamp.Time = corev1.PodFailed, now
			pods = append(pods, p)
			made++
		}
		pool.Annotations[dmv1.AnnotationNextID] = fmt.Sprint(ids.Next)
		now = now.Add(podstate.SlowestReplacement)
	}
	if made < 2000 {
		t.Errorf("only %d pods were made", made)
	}
	if next := podstate.NextID(pool, nil); next > 3*servers {
		t.Errorf("%d numbers were given out for %d servers", next, servers)
	}
}
