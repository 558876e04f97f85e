package index

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/partition"
)

// summarize writes what was found into the index's status. err is the outcome of the steps.
func (s *scope) summarize(err error) {
	status := &s.index.Status
	status.Identity, status.Image = decision.Identity(s.index), decision.ImageOf(s.index)
	status.Endpoint = net.JoinHostPort(build.ServiceHost(s.index), strconv.Itoa(config.PortRESP))
	status.Durability = s.durability()
	before := status.MemoryServers
	status.MemoryServers = nil
	for _, m := range s.verdict.servers {
		status.MemoryServers = append(status.MemoryServers, s.memoryState(m, before))
	}
	for _, m := range s.joining {
		shown := m
		shown.state = dmv1.ServerJoining
		status.MemoryServers = append(status.MemoryServers, s.memoryState(shown, before))
	}
	wanted := len(s.verdict.servers)
	if !s.verdict.recorded {
		wanted = 0
		for _, p := range s.memoryPools {
			if p.pool != nil {
				wanted += int(p.pool.Spec.Servers)
			}
		}
	}
	status.MemoryReady = fmt.Sprintf("%d/%d", len(s.verdict.with(dmv1.ServerReady)), wanted)
	if s.view.Map != nil || err == nil {
		status.Map = mirror(s.view.Map, s.keys())
	}
	shown := status.ComputeServers
	status.ComputeServers = nil
	readyCount := 0
	for i := range s.compute {
		server := s.computeState(&s.compute[i], shown)
		if server.State == dmv1.ServerReady {
			readyCount++
		}
		status.ComputeServers = append(status.ComputeServers, server)
	}
	status.ComputeReady = fmt.Sprintf("%d/%d", readyCount, s.view.Desired)
	s.conditions(err, readyCount)
	for i := range status.Conditions {
		status.Conditions[i].Message = s.keys().text(status.Conditions[i].Message)
	}
	if err == nil {
		status.ObservedGeneration = s.index.Generation
	}
}

// conflicting reports whether it is not known what was decided about an index.
func conflicting(err error) bool {
	return slices.ContainsFunc(outcome.Flat(err), func(err error) bool {
		reason, _ := outcome.ExplainOne(err)
		return reason == dmv1.ReasonStateConflict
	})
}

// summarizeConflict writes into the index's status that nothing is done about it. What else it says
// stays, such as lost data: the servers were not looked at, and go on.
func (s *scope) summarizeConflict(err error) {
	conditions, generation := &s.index.Status.Conditions, s.index.Generation
	_, message := outcome.Explain(err)
	for _, kind := range []string{dmv1.ConditionProgressing, dmv1.ConditionDegraded} {
		report.SetCondition(conditions, generation, kind, true, dmv1.ReasonStateConflict, message)
	}
	if apimeta.FindStatusCondition(*conditions, dmv1.ConditionAvailable) == nil {
		report.SetCondition(conditions, generation, dmv1.ConditionAvailable, false, dmv1.ReasonStateConflict, message)
	}
}

// memoryState is a memory server as the status shows it.
func (s *scope) memoryState(m memoryServer, before []dmv1.IndexMemoryServer) dmv1.IndexMemoryServer {
	server := dmv1.IndexMemoryServer{ID: int32(m.id), Pod: m.pod, Incarnation: strconv.FormatUint(m.incarnation, 16), State: m.state}
	p, _, d := s.memoryPod(m)
	for _, was := range before {
		if d == nil && was.ID == server.ID && was.Incarnation == server.Incarnation {
			was.State = server.State
			return was // it does not answer: what it said last
		}
	}
	if p != nil && p.pool != nil {
		server.Transport = p.pool.Spec.Transport
	}
	for _, t := range d.GetTransports() {
		server.Device = cmp.Or(server.Device, report.Cut(t.Device, report.LongestDevice))
	}
	if use := useOf(d, decision.Identity(s.index)); use != nil {
		server.QuotaChunks, server.UsedChunks, server.Locks = int64(use.QuotaChunks), int64(use.UsedChunks), int64(use.Locks)
		server.LockPlacement = placement(use)
	}
	return server
}

// durability is what an acknowledged write survives now.
func (s *scope) durability() dmv1.Durability {
	if s.index.Spec.Durability == dmv1.DurabilityReplicated && s.verdict.recorded && s.withoutCopy() == "" {
		return dmv1.DurabilityReplicated
	}
	if s.index.Spec.Durability == dmv1.DurabilityPersistent && s.verdict.recorded && s.withoutDisk() == "" {
		return dmv1.DurabilityPersistent
	}
	return dmv1.DurabilityMemory
}

// withoutDisk says which memory pools of the index keep nothing on disks; empty if all do.
func (s *scope) withoutDisk() string {
	var list []string
	for _, p := range s.memoryPools {
		if p.pool != nil && !volume.IsPersistent(p.pool) {
			list = append(list, p.pool.Name)
		}
	}
	return strings.Join(list, ", ")
}

// withoutCopy says which memory servers that hold the index have no copy that is in sync; empty if
// all have. It goes by the record of each pool.
func (s *scope) withoutCopy() string {
	var list []string
	for _, m := range s.verdict.servers {
		ordinal, volume := build.MemoryServerVolume(m.id)
		if ordinal >= len(s.memoryPools) || s.memoryPools[ordinal].record.Views[volume].Backup == nil {
			list = append(list, fmt.Sprintf("memory server %d (pod %s)", m.id, m.pod))
		}
	}
	return strings.Join(list, ", ")
}

// placement is where the locks of an index lie at a server.
func placement(use *rpcv1.IndexUse) dmv1.LockPlacement {
	switch {
	case use.OnChipLocks == 0:
		return dmv1.LocksInHost
	case use.OnChipLocks < use.Locks:
		return dmv1.LocksMixed
	}
	return dmv1.LocksOnChip
}

func (s *scope) computeState(c *computeServer, before []dmv1.IndexComputeServer) dmv1.IndexComputeServer {
	server := dmv1.IndexComputeServer{ID: int64(c.id()), Pod: c.pod.Name, State: dmv1.ServerStarting, Paths: c.paths(before), Problem: report.Cut(s.keys().text(c.problem), 1024)}
	is, _ := podstate.Ready(c.pod)
	if d := c.described; d != nil && (d.Index != decision.Identity(s.index) || d.DataLost != "") {
		is = false // its kubelet has not heard yet that it serves nothing
	}
	switch {
	case podstate.Going(c.pod), podstate.Ended(c.pod), podstate.Leaving(c.pod):
		server.State = dmv1.ServerLeaving
	case is:
		server.State = dmv1.ServerReady
	}
	if s.view.Map != nil {
		for _, r := range s.view.Map.Ranges {
			if r.Owner == c.id() {
				server.Ranges++
			}
		}
		if _, member := s.view.Map.Server(c.id()); member && server.State == dmv1.ServerStarting && c.described == nil {
			server.State = dmv1.ServerUnreachable
		}
	}
	return server
}

// conditions follow from what was found and how far the steps came.
func (s *scope) conditions(err error, computeReady int) {
	conditions, generation := &s.index.Status.Conditions, s.index.Generation
	reason, message := outcome.Explain(err)
	lost, away := s.verdict.with(dmv1.ServerLost), s.verdict.with(dmv1.ServerUnreachable)

	set := func(kind string, is bool, reason, message string) {
		report.SetCondition(conditions, generation, kind, is, reason, message)
	}
	isLost, loss := len(lost) > 0 && s.verdict.recorded, "data was lost at "+names(lost)
	if isLost {
		if reason == dmv1.ReasonMemoryLost {
			loss = message // which also says what can be done
		}
		set(dmv1.ConditionDataLost, true, dmv1.ReasonMemoryLost, loss)
	} else {
		set(dmv1.ConditionDataLost, false, dmv1.ReasonIntact, "")
	}
	paused, trouble := s.index.Spec.Paused, s.poolTrouble()
	// An index that serves goes on serving when the operator cannot do something.
	created := s.made()
	switch {
	case len(lost) > 0:
		set(dmv1.ConditionAvailable, false, dmv1.ReasonMemoryLost, cmp.Or(message, "data was lost at "+names(lost)))
	case len(away) > 0 && s.verdict.recorded:
		set(dmv1.ConditionAvailable, false, dmv1.ReasonMemoryUnreachable, "no answer from "+names(away)+"; requests that need it wait or fail")
	case decision.Loading(s.index) && created:
		set(dmv1.ConditionAvailable, false, dmv1.ReasonRestoring, "the index is not loaded from its backup yet: "+cmp.Or(message, "it is being made"))
	case err != nil && (!created || computeReady == 0):
		set(dmv1.ConditionAvailable, false, reason, message)
	case computeReady == 0 && s.unfitCompute() != "":
		set(dmv1.ConditionAvailable, false, dmv1.ReasonNodeUnfit, s.unfitCompute())
	case computeReady == 0 && trouble != nil:
		set(dmv1.ConditionAvailable, false, trouble.reason, trouble.message)
	case computeReady == 0 || s.index.Status.Map == nil:
		set(dmv1.ConditionAvailable, false, dmv1.ReasonWaitingForCompute, cmp.Or(s.waiting, "no compute server is ready"))
	default:
		set(dmv1.ConditionAvailable, true, dmv1.ReasonServing, fmt.Sprintf("%d compute servers answer at %s", computeReady, s.index.Status.Endpoint))
	}
	switch {
	case s.fencePending != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonFencePending, s.fencePending)
	case err != nil && !(paused && !created):
		set(dmv1.ConditionProgressing, true, reason, message)
	case paused && s.waiting == "" && s.unfenced == "":
		set(dmv1.ConditionProgressing, false, dmv1.ReasonPausedBySpec, "spec.paused is set")
	case s.unfitCompute() != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonNodeUnfit, s.unfitCompute())
	case s.short != nil:
		set(dmv1.ConditionProgressing, true, s.short.reason, s.short.message)
	case s.poolFull != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonPoolFull, s.poolFull)
	case trouble != nil:
		set(dmv1.ConditionProgressing, true, trouble.reason, trouble.message)
	case s.joins != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonMemoryJoining, s.joins)
	case s.waiting != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonMoving, s.waiting)
	case s.unfenced != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonFencing, "not done yet: "+s.unfenced)
	case computeReady < s.view.Desired:
		set(dmv1.ConditionProgressing, true, dmv1.ReasonWaitingForCompute, fmt.Sprintf("%d of %d compute servers are ready", computeReady, s.view.Desired))
	case s.replacing() != "":
		set(dmv1.ConditionProgressing, true, dmv1.ReasonReplacing, s.replacing())
	default:
		set(dmv1.ConditionProgressing, false, dmv1.ReasonAsDesired, "")
	}
	switch {
	case isLost:
		set(dmv1.ConditionDegraded, true, dmv1.ReasonMemoryLost, loss)
	case len(away) > 0 && s.verdict.recorded:
		set(dmv1.ConditionDegraded, true, dmv1.ReasonMemoryUnreachable, "no answer from "+names(away))
	case s.fencePending != "":
		set(dmv1.ConditionDegraded, true, dmv1.ReasonFencePending, strings.TrimSuffix(s.fencePending+"; "+s.poolFull, "; "))
	case s.poolFull != "":
		set(dmv1.ConditionDegraded, true, dmv1.ReasonPoolFull, s.poolFull)
	case err != nil && (created || troubles[reason]) && reason != dmv1.ReasonMemoryLost:
		set(dmv1.ConditionDegraded, true, reason, message)
	case s.short != nil:
		set(dmv1.ConditionDegraded, true, s.short.reason, s.short.message)
	case trouble != nil:
		set(dmv1.ConditionDegraded, true, trouble.reason, trouble.message)
	case s.index.Spec.Durability == dmv1.DurabilityReplicated && created && s.withoutCopy() != "":
		set(dmv1.ConditionDegraded, true, dmv1.ReasonCopyMissing, "durability is Replicated, and there is no copy in sync of "+s.withoutCopy()+": the conditions of the memory pools say why")
	case s.index.Spec.Durability == dmv1.DurabilityPersistent && created && s.withoutDisk() != "":
		set(dmv1.ConditionDegraded, true, dmv1.ReasonNotPersistent, "durability is Persistent, and these memory pools have no persistence: "+s.withoutDisk()+": write another durability, or restore a dump into a new index on other pools")
	case s.view.Map != nil && computeReady < s.view.Desired:
		set(dmv1.ConditionDegraded, true, dmv1.ReasonComputeMissing, fmt.Sprintf("%d of %d compute servers are ready", computeReady, s.view.Desired))
	default:
		set(dmv1.ConditionDegraded, false, dmv1.ReasonAsDesired, "")
	}
	report.SetPaused(conditions, generation, paused)
}

// mirror is the part of a partition map that the status shows.
func mirror(m *partition.Map, names *keyNames) *dmv1.PartitionMap {
	if m == nil {
		return nil
	}
	shown := &dmv1.PartitionMap{Generation: int64(m.Generation), RangeCount: int32(len(m.Ranges)), Moving: int32(len(m.Planned))}
	for i, r := range m.Ranges {
		if i == dmv1.MaxMirroredRanges {
			break
		}
		owner, _ := m.Server(r.Owner)
		at := dmv1.PartitionRange{Owner: owner.Name, Epoch: int64(r.Epoch)}
		names.start(&at, r.Start)
		shown.Ranges = append(shown.Ranges, at)
	}
	return shown
}

// withFigures is a status with the figures of an earlier one.
func withFigures(status, before *dmv1.DMIndexStatus) *dmv1.DMIndexStatus {
	held := status.DeepCopy()
	for i := range held.MemoryServers {
		if m := &held.MemoryServers[i]; i < len(before.MemoryServers) && before.MemoryServers[i].ID == m.ID {
			m.UsedChunks = before.MemoryServers[i].UsedChunks
		}
	}
	return held
}
