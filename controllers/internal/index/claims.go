package index

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/authority"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/pkg/grant"
)

// grantServer is a memory server that is decided upon.
type grantServer struct {
	pool      *memoryPool
	pod       *corev1.Pod
	described *rpcv1.DescribeMemoryReply
}

// decideGrants says what becomes of the index's claim, beside those of all others that were made on
// servers of its pools. An index joins the queue when its memory servers are chosen.
func (r *Reconciler) decideGrants(ctx context.Context, s *scope) (grant.Verdict, map[string]*grantServer, error) {
	list := &dmv1.DMIndexList{}
	if err := r.List(ctx, list, client.InNamespace(s.index.Namespace)); err != nil {
		return grant.Verdict{}, nil, err
	}
	pools := map[string]*memoryPool{}
	for i := range s.memoryPools {
		if p := &s.memoryPools[i]; p.pool != nil {
			pools[p.pool.Name] = p
		}
	}
	v, pods := decideAmong(s.index, list.Items, pools)
	kept := false
	for _, m := range v.Missing {
		kept = kept || m.Kept > 0
	}
	if !kept {
		return v, pods, nil
	}
	// Somebody older goes first. Perhaps it cannot have what it asks for elsewhere.
	var found []*memoryPool
	for i := range list.Items {
		if other := &list.Items[i]; other.UID != s.index.UID && sharesPool(other, pools) {
			more, err := r.gatherPools(ctx, other, pools)
			if err != nil {
				return grant.Verdict{}, nil, err
			}
			found = append(found, more...)
		}
	}
	describePools(ctx, &r.Base, found...)
	v, pods = decideAmong(s.index, list.Items, pools)
	return v, pods, nil
}

// gatherPools adds those memory pools of an index that are not in pools yet, and returns them.
// Their servers are not asked yet.
func (r *Reconciler) gatherPools(ctx context.Context, index *dmv1.DMIndex, pools map[string]*memoryPool) (found []*memoryPool, err error) {
	for _, spec := range index.Spec.MemoryPools {
		name := build.MemoryPoolOf(index, spec)
		if pools[name] != nil {
			continue
		}
		p := &memoryPool{pool: &dmv1.DMMemoryPool{}}
		err := r.Get(ctx, types.NamespacedName{Namespace: index.Namespace, Name: name}, p.pool)
		if err == nil {
			if p.authority, err = authority.Read(ctx, &r.Base, p.pool); err != nil {
				return nil, err
			}
			if err := p.gatherServers(ctx, r); err != nil {
				return nil, err
			}
			found = append(found, p)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
		pools[name] = p
	}
	return found, nil
}

func sharesPool(index *dmv1.DMIndex, pools map[string]*memoryPool) bool {
	for name := range pools {
		if build.UsesMemoryPool(index, name) {
			return true
		}
	}
	return false
}

// decideAmong is what package grant says of index, where pools are what was looked at.
func decideAmong(index *dmv1.DMIndex, others []dmv1.DMIndex, pools map[string]*memoryPool) (grant.Verdict, map[string]*grantServer) {
	pods := map[string]*grantServer{}
	var all []grant.Server
	for _, p := range pools {
		for _, pod := range p.pods {
			d := p.described[podstate.VolumeOf(pod)]
			if d == nil || podstate.Going(pod) {
				continue
			}
			pods[pod.Name] = &grantServer{p, pod, d}
			all = append(all, serverOf(pod.Name, d))
		}
	}
	claims := []grant.Claim{claimOf(index, pools, pods)}
	for i := range others {
		if o := &others[i]; o.UID != index.UID {
			claims = append(claims, claimOf(o, pools, pods))
		}
	}
	for _, v := range grant.Decide(all, claims) {
		if v.Object == string(index.UID) {
			return v, pods
		}
	}
	return grant.Verdict{}, pods
}

// serverOf is a memory server as its answer says.
func serverOf(name string, d *rpcv1.DescribeMemoryReply) grant.Server {
	s := grant.Server{Name: name, Chunks: d.ChunksTotal, Locks: d.LocksTotal, OnChip: d.OnChipBytes / 2, Draining: d.Draining}
	for _, use := range d.Indexes {
		s.Held = append(s.Held, grant.Held{Identity: use.Index, Chunks: use.QuotaChunks, Used: use.UsedChunks, Locks: use.Locks, OnChip: use.OnChipLocks})
	}
	return s
}

// claimOf is what an index asks of the servers of pools that were looked at. Before its servers are
// chosen it asks for nothing.
func claimOf(index *dmv1.DMIndex, pools map[string]*memoryPool, pods map[string]*grantServer) grant.Claim {
	c := grant.Claim{
		Object: string(index.UID), Identity: decision.Identity(index), Name: index.Name, Since: index.CreationTimestamp.Unix(),
		Served: index.Annotations[dmv1.AnnotationCreated] != "", Leaving: !index.DeletionTimestamp.IsZero(), Idle: index.Spec.Paused,
	}
	recorded, err := decision.Memory(index)
	joined, err2 := decision.JoinedTo(index)
	c.Idle = c.Idle || err != nil || err2 != nil || recorded == nil
	asked := map[uint16]bool{} // of each server; whether it is to grant chunks
	for id := range recorded {
		asked[id] = true
	}
	for id, j := range joined {
		if j.State != decision.Left {
			asked[id] = j.State == decision.Member
		}
	}
	for id, chunks := range asked {
		ordinal, volume := build.MemoryServerVolume(id)
		if ordinal >= len(index.Spec.MemoryPools) {
			continue
		}
		spec := index.Spec.MemoryPools[ordinal]
		pool := build.MemoryPoolOf(index, spec)
		if pools[pool] == nil {
			continue
		}
		w := grant.Want{Server: pools[pool].record.PodOf(pool, volume)}
		if spec.Locks != nil {
			w.Locks = uint64(*spec.Locks)
		}
		if at := pods[w.Server]; at != nil && chunks {
			w.Chunks = quota(spec, at.described)
		}
		c.Wants = append(c.Wants, w)
	}
	slices.SortFunc(c.Wants, func(a, b grant.Want) int { return strings.Compare(a.Server, b.Server) })
	return c
}

// quota is how many chunks of a server an index may use.
func quota(spec dmv1.IndexMemoryPool, d *rpcv1.DescribeMemoryReply) uint64 {
	if spec.Quota == nil {
		return d.ChunksTotal
	}
	return uint64(spec.Quota.Value()) / max(1, d.ChunkBytes)
}
