package memorypool

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// authorityGrace is the grace of authorities of memory pools, which no program knows.
const authorityGrace = 10 * time.Minute

// keepAuthority replaces the authority of a memory pool when that is asked for, or before it
// ends (authority.Keep). It signs the certificates of the memory servers, and the compute servers
// of all indexes on the pool trust it, too.
func (r *Reconciler) keepAuthority(ctx context.Context, s *scope) (err error) {
	if s.pool.Spec.Paused {
		return nil
	}
	compute := func() ([]authority.Trust, error) { return r.computeTrust(ctx, s.pool) }
	s.authorityAgain, err = authority.Keep(ctx, &r.Base, s.pool, authority.View{Grace: authorityGrace}, append(authority.TrustOfMemory(s.answering, s.described), s.trustOfCopies()...), compute, nil)
	return err
}

// trustOfCopies is what pods say that have a part in a view and do not answer for their volume:
// they show their certificates to each other.
func (s *scope) trustOfCopies() (all []authority.Trust) {
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

// computeTrust asks the compute servers of all indexes on a memory pool.
func (r *Reconciler) computeTrust(ctx context.Context, pool *dmv1.DMMemoryPool) (all []authority.Trust, err error) {
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

// security makes the pool's authority and the TLS Secret of its servers. The pool's authority
// speaks to them for the operator, the authority of an index on the pool for that index alone.
func (r *Reconciler) security(ctx context.Context, s *scope) (tls string, err error) {
	if s.authority, err = authority.Ensure(ctx, &r.Base, s.pool, map[string]string{dmv1.LabelPool: s.pool.Name}); err != nil {
		return "", err
	}
	indexes := &dmv1.DMIndexList{}
	if err := r.List(ctx, indexes, client.InNamespace(s.pool.Namespace)); err != nil {
		return "", err
	}
	trusted := build.PoolSpeaks(s.pool, s.authority, s.hasCopies())
	var overTLS []*dmv1.DMIndex
	for i := range indexes.Items {
		index := &indexes.Items[i]
		if !build.UsesMemoryPool(index, s.pool.Name) {
			continue
		}
		a, err := authority.Read(ctx, &r.Base, index)
		if err != nil {
			return "", err
		}
		switch {
		case a != nil:
			trusted = append(trusted, build.IndexSpeaks(index, a)...)
			all, err := r.allOverTLS(ctx, index)
			if err != nil {
				return "", err
			}
			if all {
				overTLS = append(overTLS, index)
			}
		case metav1.IsControlledBy(s.pool, index):
			return "", outcome.WaitFor(dmv1.ReasonWaitingForIndex, "the certificate authority of index "+index.Name+" does not exist yet", 0)
		}
	}
	return authority.ServerTLS(ctx, &r.Base, s.pool, dmv1.ComponentMemory, s.authority, build.MemoryLeaf(s.pool, s.hasCopies()), trusted, func(secret, before *corev1.Secret) error {
		build.RequireTLS(secret, overTLS)
		return build.Settle(secret, before, s.pool.Spec.Paused, build.MemorySettings(s.pool))
	})
}

// allOverTLS reports whether connections to the fabric in the clear can be refused to an index: it
// has fabricTLS, and all of its compute pods, those that are leaving included, know it.
func (r *Reconciler) allOverTLS(ctx context.Context, index *dmv1.DMIndex) (bool, error) {
	if !index.Spec.Security.FabricTLS {
		return false, nil
	}
	pods := &corev1.PodList{}
	err := r.List(ctx, pods, client.InNamespace(index.Namespace),
		client.MatchingLabels{dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelIndex: index.Name, dmv1.LabelComponent: dmv1.ComponentCompute})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !build.OverTLS(&p) }), nil
}
