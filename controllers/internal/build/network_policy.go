package build

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// NetworkPolicy says who may connect to the pods of a pool. operator is the operator's namespace.
//
//	port                  of                from
//	metrics               every server      everybody: probes, Prometheus, kubectl dmindex
//	control               memory servers    compute servers of the namespace, the operator
//	fabric                memory servers    compute servers of the namespace
//	mirror                memory servers    those of the same pool, if volumes have copies
//	resp, rpc             compute servers   everybody: programs, each other, the operator
//
// Programs are told apart by their password, since the operator does not know where they run.
// Queue pairs of RDMA do not go through policies: the control port, without which a client gets no
// access to the memory, does.
func NetworkPolicy(pool, namespace, component, operator string) *networkingv1.NetworkPolicy {
	n := &networkingv1.NetworkPolicy{ObjectMeta: meta(pool, namespace, selector(pool, component))}
	n.Spec.PodSelector = metav1.LabelSelector{MatchLabels: selector(pool, component)}
	n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if component == dmv1.ComponentCompute {
		n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: policyPorts("resp", "rpc", "metrics")}}
		return n
	}
	// A pool may serve several indexes, which come and go: those of the namespace.
	compute := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
		dmv1.LabelName: "dmindex", dmv1.LabelComponent: dmv1.ComponentCompute,
	}}}
	operators := networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: operator}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{dmv1.LabelName: "dmindex", dmv1.LabelComponent: "operator"}},
	}
	n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{Ports: policyPorts("control"), From: []networkingv1.NetworkPolicyPeer{compute, operators}},
		{Ports: policyPorts("fabric"), From: []networkingv1.NetworkPolicyPeer{compute}},
		{Ports: policyPorts("metrics")},
	}
	return n
}

// LetMirror lets the servers of a memory pool send each other changes. The port is a number: pods
// that were made without another copy do not name it.
func LetMirror(n *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	n.Spec.Ingress = append(n.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(config.PortMirror))}},
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: n.Spec.PodSelector.DeepCopy()}},
	})
	return n
}

func policyPorts(names ...string) (ports []networkingv1.NetworkPolicyPort) {
	for _, name := range names {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromString(name))})
	}
	return ports
}
