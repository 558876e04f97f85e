package volume

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// Which numbers pods get.
//
// Of a memory pod the number is also that of its server in global addresses, and there are but
// 1,024 in a pool. It is used up once an index was made on the server: nothing else leads to memory
// of it. That is written into the pool before the index records the server, which comes before
// anything is admitted there (chooseMemory):
//
//	pool: used-ids has n    ->    index: dmindex.io/memory has n    ->    memory server: Admit
//
// So a number below next-id that is not in used-ids, and of which there is no pod, was never
// written into any index, nor into any address: the pod was refused by the API server or by its
// kubelet, never became ready, or was lost before somebody made an index on it. It is given out
// again. Whether its container ran does not matter, and is not guessed from the status of a pod:
// kubelets that start anew, and the collector of pods whose node is gone, leave one that looks as
// if it had not.
//
// Two reconcilers may overlap, one of which gives a number out again, from a cache that does not
// have used-ids yet, while the other has an index made on the server of the pod before. The
// incarnation tells then: it was recorded with the number and the new pod has another, so the
// server is lost, as it is; and clients of the index, which have the incarnation too, do not speak
// to it.

const (
	// noIDs is AnnotationUsedIDs of a memory pool on whose servers no index was made. A pool
	// without the annotation is of an older operator: then all below next-id are used.
	noIDs = "-"
)

// IDs are numbers of volumes.
type IDs map[int]bool

// UsedIDs are the numbers of a memory pool on whose servers indexes were made. Errors: the
// annotation cannot be read.
func UsedIDs(pool client.Object, next int) (IDs, error) {
	used := IDs{}
	text, known := pool.GetAnnotations()[dmv1.AnnotationUsedIDs]
	switch {
	case !known:
		for id := range next {
			used[id] = true
		}
		return used, nil
	case text == noIDs:
		return used, nil
	}
	for _, part := range strings.Split(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to > build.MaxVolume {
			return nil, fmt.Errorf("annotation %s of pool %s cannot be read at %q: put it back as it was, or remove it; then all numbers that were given out count as used", dmv1.AnnotationUsedIDs, pool.GetName(), part)
		}
		for id := from; id <= to; id++ {
			used[id] = true
		}
	}
	return used, nil
}

// String is what the annotation says.
func (s IDs) String() string {
	var ids []int
	for id := range s {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var parts []string
	for i := 0; i < len(ids); {
		end := i + 1
		for end < len(ids) && ids[end] == ids[end-1]+1 {
			end++
		}
		if end-i == 1 {
			parts = append(parts, strconv.Itoa(ids[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[end-1]))
		}
		i = end
	}
	if len(parts) == 0 {
		return noIDs
	}
	return strings.Join(parts, ",")
}

// MarkUsed writes down that an index is about to be made on servers of a pool.
func MarkUsed(ctx context.Context, b *reconciler.Base, pool *dmv1.DMMemoryPool, pods []*corev1.Pod, ids []int) error {
	used, err := UsedIDs(pool, podstate.NextVolume(pool, pods))
	if err != nil {
		return err
	}
	for _, id := range ids {
		used[id] = true
	}
	if err := b.Annotate(ctx, pool, map[string]string{dmv1.AnnotationUsedIDs: used.String()}); err != nil || !IsPersistent(pool) {
		return err
	}
	for _, pod := range pods {
		if slices.Contains(ids, podstate.VolumeOf(pod)) {
			if err := TellUsed(ctx, b, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// AddRecorded adds the volumes of a pool on whose servers an index was made. They are in used-ids,
// unless an operator recorded them that did not know of it yet.
func (s IDs) AddRecorded(index *dmv1.DMIndex, pool string) {
	known, err := decision.KnownMemory(index)
	if err != nil {
		return // nobody can tell; the index says so
	}
	for _, number := range volumesIn(index, pool, known) {
		s[number] = true
	}
}

// TellUsed tells the server of a pod that its disk has been used.
func TellUsed(ctx context.Context, b *reconciler.Base, p *corev1.Pod) error {
	return b.Annotate(ctx, p, map[string]string{dmv1.AnnotationUsed: "true"})
}
