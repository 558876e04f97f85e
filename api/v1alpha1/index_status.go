package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DMIndexStatus is what was last seen of an index. Nothing is decided by it.
type DMIndexStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Available, Progressing, Degraded, DataLost, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Identity under which the memory servers know the index: its UID and, after it was made anew,
	// a count.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Identity string `json:"identity,omitempty"`

	// Durability in force: Replicated once each memory server of the index has a copy on another
	// node, and as long as it has; Persistent if each keeps what it holds on a disk.
	// +optional
	Durability Durability `json:"durability,omitempty"`

	// Image that the servers run.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// Endpoint for Redis clients: host and port of the Service. The password is in the Secret
	// <name>-conn.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Endpoint string `json:"endpoint,omitempty"`

	// MemoryReady is how many memory servers of the index are well, of how many: "2/2".
	// +optional
	// +kubebuilder:validation:MaxLength=32
	MemoryReady string `json:"memoryReady,omitempty"`

	// ComputeReady is how many compute servers are ready, of how many: "2/2".
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ComputeReady string `json:"computeReady,omitempty"`

	// MemoryServers that hold the index.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	MemoryServers []IndexMemoryServer `json:"memoryServers,omitempty"`

	// ComputeServers that serve the index.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2048
	ComputeServers []IndexComputeServer `json:"computeServers,omitempty"`

	// Map mirrors the partition map that the memory servers keep.
	// +optional
	Map *PartitionMap `json:"map,omitempty"`
}

// ServerState is how a server fares.
type ServerState string

// The states of servers.
const (
	ServerStarting    ServerState = "Starting"    // not ready yet
	ServerJoining     ServerState = "Joining"     // joins the index, and holds nothing of it
	ServerReady       ServerState = "Ready"       // does its work
	ServerUnreachable ServerState = "Unreachable" // does not answer
	ServerLost        ServerState = "Lost"        // its content is gone
	ServerLeaving     ServerState = "Leaving"     // hands over its ranges, then goes
)

// IndexMemoryServer is a memory server as the index knows it.
type IndexMemoryServer struct {
	// ID in global addresses.
	// +required
	ID int32 `json:"id"`

	// Pod of the server.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Pod string `json:"pod"`

	// Incarnation of its region when the index was admitted, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Incarnation string `json:"incarnation,omitempty"`

	// State of the server.
	// +required
	// +kubebuilder:validation:MaxLength=32
	State ServerState `json:"state"`

	// Transport by which compute servers reach it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Transport Transport `json:"transport,omitempty"`

	// Device of the server: the name of its RDMA HCA on the node.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Device string `json:"device,omitempty"`

	// QuotaChunks is how many chunks the index may use.
	// +optional
	QuotaChunks int64 `json:"quotaChunks,omitempty"`

	// UsedChunks of these.
	// +optional
	UsedChunks int64 `json:"usedChunks,omitempty"`

	// Locks that the index has in the server's lock table.
	// +optional
	Locks int64 `json:"locks,omitempty"`

	// LockPlacement is where these lie.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	LockPlacement LockPlacement `json:"lockPlacement,omitempty"`
}

// LockPlacement is where locks lie.
type LockPlacement string

// The placements of locks.
const (
	LocksOnChip LockPlacement = "OnChip" // in the memory of the server's NIC
	LocksInHost LockPlacement = "Host"   // in the server's memory
	// in both: the NIC has less memory than when the index was admitted
	LocksMixed LockPlacement = "Mixed"
)

// IndexComputeServer is a compute server as the index knows it.
type IndexComputeServer struct {
	// ID in the partition map.
	// +required
	ID int64 `json:"id"`

	// Pod of the server.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Pod string `json:"pod"`

	// State of the server.
	// +required
	// +kubebuilder:validation:MaxLength=32
	State ServerState `json:"state"`

	// Ranges that the server owns.
	// +optional
	Ranges int32 `json:"ranges,omitempty"`

	// Paths by which the server reaches the memory servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Paths []MemoryPath `json:"paths,omitempty"`

	// Problem says what to change on the node of a server that cannot start there.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Problem string `json:"problem,omitempty"`
}

// MemoryPath is a way from a compute server to memory servers.
type MemoryPath struct {
	// Transport of the path.
	// +required
	// +kubebuilder:validation:MaxLength=32
	Transport Transport `json:"transport"`

	// Device of the compute server: the name of its RDMA HCA on the node.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Device string `json:"device,omitempty"`

	// Count of the memory servers that are reached by it.
	// +required
	Count int32 `json:"count"`

	// MemoryServers that are reached by it: the ids of the first 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MemoryServers []int32 `json:"memoryServers,omitempty"`
}

// MaxShownPaths and MaxShownOnPath bound what the status shows of a compute server's paths.
const (
	MaxShownPaths  = 8
	MaxShownOnPath = 16
)

// PartitionMap is a mirror of the partition map.
type PartitionMap struct {
	// Generation of the map.
	// +required
	Generation int64 `json:"generation"`

	// RangeCount is how many ranges there are.
	// +required
	RangeCount int32 `json:"rangeCount"`

	// Moving is how many ranges are still to move, one after the other, of a change that has begun.
	// +optional
	Moving int32 `json:"moving,omitempty"`

	// Ranges by start key, the first 256 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Ranges []PartitionRange `json:"ranges,omitempty"`
}

// MaxMirroredRanges is how many ranges the status shows.
const MaxMirroredRanges = 256

// PartitionRange is a range of keys up to the next range's start.
type PartitionRange struct {
	// Start key, inclusive, in base64. Empty: from the first key on; or, beside a digest, the key
	// is not shown (spec.security.showKeys).
	// +required
	// +kubebuilder:validation:MaxLength=1368
	Start string `json:"start"`

	// Digest of the start key, by which compute servers name it where they show no keys. Empty for
	// the first range.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Digest string `json:"digest,omitempty"`

	// Owner is the pod of the compute server in charge.
	// +required
	// +kubebuilder:validation:MaxLength=255
	Owner string `json:"owner"`

	// Epoch is the generation in which the owner came into charge.
	// +required
	Epoch int64 `json:"epoch"`
}
