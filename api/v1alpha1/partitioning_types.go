package v1alpha1

// RebalancePolicy is whether load is a reason to move ranges of keys.
// +kubebuilder:validation:Enum=OnSkew;Never
type RebalancePolicy string

// The policies.
const (
	// when one compute server has much more load than the others
	RebalanceOnSkew RebalancePolicy = "OnSkew"
	RebalanceNever  RebalancePolicy = "Never" // only when compute servers come and go
)

// RebalanceSpec says when load is a reason to move ranges of keys between compute servers.
type RebalanceSpec struct {
	// Policy is whether it is.
	// +optional
	// +default="OnSkew"
	Policy RebalancePolicy `json:"policy,omitempty"`

	// MaxLoadPercent is how much load a compute server may have, in percent of the mean of all.
	// Above it ranges move.
	// +optional
	// +default=150
	// +kubebuilder:validation:Minimum=120
	// +kubebuilder:validation:Maximum=1000
	MaxLoadPercent int32 `json:"maxLoadPercent,omitempty"`

	// MinIntervalSeconds is how long the partition map stays as it is, at least, before ranges move
	// because of load. A map that was made before there was load does not wait.
	// +optional
	// +default=60
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	MinIntervalSeconds int32 `json:"minIntervalSeconds,omitempty"`
}

// PartitioningSpec says how keys are divided between compute servers.
// +kubebuilder:validation:XValidation:rule="has(self.atomicPrefix) == has(oldSelf.atomicPrefix)",message="partitioning.atomicPrefix cannot be changed: make a new DMIndex and restore a dump into it"
type PartitioningSpec struct {
	// Routing of requests in designs in which every compute server can serve every key; with DEX
	// they always go to the owner.
	// +optional
	// +default="Any"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="partitioning.routing cannot be changed: make a new DMIndex"
	Routing Routing `json:"routing,omitempty"`

	// AtomicPrefix keeps keys together. Those that are equal up to and including the first
	// occurrence of this text have one compute server, whatever the load.
	// With "}" they are, for example, {user:7}:cart and {user:7}:name, and a transaction may have
	// both.
	// Keys of one group are never divided between servers: have many groups.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[ -~]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="partitioning.atomicPrefix cannot be changed: make a new DMIndex and restore a dump into it"
	AtomicPrefix string `json:"atomicPrefix,omitempty"`

	// Rebalance says when load is a reason to move ranges.
	// +optional
	// +default={}
	Rebalance RebalanceSpec `json:"rebalance,omitzero"`
}
