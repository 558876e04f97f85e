package controllers

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// summarize writes what was found into the pool's status.
func (s *memoryPoolScope) summarize(err error) {
	status, generation := &s.pool.Status, s.pool.Generation
	status.Image = s.image
	status.Servers = nil
	var answering int
	var capacity, granted uint64
	for _, p := range s.pods {
		if going(p) {
			continue
		}
		state := dmv1.MemoryServerState{Pod: p.Name, Node: p.Spec.NodeName}
		if d := s.described[podID(p)]; d != nil {
			answering++
			state.Ready = true
			state.Incarnation = strconv.FormatUint(d.Incarnation, 16)
			state.Chunks, state.ChunksGranted = int64(d.ChunksTotal), int64(d.ChunksGranted)
			capacity += d.ChunksTotal * d.ChunkBytes
			granted += d.ChunksGranted * d.ChunkBytes
		}
		status.Servers = append(status.Servers, state)
	}
	status.Ready = fmt.Sprintf("%d/%d", answering, s.pool.Spec.Servers)
	status.Capacity = resource.NewQuantity(int64(capacity), resource.BinarySI).String()
	status.Granted = resource.NewQuantity(int64(granted), resource.BinarySI).String()

	all := answering >= int(s.pool.Spec.Servers)
	reason, message := explain(err)
	switch {
	case err != nil:
	case all:
		message = fmt.Sprintf("all %d memory servers answer", answering)
	default:
		reason = dmv1.ReasonServersStarting
		message = fmt.Sprintf("%d of %d memory servers answer", answering, s.pool.Spec.Servers)
	}
	condition(&status.Conditions, generation, dmv1.ConditionPoolReady, all, reason, message)
	pausedCondition(&status.Conditions, generation, s.pool.Spec.Paused)
	if err == nil {
		status.ObservedGeneration = generation
	}
}
