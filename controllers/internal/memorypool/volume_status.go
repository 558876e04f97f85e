package memorypool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// showVolumes writes what was found about the volumes that are not left as they are. A pool without
// such volumes has no condition of them.
func (s *scope) showVolumes() {
	status := &s.pool.Status
	if !s.volumesSeen {
		return // what was seen last stays
	}
	status.Volumes = nil
	var problems []volumeProblem
	for _, v := range s.volumes {
		if len(status.Volumes) < dmv1.MaxShownVolumes {
			status.Volumes = append(status.Volumes, v.status())
		}
		if reason, message := v.problem(); reason != "" {
			problems = append(problems, volumeProblem{reason, fmt.Sprintf("volume %d", v.number), message})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(podNamesIn(s.pool.Annotations[dmv1.AnnotationMove]))) {
		if !build.IsPodName(s.pool.Name, name) {
			problems = append(problems, volumeProblem{dmv1.ReasonCopyMissing, "annotation " + dmv1.AnnotationMove, fmt.Sprintf("no pod of the pool can have the name %s", name)})
		}
	}
	if len(s.volumes)+len(problems) == 0 {
		apimeta.RemoveStatusCondition(&status.Conditions, dmv1.ConditionDegraded)
		return
	}
	reason, message := worst(problems)
	report.SetCondition(&status.Conditions, s.pool.Generation, dmv1.ConditionDegraded, len(problems) > 0, cmp.Or(reason, dmv1.ReasonVolumesInSync), message)
}

// volumeProblem is why a volume, or an annotation about volumes, is not as it should be.
type volumeProblem struct{ reason, of, message string }

// worst is the gravest reason of problems, and what all of them say, the gravest first: a condition
// has one reason, and room for the first of many messages. A problem with another reason names it.
func worst(problems []volumeProblem) (reason, message string) {
	problems = slices.Clone(problems)
	slices.SortStableFunc(problems, func(a, b volumeProblem) int { return gravity[b.reason] - gravity[a.reason] })
	var said []string
	for _, p := range problems {
		reason = cmp.Or(reason, p.reason)
		if p.reason != reason {
			p.of += " (" + p.reason + ")"
		}
		said = append(said, p.of+": "+p.message)
	}
	return reason, strings.Join(said, "; ")
}

// gravity orders the reasons of volumes.
var gravity = map[string]int{dmv1.ReasonCopyMissing: 1, dmv1.ReasonNoNodeForCopy: 2, dmv1.ReasonDecisionPending: 3, dmv1.ReasonCopyMayLack: 4}

// status is the volume for people.
func (v *volumeScope) status() dmv1.VolumeStatus {
	shown := dmv1.VolumeStatus{ID: int32(v.number), View: int64(v.view.Number), Primary: v.view.Primary.Pod, State: dmv1.VolumeState(v.actions.Status), Message: report.Cut(v.withNames(v.actions.Waiting), 512)}
	if v.view.Backup != nil {
		shown.Backup = v.view.Backup.Pod
	}
	if v.joining() {
		shown.Percent = int32(v.reports[v.view.Primary.UID].Percent)
	}
	return shown
}

// problem is why a volume is not as it should be; empty if it is.
func (v *volumeScope) problem() (reason, message string) {
	message = v.withNames(v.actions.Waiting)
	for _, c := range v.copies {
		if said := v.reports[c.uid].Problem; said != "" {
			message += fmt.Sprintf("; pod %s: %s", c.name, said)
		}
	}
	message = strings.TrimPrefix(message, "; ")
	switch v.actions.Status {
	case volumes.InSync:
		return "", ""
	case volumes.Lost:
		if v.lastCopy() != nil {
			return dmv1.ReasonCopyMayLack, message
		}
		return dmv1.ReasonDecisionPending, message
	case volumes.Undecided, volumes.Conflict:
		return dmv1.ReasonDecisionPending, message
	}
	var waiting []*corev1.Pod
	for _, c := range v.copies {
		if c.uid != v.view.Primary.UID && c.pod != nil {
			waiting = append(waiting, c.pod)
		}
	}
	switch why, text := podstate.Trouble(waiting); {
	case why == dmv1.ReasonUnschedulable:
		return dmv1.ReasonNoNodeForCopy, text
	case why != "":
		return dmv1.ReasonCopyMissing, text
	case v.refused != "":
		return dmv1.ReasonCopyMissing, "no pod can be made for a copy: " + v.refused
	}
	return dmv1.ReasonCopyMissing, cmp.Or(message, "another pod is to serve: "+v.actions.Reason)
}

// withNames is a text of package volumes, which knows UIDs, with the names of pods.
func (v *volumeScope) withNames(text string) string {
	for _, c := range v.copies {
		text = strings.ReplaceAll(text, c.uid, c.name)
	}
	return text
}
