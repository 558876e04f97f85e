package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/partition"
)

// indexScope is what was gathered about one index. The steps fill it in, and the status is made of
// it.
type indexScope struct {
	index     *dmv1.DMIndex
	authority *pki.Authority

	memoryPools []memoryPoolOfIndex
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

// memoryPoolOfIndex is a memory pool with its servers.
type memoryPoolOfIndex struct {
	spec      dmv1.IndexMemoryPool
	pool      *dmv1.DMMemoryPool // nil = there is none
	authority *pki.Authority     // nil = not yet
	record    volumeRecord
	pods      []*corev1.Pod                      // that answer for a volume
	elsewhere idSet                              // volumes with another copy, or a disk
	described map[int]*rpcv1.DescribeMemoryReply // by volume, as problems
	problems  map[int]string                     // of servers that cannot start
}

// gatherServers looks which pods of the pool answer for its volumes.
func (m *memoryPoolOfIndex) gatherServers(ctx context.Context, from client.Reader) (err error) {
	pods, err := listPods(ctx, from, m.pool, dmv1.ComponentMemory)
	if err != nil {
		return err
	}
	if m.record, err = recordOf(m.pool); err != nil {
		return err
	}
	claims, err := listClaims(ctx, from, m.pool)
	if err != nil {
		return err
	}
	m.pods, m.elsewhere = m.record.answering(pods, claims)
	for id, c := range claims {
		volume := m.record.volumeOn(id, c)
		if _, recorded := m.record.Views[volume]; volume >= 0 && (!recorded || m.record.names(volume, string(c.UID))) {
			m.elsewhere[volume] = true
		}
	}
	return nil
}

// observe are the volumes of the pool as they are seen now, where the pool has a place among those
// of an index. A volume of which another pod has a copy is not lost with the pod that answers.
func (m *memoryPoolOfIndex) observe(ordinal int) (observed []memoryObserved) {
	for _, pod := range m.pods {
		volume := volumeOf(pod)
		o := memoryObserved{id: build.MemoryServerID(ordinal, volume), pod: pod.Name, gone: (going(pod) || ended(pod)) && !m.elsewhere[volume]}
		if d := m.described[volume]; d != nil {
			o.answered, o.incarnation = true, d.Incarnation
		}
		observed = append(observed, o)
	}
	for _, volume := range m.missing() {
		observed = append(observed, memoryObserved{id: build.MemoryServerID(ordinal, volume), pod: m.record.podOf(m.pool.Name, volume)})
	}
	return observed
}

// missing are the volumes that no pod answers for at present, although one has a copy.
func (m *memoryPoolOfIndex) missing() (volumes []int) {
	for volume := range m.elsewhere {
		if !slices.ContainsFunc(m.pods, func(p *corev1.Pod) bool { return volumeOf(p) == volume }) {
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

func (c *computeServer) id() uint32 { return build.ComputeServerID(c.ordinal, podID(c.pod)) }

// identityOf is the name under which memory servers know an index.
func identityOf(index *dmv1.DMIndex) string {
	if n := index.Annotations[dmv1.AnnotationIndexIncarnation]; n != "" {
		return string(index.UID) + "/" + n
	}
	return string(index.UID)
}

// nextIncarnation is what the annotation says after the index is made anew.
func nextIncarnation(index *dmv1.DMIndex) string {
	n, err := strconv.Atoi(index.Annotations[dmv1.AnnotationIndexIncarnation])
	if err != nil {
		n = 0
	}
	return strconv.Itoa(n + 1)
}

// imageFor is the image of the index's servers in pools of a transport; empty before one was
// pinned.
func imageFor(index *dmv1.DMIndex, t dmv1.Transport) string {
	if t == dmv1.TransportRDMA && index.Spec.Image == "" {
		return index.Annotations[dmv1.AnnotationImageRDMA]
	}
	return imageOf(index)
}

// imageOf is the image that an index's servers run; empty before one was pinned.
func imageOf(index *dmv1.DMIndex) string {
	if index.Spec.Image != "" {
		return index.Spec.Image
	}
	return index.Annotations[dmv1.AnnotationImage]
}

// recordedMemory are the memory servers on which the index was made, id to incarnation; nil before
// it was made.
func recordedMemory(index *dmv1.DMIndex) (map[uint16]uint64, error) {
	text := index.Annotations[dmv1.AnnotationMemory]
	if text == "" {
		return nil, nil
	}
	var recorded map[uint16]uint64
	if err := json.Unmarshal([]byte(text), &recorded); err != nil || len(recorded) == 0 {
		return nil, fmt.Errorf("annotation %s of index %s cannot be read (%w): put it back as it was, or delete the index", dmv1.AnnotationMemory, index.Name, err)
	}
	return recorded, nil
}

// joinedMemory is a memory server that joined the index, as its annotation has it.
type joinedMemory struct {
	Incarnation uint64    `json:"incarnation"`
	State       joinState `json:"state"`
}

// joinState is how far a server is. The home has the state that counts; this one follows it.
type joinState string

const (
	isJoining joinState = "Joining" // nothing of the index lies there
	isMember  joinState = "Member"  // it is as those on which the index was made
	hasLeft   joinState = "Left"    // it never held anything, and does not join again
)

// joinedTo are the memory servers that joined an index since it was made.
func joinedTo(index *dmv1.DMIndex) (map[uint16]joinedMemory, error) {
	text := index.Annotations[dmv1.AnnotationJoined]
	if text == "" {
		return nil, nil
	}
	var joined map[uint16]joinedMemory
	if err := json.Unmarshal([]byte(text), &joined); err != nil {
		return nil, fmt.Errorf("annotation %s of index %s cannot be read (%w): put it back as it was, or delete the index", dmv1.AnnotationJoined, index.Name, err)
	}
	return joined, nil
}

// knownMemory are the ids of all servers that an index was made on or that joined it, also of those
// that left.
func knownMemory(index *dmv1.DMIndex) (ids []uint16, err error) {
	recorded, err := recordedMemory(index)
	if err != nil {
		return nil, err
	}
	joined, err := joinedTo(index)
	if err != nil {
		return nil, err
	}
	return slices.AppendSeq(slices.Collect(maps.Keys(recorded)), maps.Keys(joined)), nil
}

// keyType is the index's type of keys as partition maps have it.
func keyType(index *dmv1.DMIndex) partition.KeyType { return partition.KeyType(index.Spec.Key.Type) }
