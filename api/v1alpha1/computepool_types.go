package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScalingWindow says how patient autoscaling is in one direction.
type ScalingWindow struct {
	// StabilizationWindowSeconds is for how long another number of servers must have been right
	// before there is one. Default: 0 for scaling up, 300 for scaling down.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	StabilizationWindowSeconds *int32 `json:"stabilizationWindowSeconds,omitempty"`
}

// ComputeAutoscaling makes the operator choose how many compute servers a pool has, by what they
// say of their load. If both targets are set, the one that asks for more servers counts.
// +kubebuilder:validation:XValidation:rule="has(self.operationsPerSecond) || has(self.cacheMissPercent)",message="autoscaling needs a target: write operationsPerSecond, cacheMissPercent, or both"
type ComputeAutoscaling struct {
	// OperationsPerSecond is how many operations a server shall do, on average.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	OperationsPerSecond *int64 `json:"operationsPerSecond,omitempty"`

	// CacheMissPercent is how many percent of the operations may miss the cache and ask memory
	// servers, on average: more servers have more cache.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	CacheMissPercent *int32 `json:"cacheMissPercent,omitempty"`

	// ScaleUp says how patient the operator is before there are more servers.
	// +optional
	ScaleUp ScalingWindow `json:"scaleUp,omitzero"`

	// ScaleDown says how patient the operator is before there are fewer.
	// +optional
	ScaleDown ScalingWindow `json:"scaleDown,omitzero"`
}

// ComputeServers describes the servers of a compute pool.
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || has(self.maxReplicas)",message="autoscaling needs maxReplicas: write how many servers there may be"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.replicas",message="replicas is below minReplicas: write at least minReplicas, or lower minReplicas first"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || self.replicas <= self.maxReplicas",message="replicas is above maxReplicas: write at most maxReplicas, or raise maxReplicas first"
// +kubebuilder:validation:XValidation:rule="!has(self.rdma) || self.transport == 'RDMA'",message="rdma is for pools with transport: RDMA: write that, or leave rdma out"
// +kubebuilder:validation:XValidation:rule="!has(self.spread) || !has(self.pod) || !has(self.pod.topologySpreadConstraints)",message="spread and pod.topologySpreadConstraints say where pods lie: write one of them"
type ComputeServers struct {
	// Replicas is how many compute servers there are. In a template it holds for the creation of
	// the pool only; afterwards scale the pool: kubectl scale dmcp NAME --replicas=N.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	Replicas int32 `json:"replicas,omitempty"`

	// MinReplicas is how few servers the pool may be scaled to.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is how many servers the pool may be scaled to.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Autoscaling makes the operator set replicas, within minReplicas (1 unless set) and
	// maxReplicas. Without it replicas are yours, or those of a HorizontalPodAutoscaler.
	// +optional
	Autoscaling *ComputeAutoscaling `json:"autoscaling,omitempty"`

	// Cache is how much memory of each server caches the index. Default 64Mi. What the pods request
	// follows from it, unless pod.resources says otherwise. A change replaces the pods, one after
	// the other.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('4Ti')) <= 0",message="cache must be within 1Mi and 4Ti: write how much memory of each server caches the index, such as 1Gi"
	Cache *resource.Quantity `json:"cache,omitempty"`

	// Transport that the servers can speak. With RDMA they reach memory servers of RDMA pools by
	// it, and those of TCP pools by TCP; with TCP only the latter. A change replaces the pods, one
	// after the other.
	// +optional
	// +default="TCP"
	Transport Transport `json:"transport,omitempty"`

	// RDMA says how the pods of a pool with transport RDMA get their device. A change replaces the
	// pods, one after the other.
	// +optional
	RDMA *RDMASpec `json:"rdma,omitempty"`

	// Spread puts the pods into different zones and racks, beside nodes. A change replaces the
	// pods, one after the other.
	// +optional
	Spread *Spread `json:"spread,omitempty"`

	// Settings of the servers. Most are taken by servers that run.
	// +optional
	Settings ComputeSettings `json:"settings,omitzero"`

	// Pod says where and how the servers' pods run. A change replaces the pods, one after the
	// other.
	// +optional
	Pod PodTemplate `json:"pod,omitzero"`
}

// DMComputePoolSpec is what a compute pool shall be.
type DMComputePoolSpec struct {
	ComputeServers `json:",inline"`

	// IndexName is the DMIndex of the same namespace that the pool serves. The index names the pool
	// in spec.computePools.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="indexName cannot be changed: make a new pool for the other index"
	IndexName string `json:"indexName"`

	// Image of the servers. Default: that of the index. A change replaces the pods, one after the
	// other.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// Paused makes the operator change nothing in the pool. Servers that are lost are replaced.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// DMComputePoolStatus is what was last seen of a compute pool. Nothing is decided by it.
type DMComputePoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: PoolReady, Progressing, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Replicas is how many pods there are that do not leave.
	// +required
	Replicas int32 `json:"replicas"`

	// ReadyReplicas of them are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// Leaving is how many pods hand over their ranges and go.
	// +optional
	Leaving int32 `json:"leaving,omitempty"`

	// Selector of the pool's pods, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`

	// Image that new servers run.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
}

// DMComputePool is a pool of compute servers of one index.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=dmcp,categories=dmindex
// +kubebuilder:printcolumn:name="Index",type=string,JSONPath=`.spec.indexName`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Leaving",type=integer,JSONPath=`.status.leaving`
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.image`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names pods and a Service too: write lower-case letters, digits and dashes, first a letter, at most 50 characters"
type DMComputePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec DMComputePoolSpec `json:"spec"`
	// +optional
	Status DMComputePoolStatus `json:"status,omitzero"`
}

// DMComputePoolList is a list of compute pools.
//
// +kubebuilder:object:root=true
type DMComputePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DMComputePool `json:"items"`
}
