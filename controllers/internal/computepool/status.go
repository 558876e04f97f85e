package computepool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// Summarize writes into the status of a pool what its pods and an outcome say, where no more
// is known of it.
func Summarize(pool *dmv1.DMComputePool, pods []*corev1.Pod, err error) {
	(&scope{pool: pool, pods: pods}).summarize(err)
}

// summarize writes what was found into the pool's status.
func (s *scope) summarize(err error) {
	status, generation := &s.pool.Status, s.pool.Generation
	status.Image = s.image
	status.Replicas, status.ReadyReplicas, status.Leaving = 0, 0, 0
	for _, p := range s.pods {
		is, _ := podstate.Ready(p)
		switch {
		case podstate.Going(p), podstate.Ended(p):
		case podstate.Leaving(p):
			status.Leaving++
		default:
			status.Replicas++
			if is {
				status.ReadyReplicas++
			}
		}
	}
	status.Selector = labels.SelectorFromSet(labels.Set{dmv1.LabelComponent: dmv1.ComponentCompute, dmv1.LabelPool: s.pool.Name}).String()

	all := status.ReadyReplicas >= s.pool.Spec.Replicas
	reason, message := outcome.Explain(err)
	switch {
	case err != nil:
	case all && s.outdated() > 0 && podstate.ImageProblem(s.pods...) != "":
		reason, message = dmv1.ReasonImageUnavailable, podstate.ImageProblem(s.pods...)
	case all && status.Leaving > 0:
		reason, message = dmv1.ReasonReplacing, fmt.Sprintf("%d servers are leaving", status.Leaving)
	case all && s.outdated() > 0:
		reason, message = dmv1.ReasonReplacing, fmt.Sprintf("%d servers run an old template and will be replaced", s.outdated())
	case all:
		message = fmt.Sprintf("all %d compute servers are ready", status.ReadyReplicas)
	default:
		reason = dmv1.ReasonServersStarting
		message = fmt.Sprintf("%d of %d compute servers are ready", status.ReadyReplicas, s.pool.Spec.Replicas)
		if problems := s.problems(); len(problems) > 0 {
			reason, message = dmv1.ReasonNodeUnfit, message+podstate.UnfitPods(s.pods, problems)
		} else if r, why := podstate.Trouble(s.pods); why != "" {
			reason, message = r, message+"; "+why
		}
	}
	report.SetCondition(&status.Conditions, generation, dmv1.ConditionPoolReady, all, reason, message)
	report.SetPaused(&status.Conditions, generation, s.pool.Spec.Paused)
	if err == nil {
		status.ObservedGeneration = generation
	}
}

// outdated is how many servers that are to go on have another template than the pool.
func (s *scope) outdated() (n int) {
	for _, p := range s.pods {
		if s.template != "" && !podstate.Going(p) && !podstate.Ended(p) && !podstate.Leaving(p) && p.Annotations[dmv1.AnnotationTemplate] != s.template {
			n++
		}
	}
	return n
}

// problems are what keeps compute servers of the pool from starting on their nodes, as the index
// found it.
func (s *scope) problems() map[int]string {
	if s.index == nil {
		return nil
	}
	found := map[int]string{}
	for _, p := range s.pods {
		for i := range s.index.Status.ComputeServers {
			if c := &s.index.Status.ComputeServers[i]; c.Pod == p.Name && c.Problem != "" && !podstate.Going(p) {
				found[podstate.ID(p)] = c.Problem
			}
		}
	}
	return found
}
