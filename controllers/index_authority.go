package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

const (
	// defaultAuthorityGrace is the grace of authorities where the index says nothing.
	defaultAuthorityGrace = time.Hour
	// poolAuthorityGrace is that of memory pools, which no program knows.
	poolAuthorityGrace = 10 * time.Minute
)

// keepIndexAuthority replaces the authority of an index when that is asked for, or before it ends
// (authorities). It signs the certificates of the compute servers, and memory servers trust it,
// too.
func (r *DMIndexReconciler) keepIndexAuthority(ctx context.Context, s *indexScope) error {
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
			all = append(all, trustOfMemory(p.pods, p.described)...)
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
	return defaultAuthorityGrace
}

// keepPoolAuthority does the same for a memory pool. Its authority signs the certificates of its
// memory servers, and the compute servers of all indexes on the pool trust it, too.
func (r *DMMemoryPoolReconciler) keepPoolAuthority(ctx context.Context, s *memoryPoolScope) (err error) {
	if s.pool.Spec.Paused {
		return nil
	}
	compute := func() ([]authority.Trust, error) { return r.computeTrust(ctx, s.pool) }
	s.authorityAgain, err = authority.Keep(ctx, &r.Base, s.pool, authority.View{Grace: poolAuthorityGrace}, append(trustOfMemory(s.answering, s.described), s.trustOfCopies()...), compute, nil)
	return err
}

// trustOfCopies is what pods say that have a part in a view and do not answer for their volume:
// they show their certificates to each other.
func (s *memoryPoolScope) trustOfCopies() (all []authority.Trust) {
	for _, v := range s.volumes {
		for _, c := range v.copies {
			if c.pod != nil && c.uid != v.view.Primary.UID && s.needsCopy(v.number, c) {
				r, answered := v.reports[c.uid]
				all = append(all, authority.Trust{Pod: c.pod, Answered: answered, Trusted: r.Trusted, Signer: r.Signer})
			}
		}
	}
	return all
}

func trustOfMemory(pods []*corev1.Pod, described map[int]*rpcv1.DescribeMemoryReply) (all []authority.Trust) {
	for _, p := range pods {
		d := described[podstate.VolumeOf(p)]
		all = append(all, authority.TrustOf(p, d != nil, d))
	}
	return all
}

// computeTrust asks the compute servers of all indexes on a memory pool.
func (r *DMMemoryPoolReconciler) computeTrust(ctx context.Context, pool *dmv1.DMMemoryPool) (all []authority.Trust, err error) {
	indexes := &dmv1.DMIndexList{}
	if err := r.List(ctx, indexes, client.InNamespace(pool.Namespace)); err != nil {
		return nil, err
	}
	var authorities []*pki.Authority // of the pods in all
	for i := range indexes.Items {
		index := &indexes.Items[i]
		if !build.UsesMemoryPool(index, pool.Name) {
			continue
		}
		a, err := authority.Read(ctx, &r.Base, index)
		if err != nil {
			return nil, err
		}
		pods := &corev1.PodList{}
		err = r.List(ctx, pods, client.InNamespace(pool.Namespace), client.MatchingLabels{
			dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelIndex: index.Name, dmv1.LabelComponent: dmv1.ComponentCompute,
		})
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			all, authorities = append(all, authority.Trust{Pod: &pods.Items[i]}), append(authorities, a)
		}
	}
	servers.Each(len(all), func(i int) {
		p, a := all[i].Pod, authorities[i]
		if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning || a == nil {
			return
		}
		server, err := r.Dialer.Compute(servers.TargetOf(p, config.PortRPC, a))
		if err != nil {
			return
		}
		defer server.Close()
		d, err := server.Describe(ctx)
		all[i] = authority.TrustOf(p, err == nil, d)
	})
	return all, nil
}
