package index

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/pkg/autoscale"
	"github.com/dmindex/dmindex/pkg/partition"
)

// watched is how often the load of an index is looked at whose compute servers follow from it.
const watched = 5 * time.Second

// How patient autoscaling is unless told otherwise.
const (
	scaleUpWindow   = 0
	scaleDownWindow = 300 // seconds
)

// autoscalerOwner is the field manager that sets the replicas of pools with autoscaling.
const autoscalerOwner = client.FieldOwner("dmindex-autoscaler")

// loadOf is what a compute server said of its load; nil if it did not.
func loadOf(d *rpcv1.DescribeComputeReply) *partition.Load {
	if d.GetLoad() == nil {
		return nil
	}
	l := &partition.Load{Rate: d.Load.OperationsPerSecond}
	for _, k := range d.Load.Keys {
		l.Keys = append(l.Keys, partition.KeyLoad{Key: k.Key, Rate: k.OperationsPerSecond})
	}
	return l
}

// rebalanceOf is when load is a reason to move ranges of an index.
func rebalanceOf(spec dmv1.RebalanceSpec) partition.Rebalance {
	if spec.Policy == dmv1.RebalanceNever {
		return partition.Rebalance{}
	}
	return partition.Rebalance{MaxShare: int(spec.MaxLoadPercent), MinInterval: time.Duration(spec.MinIntervalSeconds) * time.Second}
}

// autoscaleOf is what a compute pool asks for; false if its replicas are somebody else's.
func autoscaleOf(spec *dmv1.ComputeServers) (s autoscale.Spec, ok bool) {
	a := spec.Autoscaling
	if a == nil || spec.MaxReplicas == nil {
		return s, false
	}
	s = autoscale.Spec{Min: 1, Max: int(*spec.MaxReplicas), Up: window(a.ScaleUp, scaleUpWindow), Down: window(a.ScaleDown, scaleDownWindow)}
	if spec.MinReplicas != nil {
		s.Min = int(*spec.MinReplicas)
	}
	if a.OperationsPerSecond != nil {
		s.OperationsPerSecond = float64(*a.OperationsPerSecond)
	}
	if a.CacheMissPercent != nil {
		s.CacheMisses = float64(*a.CacheMissPercent)
	}
	return s, true
}

func window(w dmv1.ScalingWindow, otherwise int32) time.Duration {
	if w.StabilizationWindowSeconds != nil {
		otherwise = *w.StabilizationWindowSeconds
	}
	return time.Duration(otherwise) * time.Second
}

// scaleCompute sets the replicas of the compute pools that ask for it.
func (r *Reconciler) scaleCompute(ctx context.Context, s *scope) error {
	was := r.remembered.get(s.index.UID)
	now := memory{maps: was.maps, pools: map[string]autoscale.Memory{}, doubts: was.doubts}
	defer func() { r.remembered.put(s.index.UID, now) }()
	for _, pool := range s.computePools {
		spec, ok := autoscaleOf(&pool.Spec.ComputeServers)
		if !ok || pool.Spec.Paused {
			continue
		}
		s.watch = min(cmp.Or(s.watch, watched), watched)
		o := s.observePool(pool)
		o.Now = r.remembered.at(r.Now())
		n, reason, next := autoscale.Decide(spec, o, was.pools[pool.Name])
		now.pools[pool.Name] = next
		if n == o.Replicas {
			continue
		}
		base := pool.DeepCopy()
		pool = pool.DeepCopy() // it is the cache's
		pool.Spec.Replicas = int32(n)
		if err := r.Patch(ctx, pool, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), autoscalerOwner); err != nil {
			return err
		}
		logf.FromContext(ctx).Info("scale compute pool", "pool", pool.Name, "from", o.Replicas, "to", n, "reason", reason)
		for _, object := range []client.Object{s.index, pool} {
			r.Events.Eventf(object, nil, corev1.EventTypeNormal, dmv1.ReasonAutoscaled, "Scale", "compute pool %s: %d -> %d servers: %s", pool.Name, o.Replicas, n, reason)
		}
	}
	return nil
}

// observePool is what autoscaling looks at. Servers that leave count with what they do still.
func (s *scope) observePool(pool *dmv1.DMComputePool) autoscale.Observed {
	o := autoscale.Observed{Replicas: int(pool.Spec.Replicas)}
	staying, readyCount, leave, hits := 0, 0, 0, 0.0
	for i := range s.compute {
		c := &s.compute[i]
		if c.pool != pool.Name || podstate.Going(c.pod) || podstate.Ended(c.pod) {
			continue
		}
		is, _ := podstate.Ready(c.pod)
		if podstate.Leaving(c.pod) {
			leave++
		} else if staying++; is {
			readyCount++
		}
		if c.described == nil || c.described.Load == nil || c.described.Index != decision.Identity(s.index) {
			continue
		}
		if !podstate.Leaving(c.pod) {
			o.Said++
		}
		o.Rate += c.described.Load.OperationsPerSecond
		hits += c.described.Load.OperationsPerSecond * c.described.Load.HitRatio
	}
	if o.Rate > 0 {
		o.Misses = 1 - min(1, hits/o.Rate)
	}
	o.Settled = staying == o.Replicas && readyCount == staying && leave == 0 && s.waiting == "" && s.view.Map != nil && len(s.view.Map.Planned) == 0
	return o
}
