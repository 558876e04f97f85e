package build

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// spread puts the pods of a pool on different nodes as far as there are nodes, unless the template
// says otherwise.
func spread(pool, component string, given []corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	if len(given) > 0 {
		return given
	}
	return []corev1.TopologySpreadConstraint{spreadOver(corev1.LabelHostname, corev1.ScheduleAnyway, selector(pool, component))}
}

func spreadOver(label string, otherwise corev1.UnsatisfiableConstraintAction, pods map[string]string) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew:           1,
		TopologyKey:       label,
		WhenUnsatisfiable: otherwise,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: pods},
	}
}

// wider spreads a pod over zones and racks as well, as the pool says. Nodes that are cordoned or
// tainted do not count: their zone would be one without pods, and hold those of others back.
func wider(p *corev1.Pod, s *dmv1.Spread, pool, component string) {
	for _, d := range domains(s) {
		otherwise := corev1.ScheduleAnyway
		if d.rule == dmv1.SpreadRequired {
			otherwise = corev1.DoNotSchedule
		}
		c := spreadOver(d.label, otherwise, selector(pool, component))
		honor := corev1.NodeInclusionPolicyHonor
		c.NodeTaintsPolicy = &honor
		// a new list: the one that is there may be the template's
		p.Spec.TopologySpreadConstraints = append(slices.Clone(p.Spec.TopologySpreadConstraints), c)
	}
}

// domain is what pods are spread over: nodes with the same value of a label.
type domain struct {
	label string
	rule  dmv1.SpreadRule
}

// domains are those that a pool names.
func domains(s *dmv1.Spread) (all []domain) {
	if s != nil && s.Zones != "" {
		all = append(all, domain{corev1.LabelTopologyZone, s.Zones})
	}
	if s != nil && s.Racks != "" {
		all = append(all, domain{s.RackLabel, s.Racks})
	}
	return all
}
