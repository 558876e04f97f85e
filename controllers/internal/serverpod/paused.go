package serverpod

import (
	"context"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// spec.paused pauses changes, and nothing else: what is lost is replaced, fenced and taken over,
// and certificates are renewed, as ever. Of a paused pool the number of servers is a change, so a
// pool remembers how many it had.

// PausedSize is how many servers a pool shall have: those that are asked for or, of a paused pool,
// those that it had if they are fewer.
func PausedSize(ctx context.Context, b *reconciler.Base, pool client.Object, paused bool, wanted, has int) (int, error) {
	if !paused {
		return wanted, b.Annotate(ctx, pool, map[string]string{dmv1.AnnotationPausedSize: ""})
	}
	size, err := strconv.Atoi(pool.GetAnnotations()[dmv1.AnnotationPausedSize])
	if err == nil {
		return min(size, wanted), nil
	}
	return min(has, wanted), b.Annotate(ctx, pool, map[string]string{dmv1.AnnotationPausedSize: strconv.Itoa(min(has, wanted))})
}
