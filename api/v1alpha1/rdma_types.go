package v1alpha1

// Transport is how compute servers reach memory servers.
// +kubebuilder:validation:Enum=TCP;RDMA
type Transport string

// The transports.
const (
	TransportTCP  Transport = "TCP"  // works in any cluster
	TransportRDMA Transport = "RDMA" // InfiniBand or RoCE, on nodes with an HCA
)

// HugePageSize is the size of huge pages.
// +kubebuilder:validation:Enum="2Mi";"1Gi"
type HugePageSize string

// RDMAResource is what pods of RDMA pools ask for if nothing is said: the device plugin of this
// project gives it.
const RDMAResource = "dmindex.io/rdma"

// RDMASpec says how the pods of a pool get at RDMA.
// +kubebuilder:validation:XValidation:rule="!has(self.resource) || !has(self.resourceClaimTemplateName)",message="write one of rdma.resource (an extended resource of a device plugin) and rdma.resourceClaimTemplateName (DRA)"
type RDMASpec struct {
	// Resource is the extended resource of which each pod gets one. Default: dmindex.io/rdma, of
	// this project's device plugin.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Resource string `json:"resource,omitempty"`

	// ResourceClaimTemplateName is the ResourceClaimTemplate that gives each pod its device (DRA).
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ResourceClaimTemplateName string `json:"resourceClaimTemplateName,omitempty"`

	// Device is the RDMA device in the pods, such as mlx5_0. Default: what this project's device
	// plugin gave, else the first one with an active port.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+$`
	Device string `json:"device,omitempty"`

	// HugePages puts memory into huge pages of this size, which nodes must have set aside: the
	// regions of memory servers, the buffers of compute servers (64Mi for each).
	// +optional
	HugePages HugePageSize `json:"hugePages,omitempty"`

	// Networks is the value of the annotation k8s.v1.cni.cncf.io/networks of the pods, for Multus.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Networks string `json:"networks,omitempty"`
}
