package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodTemplate is what can be said about the pods of a pool. All else about them is the operator's.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.labels) && self.labels.exists(k, k.startsWith('dmindex.io/')) || has(self.annotations) && self.annotations.exists(k, k.startsWith('dmindex.io/')))",message="labels and annotations of dmindex.io/ are the operator's: write another prefix"
type PodTemplate struct {
	// Labels are added to the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are added to the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`

	// Resources of the server's container. The rest follows from the size of the pool.
	// +optional
	Resources Resources `json:"resources,omitzero"`

	// NodeSelector is the labels that a node must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of taints of nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Affinity to nodes and other pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// TopologySpreadConstraints of the pods. Default: they are spread over nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// PriorityClassName of the pods.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// SchedulerName is the scheduler of the pods. Default: that of Kubernetes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// RuntimeClassName is the RuntimeClass that the pods run with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// ServiceAccountName is the account of the pods, for what admission decides by it. They have no
	// token of it. Default: default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// HostAliases are lines of the pods' /etc/hosts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	HostAliases []corev1.HostAlias `json:"hostAliases,omitempty"`

	// DNSConfig is added to how the pods resolve names.
	// +optional
	DNSConfig *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`

	// Env is environment of the server's container, beside the operator's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(e, !e.name.startsWith('DMINDEX_') && e.name != 'GOMEMLIMIT')",message="DMINDEX_... and GOMEMLIMIT are the operator's: give resources, or say what you miss in the fields of the pool"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// ImagePullPolicy of the server's container. Default: that of Kubernetes for the image's tag.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// ImagePullSecrets are the Secrets to pull the image with.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Patch is part of a pod's spec that is laid over the pods by a strategic merge: sidecars,
	// volumes, securityContext. Container memory, compute or backup is the operator's.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Patch *runtime.RawExtension `json:"patch,omitempty"`
}

// Resources of a container, as Kubernetes has them.
type Resources struct {
	// Requests is what a node must have free.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// Limits is what the container may use at most.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// LocalReference names an object of the same namespace.
type LocalReference struct {
	// Name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=50
	Name string `json:"name"`
}
