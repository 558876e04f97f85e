package index

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/partition"
)

// scope is what was gathered about one index. The steps fill it in, and the status is made of
// it.
type scope struct {
	index     *dmv1.DMIndex
	authority *pki.Authority

	memoryPools []memoryPool
	verdict     memoryVerdict
	joining     []memoryServer // that join the index, and are not in verdict
	candidates  []memoryServer // that may join it
	joins       string         // what servers that join wait for

	computePools []*dmv1.DMComputePool
	rewritten    []string // compute pools whose specification was written just now
	compute      []computeServer
	computeSeen  bool // compute has all pods of the pools that there are
	view         partition.View
	waiting      string        // for what, while the index is served
	watch        time.Duration // when load is looked at again, at the latest; 0 = it need not be
	mapAge       time.Duration // for how long the partition map has been what it is
	moved        bool          // the partition map was changed in this look
	gathered     time.Time     // when the servers were asked what they are
	earlier      string        // waiting, before the keys were divided
	following    bool          // the next stage of a change is waited for at the home
	short        *shortage

	passwordWaits bool      // a new password waits for compute servers to read it
	passwordEnds  time.Time // when a former password ends; zero = none does

	authorityEnds time.Time // when to look at the replacement of the authority again; zero = never

	doubted []memoryServer // that seem to be lost, and may not be

	problems outcome.List // of the step that is done, which could do the rest of its work

	clients map[uint32]string // of the memory servers, to the names of their pods

	unfenced string // clients that are still to be fenced, and where

	fencePending string // which keys wait for a fence at which memory server
	poolFull     string // which keys wait for memory
}

// memoryPool is a memory pool with its servers.
type memoryPool struct {
	spec      dmv1.IndexMemoryPool
	pool      *dmv1.DMMemoryPool // nil = there is none
	authority *pki.Authority     // nil = not yet
	record    volume.Record
	pods      []*corev1.Pod                      // that answer for a volume
	elsewhere volume.IDs                         // volumes with another copy, or a disk
	described map[int]*rpcv1.DescribeMemoryReply // by volume, as problems
	problems  map[int]string                     // of servers that cannot start
}

// gatherServers looks which pods of the pool answer for its volumes.
func (m *memoryPool) gatherServers(ctx context.Context, from client.Reader) (err error) {
	pods, err := podstate.List(ctx, from, m.pool, dmv1.ComponentMemory)
	if err != nil {
		return err
	}
	if m.record, err = volume.RecordOf(m.pool); err != nil {
		return err
	}
	claims, err := volume.ListDisks(ctx, from, m.pool)
	if err != nil {
		return err
	}
	m.pods, m.elsewhere = m.record.Answering(pods, claims)
	for id, c := range claims {
		volume := m.record.VolumeOn(id, c)
		if _, recorded := m.record.Views[volume]; volume >= 0 && (!recorded || m.record.Names(volume, string(c.UID))) {
			m.elsewhere[volume] = true
		}
	}
	return nil
}

// observe are the volumes of the pool as they are seen now, where the pool has a place among those
// of an index. A volume of which another pod has a copy is not lost with the pod that answers.
func (m *memoryPool) observe(ordinal int) (observed []memoryObserved) {
	for _, pod := range m.pods {
		volume := podstate.VolumeOf(pod)
		o := memoryObserved{id: build.MemoryServerID(ordinal, volume), pod: pod.Name, gone: (podstate.Going(pod) || podstate.Ended(pod)) && !m.elsewhere[volume]}
		if d := m.described[volume]; d != nil {
			o.answered, o.incarnation = true, d.Incarnation
		}
		observed = append(observed, o)
	}
	for _, volume := range m.missing() {
		observed = append(observed, memoryObserved{id: build.MemoryServerID(ordinal, volume), pod: m.record.PodOf(m.pool.Name, volume)})
	}
	return observed
}

// missing are the volumes that no pod answers for at present, although one has a copy.
func (m *memoryPool) missing() (volumes []int) {
	for volume := range m.elsewhere {
		if !slices.ContainsFunc(m.pods, func(p *corev1.Pod) bool { return podstate.VolumeOf(p) == volume }) {
			volumes = append(volumes, volume)
		}
	}
	slices.Sort(volumes)
	return volumes
}

// computeServer is a compute pod and what it said.
type computeServer struct {
	pod       *corev1.Pod
	pool      string
	ordinal   int
	described *rpcv1.DescribeComputeReply // nil = it did not answer
	problem   string                      // it cannot start on its node
}

func (c *computeServer) id() uint32 { return build.ComputeServerID(c.ordinal, podstate.ID(c.pod)) }

// keyType is the index's type of keys as partition maps have it.
func keyType(index *dmv1.DMIndex) partition.KeyType { return partition.KeyType(index.Spec.Key.Type) }
