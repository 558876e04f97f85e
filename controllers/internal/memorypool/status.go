package memorypool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// Summarize writes into the status of a pool what its pods and an outcome say, where no
// more is known of it.
func Summarize(pool *dmv1.DMMemoryPool, pods []*corev1.Pod, err error) {
	(&scope{pool: pool, pods: pods}).summarize(err)
}

// summarize writes what was found into the pool's status.
func (s *scope) summarize(err error) {
	status, generation := &s.pool.Status, s.pool.Generation
	status.Image = s.image
	answering := s.account()
	status.Ready = fmt.Sprintf("%d/%d", answering, s.pool.Spec.Servers)

	all := answering >= int(s.pool.Spec.Servers)
	reason, message := outcome.Explain(err)
	switch {
	case err != nil:
	case all && s.imageProblem() != "":
		reason, message = dmv1.ReasonImageUnavailable, s.imageProblem()
	case all && s.outdated() > 0 && !s.pool.Spec.Paused:
		reason, message = dmv1.ReasonReplacing, fmt.Sprintf("%d of %d servers run another image than %s, which they get one after the other", s.outdated(), len(s.pods), s.image)
	case all && s.oldTemplates() > 0:
		reason, message = s.keepOldTemplates(reason)
	case all:
		message = fmt.Sprintf("all %d memory servers answer", answering)
	default:
		reason = dmv1.ReasonServersStarting
		message = fmt.Sprintf("%d of %d memory servers answer", answering, s.pool.Spec.Servers)
		for _, p := range s.troublesOfPods() {
			if reason == dmv1.ReasonServersStarting {
				reason = p.reason
			}
			message += "; " + p.message
		}
	}
	if grave := s.troublesOfDisks(); len(grave) > 0 && (all || err != nil) {
		// Other troubles, or that all servers answer for now, come second.
		reason, message = grave[0].reason, grave[0].message+"; "+message
	}
	report.SetCondition(&status.Conditions, generation, dmv1.ConditionPoolReady, all, reason, message)
	report.SetPaused(&status.Conditions, generation, s.pool.Spec.Paused)
	s.protectedCondition()
	s.showVolumes()
	if err == nil {
		status.ObservedGeneration = generation
	}
}

// poolProblem is why a memory pool is not as it should be.
type poolProblem struct{ reason, message string }

// troublesOfDisks are those of persistent memory that only people can end, the gravest first.
func (s *scope) troublesOfDisks() []poolProblem {
	return slices.DeleteFunc([]poolProblem{
		{dmv1.ReasonDiskMayLack, s.lossProblem()},
		{dmv1.ReasonClaimMissing, s.claimProblem()},
	}, func(p poolProblem) bool { return p.message == "" })
}

// troublesOfPods are what keeps servers of the pool from answering, the gravest first: a condition
// has one reason, and names the others behind it.
func (s *scope) troublesOfPods() []poolProblem {
	all := append(s.troublesOfDisks(),
		poolProblem{dmv1.ReasonNodeUnfit, strings.TrimPrefix(podstate.UnfitPods(s.pods, s.problems), "; ")},
		poolProblem{dmv1.ReasonImageUnavailable, s.imageProblem()})
	if reason, message := podstate.Trouble(s.pods); reason != dmv1.ReasonImageUnavailable {
		all = append(all, poolProblem{reason, message})
	}
	return slices.DeleteFunc(all, func(p poolProblem) bool { return p.message == "" })
}

// account writes down what the servers have, what they granted and to whom, and returns how many
// answer.
func (s *scope) account() (answering int) {
	status := &s.pool.Status
	status.Servers = nil
	var capacity, granted, used, chip, chipGranted uint64
	grants := map[string]*dmv1.MemoryGrant{}
	for _, p := range s.answering {
		if podstate.Going(p) {
			continue
		}
		state := dmv1.MemoryServerState{Pod: p.Name, Node: p.Spec.NodeName, Claim: s.claimOf(p), Problem: report.Cut(s.problems[podstate.VolumeOf(p)], 1024), KeptFor: s.keeps(p)}
		if s.isMoved(p) {
			state.KeptFor = nil // a drain shall try again: its refusal by the budget says so
		}
		state.KeptFor = state.KeptFor[:min(len(state.KeptFor), dmv1.MaxShownKeptFor)]
		if d := s.described[podstate.VolumeOf(p)]; d != nil {
			answering++
			s.serverState(&state, d, grants)
			capacity += d.ChunksTotal * d.ChunkBytes
			granted += d.ChunksGranted * d.ChunkBytes
			used += d.ChunksUsed * d.ChunkBytes
			chip += d.OnChipBytes
			chipGranted += 2 * uint64(state.OnChipLocksGranted)
		}
		status.Servers = append(status.Servers, state)
	}
	status.Capacity, status.Granted, status.Used = size(capacity), size(granted), size(used)
	status.Free = size(capacity - min(capacity, granted))
	status.OnChip = ""
	if chip > 0 {
		status.OnChip = size(chipGranted) + "/" + size(chip)
	}
	status.Grants = nil
	for _, identity := range slices.Sorted(maps.Keys(grants)) {
		if len(status.Grants) < dmv1.MaxShownGrants && len(identity) <= dmv1.MaxShownIdentity {
			status.Grants = append(status.Grants, *grants[identity])
		}
	}
	return answering
}

// serverState fills in what a server said, and adds what it granted.
func (s *scope) serverState(state *dmv1.MemoryServerState, d *rpcv1.DescribeMemoryReply, grants map[string]*dmv1.MemoryGrant) {
	state.Ready = true
	state.Incarnation = strconv.FormatUint(d.Incarnation, 16)
	state.Chunks, state.ChunksGranted, state.ChunksUsed = int64(d.ChunksTotal), int64(d.ChunksGranted), int64(d.ChunksUsed)
	state.Locks, state.LocksGranted, state.OnChipLocks = int64(d.LocksTotal), int64(d.LocksGranted), int64(d.OnChipBytes/2)
	for _, t := range d.Transports {
		state.Device = cmp.Or(state.Device, report.Cut(t.Device, report.LongestDevice))
	}
	for _, use := range d.Indexes {
		g := grants[use.Index]
		if g == nil {
			g = &dmv1.MemoryGrant{Index: s.indexNames[objectOf(use.Index)], Identity: use.Index}
			grants[use.Index] = g
		}
		g.Servers++
		g.Chunks += int64(use.QuotaChunks)
		g.ChunksUsed += int64(use.UsedChunks)
		g.Locks += int64(use.Locks)
		g.OnChipLocks += int64(use.OnChipLocks)
		state.OnChipLocksGranted += int64(use.OnChipLocks)
	}
}

// objectOf is the UID of the object that an identity is of.
func objectOf(identity string) string {
	uid, _, _ := strings.Cut(identity, "/")
	return uid
}

func size(bytes uint64) string { return resource.NewQuantity(int64(bytes), resource.BinarySI).String() }

// withFigures is a status with the figures of an earlier one.
func withFigures(status, before *dmv1.DMMemoryPoolStatus) *dmv1.DMMemoryPoolStatus {
	held := status.DeepCopy()
	held.Used = before.Used
	for i := range held.Servers {
		if m := &held.Servers[i]; i < len(before.Servers) && before.Servers[i].Pod == m.Pod {
			m.ChunksUsed = before.Servers[i].ChunksUsed
		}
	}
	for i := range held.Volumes {
		if v := &held.Volumes[i]; i < len(before.Volumes) && before.Volumes[i].ID == v.ID && before.Volumes[i].Percent > 0 && v.Percent > 0 {
			v.Percent = before.Volumes[i].Percent
		}
	}
	for i := range held.Grants {
		if g := &held.Grants[i]; i < len(before.Grants) && before.Grants[i].Identity == g.Identity {
			g.ChunksUsed = before.Grants[i].ChunksUsed
		}
	}
	return held
}
