package index

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// defaultGrace is the grace of authorities where the index says nothing.
const defaultGrace = time.Hour

// keepAuthority replaces the authority of an index when that is asked for, or before it ends
// (authority.Keep). It signs the certificates of the compute servers, and memory servers trust it,
// too.
func (r *Reconciler) keepAuthority(ctx context.Context, s *scope) error {
	if !s.computeSeen {
		return nil // nobody knows what the compute servers trust
	}
	conn := &corev1.Secret{}
	conn.Name, conn.Namespace = build.ConnectionName(s.index.Name), s.index.Namespace
	if err := r.Find(ctx, conn, conn); err != nil {
		return client.IgnoreNotFound(err) // issueSecrets says why
	}
	var compute []authority.Trust
	for i := range s.compute {
		c := &s.compute[i]
		compute = append(compute, authority.TrustOf(c.pod, c.described != nil, c.described))
	}
	memory := func() (all []authority.Trust, _ error) {
		for _, p := range s.memoryPools {
			all = append(all, authority.TrustOfMemory(p.pods, p.described)...)
		}
		return all, nil
	}
	again, err := authority.Keep(ctx, &r.Base, s.index, authority.View{Programs: true, Grace: authorityGrace(s.index)}, compute, memory, conn.Data[build.KeyCA])
	if again > 0 {
		s.authorityEnds = r.Now().Add(again)
	}
	return err
}

func authorityGrace(index *dmv1.DMIndex) time.Duration {
	if seconds := index.Spec.Security.AuthorityGraceSeconds; seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return defaultGrace
}
