package computepool

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
)

// Which numbers pods get.
//
// Of a compute pod the number makes its name, by which memory servers know its clients, and its
// place in the partition map. It is never given twice, also not by a pool of the same name that is
// made later: the process of a pod that was deleted by force may go on behind a node that is cut
// off. The index outlives its pools, so it has, for each, the pool's UID and a bound that the
// numbers of it and of those before it did not reach:
//
//	new pool: next-id = bound of the one before    ->    index: its UID, a new bound    ->    pods
//
// The bound is raised before pods get numbers beyond it, many at a time. A pool that lost its own
// number goes on from there as well.

// idsAtOnce is by how much the bound is raised, so that the index is seldom written for it.
const idsAtOnce = 64

// computeIDs is what an index knows of the numbers of a compute pool.
type computeIDs struct {
	UID types.UID `json:"uid"`
	// End: the numbers of this pool, and of earlier ones of its name, lie below
	End int `json:"end"`
}

// reserveIDs makes sure that the pool gives out no number of an earlier one of its name, now and
// for the next n pods.
func (r *Reconciler) reserveIDs(ctx context.Context, s *scope, n int) error {
	all := map[string]computeIDs{}
	if text := s.index.Annotations[dmv1.AnnotationComputeIDs]; text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return fmt.Errorf("annotation %s of index %s cannot be read (%w): put it back as it was, or remove it if none of its compute pools was ever deleted", dmv1.AnnotationComputeIDs, s.index.Name, err)
		}
	}
	has := all[s.pool.Name]
	from := podstate.NextID(s.pool, s.pods)
	if from+n == 0 {
		return nil
	}
	// A pool has a number before the index has the pool's UID: one without a number lost it.
	_, known := s.pool.Annotations[dmv1.AnnotationNextID]
	if from < has.End && (has.UID != s.pool.UID || !known) {
		from, known = has.End, false
	}
	if !known {
		if err := r.Annotate(ctx, s.pool, map[string]string{dmv1.AnnotationNextID: strconv.Itoa(from)}); err != nil {
			return err
		}
	}
	next := from + n
	if has.UID == s.pool.UID && next <= has.End {
		return nil
	}
	all[s.pool.Name] = computeIDs{s.pool.UID, max(has.End, (next+idsAtOnce-1)/idsAtOnce*idsAtOnce)}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationComputeIDs: string(text)})
}
