package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MemoryServers describes the servers of a memory pool.
// +kubebuilder:validation:XValidation:rule="self.servers >= oldSelf.servers",message="servers can only be raised: memory servers hold data. Make a new index on fewer servers and restore a dump into it"
// +kubebuilder:validation:XValidation:rule="quantity(string(self.memory)).compareTo(quantity(string(oldSelf.memory))) == 0",message="memory cannot be changed: a server's region has one size for life. Raise servers, or make a new pool"
// +kubebuilder:validation:XValidation:rule="quantity(string(self.chunkSize)).compareTo(quantity(string(oldSelf.chunkSize))) == 0",message="chunkSize cannot be changed: make a new pool"
// +kubebuilder:validation:XValidation:rule="quantity(string(self.memory)).compareTo(quantity(string(self.chunkSize)).add(quantity(string(self.chunkSize)))) >= 0",message="memory is too small: write at least two times chunkSize"
// +kubebuilder:validation:XValidation:rule="!has(self.rdma) || self.transport == 'RDMA'",message="rdma is for pools with transport: RDMA: write that, or leave rdma out"
// +kubebuilder:validation:XValidation:rule="has(self.persistence) == has(oldSelf.persistence)",message="persistence cannot be added or removed: the servers' pods have data. Make a new pool, and restore a dump into an index there"
// +kubebuilder:validation:XValidation:rule="!has(self.persistence) || self.transport == 'TCP'",message="persistence is for pools with transport TCP: over RDMA the memory changes without its server. Write transport: TCP, or leave persistence out"
// +kubebuilder:validation:XValidation:rule="!has(self.persistence) || !has(self.persistence.size) || quantity(string(self.persistence.size)).asInteger() >= 4 * quantity(string(self.memory)).asInteger() + 268435456",message="persistence.size is too small: write at least 4 times memory and 256Mi, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.rdma) || !has(self.rdma.hugePages) || quantity(string(self.memory)).asInteger() % quantity(self.rdma.hugePages).asInteger() == 0",message="memory must be whole huge pages: write a multiple of rdma.hugePages"
// +kubebuilder:validation:XValidation:rule="!has(self.spread) || !has(self.pod) || !has(self.pod.topologySpreadConstraints)",message="spread and pod.topologySpreadConstraints say where pods lie: write one of them"
type MemoryServers struct {
	// Servers is how many memory servers the pool has. It can be raised; new servers join the
	// indexes of the pool.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Servers int32 `json:"servers"`

	// Memory is the size of each server's region, such as 64Gi.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('16Mi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0",message="memory must be within 16Mi and 16Ti: write how much each server shall hold, such as 64Gi"
	Memory resource.Quantity `json:"memory"`

	// ChunkSize is the unit in which memory is handed out to indexes.
	// +optional
	// +default="8Mi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).asInteger() in [1048576, 2097152, 4194304, 8388608, 16777216, 33554432, 67108864]",message="chunkSize must be a power of two within 1Mi and 64Mi: write 1Mi, 2Mi, 4Mi, 8Mi, 16Mi, 32Mi or 64Mi"
	ChunkSize *resource.Quantity `json:"chunkSize,omitempty"`

	// Transport is how compute servers reach the pool.
	// +optional
	// +default="TCP"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="transport cannot be changed: make a new pool"
	Transport Transport `json:"transport,omitempty"`

	// RDMA says how the pods of a pool with transport RDMA get their device. Changes concern pods
	// that are made afterwards.
	// +optional
	RDMA *RDMASpec `json:"rdma,omitempty"`

	// Persistence keeps what the servers hold on disks as well (transport TCP): a pod that comes
	// back has it, also after all pods ended at once. It cannot be added or removed. Without it
	// memory is lost with its pod.
	// +optional
	Persistence *Persistence `json:"persistence,omitempty"`

	// Spread puts the pods into different zones and racks, beside nodes. The copies of a
	// volume never share a zone or a rack that is Required. A change is one of pod.
	// +optional
	Spread *Spread `json:"spread,omitempty"`

	// Settings of the servers, which those that run take.
	// +optional
	Settings MemorySettings `json:"settings,omitzero"`

	// Pod says where and how the servers' pods run. After a change what TCP pods hold is moved to
	// new ones, one after the other. With RDMA, or with persistence and one copy, a change concerns
	// pods that are made afterwards.
	// +optional
	Pod PodTemplate `json:"pod,omitzero"`
}

// PersistenceSync says when a change is on disk.
// +kubebuilder:validation:Enum=Always;5ms;Off
type PersistenceSync string

// When a change is on disk.
const (
	PersistenceAlways PersistenceSync = "Always" // before it is acknowledged
	Persistence5ms    PersistenceSync = "5ms"    // some 5 ms later
	PersistenceOff    PersistenceSync = "Off"    // when the system writes it
)

// Persistence is how memory servers keep what they hold on disks: each one, and each copy, has a
// PersistentVolumeClaim with the name of its pod, which is deleted with the pool, or once another
// copy has taken its place.
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="persistence.storageClassName cannot be changed: the claims are made. Make a new pool, and restore a dump into an index there"
// +kubebuilder:validation:XValidation:rule="!has(self.size) || !has(oldSelf.size) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",message="persistence.size can only be raised: disks do not shrink"
type Persistence struct {
	// StorageClassName of the claims. Default: the cluster's default class. The disks should have
	// low latency: with sync Always an acknowledged change waits for one of their flushes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// Size of each claim. Default: 4 times memory and 1Gi, for two checkpoints of the memory, a log
	// of twice the memory, and what the file system takes. It can be raised if the class lets
	// claims grow.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=24
	Size *resource.Quantity `json:"size,omitempty"`

	// Sync is when a change is on disk. Always: before it is acknowledged. 5ms: some 5 ms later,
	// which the loss of a node's power may take. Off: when the system writes it, within 30 s or so,
	// which the loss of power may take. The end of a process takes nothing in either. Where power
	// may have taken something, the server opens its disk only once somebody accepts that: see the
	// annotation dmindex.io/accept-loss. Changes concern pods that are made afterwards.
	// +optional
	// +default="Always"
	Sync PersistenceSync `json:"sync,omitempty"`
}

// DMMemoryPoolSpec is what a memory pool shall be.
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || !has(self.pod.resources) || !has(self.pod.resources.limits) || !('memory' in self.pod.resources.limits) || has(self.rdma) && has(self.rdma.hugePages) || quantity(string(self.pod.resources.limits['memory'])).compareTo(quantity(string(self.memory)).add(quantity('256Mi'))) >= 0",message="pod.resources.limits.memory is too small: write at least memory + 256Mi, or leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.copies) || self.copies == 1 || self.transport == 'TCP'",message="two copies are for pools with transport TCP: write copies: 1, or leave it out"
type DMMemoryPoolSpec struct {
	MemoryServers `json:",inline"`

	// Image of the servers. Default: that of the operator which first sees the pool. A change
	// restarts the containers in place, one after the other; they find their regions again. With
	// two copies it makes new pods, one copy after the other.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// Copies is how many copies there are of what each server holds, on different nodes. With 2
	// (transport TCP) the loss of a pod loses nothing, and with persistence that of a disk neither.
	// It can be changed at any time. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2
	Copies int32 `json:"copies,omitempty"`

	// CopyBytesPerSecond limits how fast a server sends its memory to a copy that joins. Without it
	// there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1048576
	CopyBytesPerSecond int64 `json:"copyBytesPerSecond,omitempty"`

	// SuspectAfterSeconds is how long a copy must be silent before it is replaced by another one.
	// Answers wait as long. The default is 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	SuspectAfterSeconds int32 `json:"suspectAfterSeconds,omitempty"`

	// Paused makes the operator change nothing in the pool. Servers that are lost are replaced.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// MemoryServerState is one server of a memory pool as it was last seen.
type MemoryServerState struct {
	// Pod of the server.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Pod string `json:"pod"`

	// Node that the pod runs on.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`

	// Incarnation of the region, in hexadecimal: another one means that the content was lost.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Incarnation string `json:"incarnation,omitempty"`

	// Claim is the PersistentVolumeClaim that keeps what the server holds. Empty: nothing does.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Claim string `json:"claim,omitempty"`

	// Ready reports whether the server answers.
	// +required
	Ready bool `json:"ready"`

	// Chunks that the server has.
	// +optional
	Chunks int64 `json:"chunks,omitempty"`

	// ChunksGranted to indexes.
	// +optional
	ChunksGranted int64 `json:"chunksGranted,omitempty"`

	// ChunksUsed of these.
	// +optional
	ChunksUsed int64 `json:"chunksUsed,omitempty"`

	// Locks of the server's lock table.
	// +optional
	Locks int64 `json:"locks,omitempty"`

	// LocksGranted to indexes.
	// +optional
	LocksGranted int64 `json:"locksGranted,omitempty"`

	// OnChipLocks of the table lie in the memory of the server's NIC.
	// +optional
	OnChipLocks int64 `json:"onChipLocks,omitempty"`

	// OnChipLocksGranted to indexes.
	// +optional
	OnChipLocksGranted int64 `json:"onChipLocksGranted,omitempty"`

	// Device of the server: the name of its RDMA HCA on the node.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Device string `json:"device,omitempty"`

	// Problem says what keeps the server from serving, and what to change on its node.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Problem string `json:"problem,omitempty"`

	// KeptFor are the indexes with onDataLoss: Block whose data would be lost with the pod. While
	// there are any it is neither evicted nor deleted. Empty for pods that are released.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	KeptFor []string `json:"keptFor,omitempty"`
}

// MemoryGrant is what an index was granted of a pool, summed over its servers.
type MemoryGrant struct {
	// Index is the name of the DMIndex; empty if there is no such object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Index string `json:"index,omitempty"`

	// Identity under which the servers know the index.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Identity string `json:"identity"`

	// Servers that it was admitted to.
	// +required
	Servers int32 `json:"servers"`

	// Chunks that it may use.
	// +required
	Chunks int64 `json:"chunks"`

	// ChunksUsed of these.
	// +optional
	ChunksUsed int64 `json:"chunksUsed,omitempty"`

	// Locks that it has.
	// +optional
	Locks int64 `json:"locks,omitempty"`

	// OnChipLocks of these lie in memory of NICs, the others in memory of the hosts.
	// +optional
	OnChipLocks int64 `json:"onChipLocks,omitempty"`
}

// Limits of the status: grants, bytes of their identities, and indexes that a pod is kept for. The
// rest of what servers say is left out.
const (
	MaxShownGrants   = 64
	MaxShownIdentity = 128
	MaxShownKeptFor  = 64
)

// DMMemoryPoolStatus is what was last seen of a memory pool. Nothing is decided by it.
type DMMemoryPoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: PoolReady, Protected, Degraded, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Servers of the pool, by pod.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Servers []MemoryServerState `json:"servers,omitempty"`

	// Volumes that were moved, have another copy or are to get one.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=128
	Volumes []VolumeStatus `json:"volumes,omitempty"`

	// Ready is how many servers answer, of how many: "2/2".
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Ready string `json:"ready,omitempty"`

	// Capacity of all servers together.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Capacity string `json:"capacity,omitempty"`

	// Granted is how much of the capacity indexes may use.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Granted string `json:"granted,omitempty"`

	// Used is how much of it indexes do use.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Used string `json:"used,omitempty"`

	// Free is how much of the capacity nobody was granted.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Free string `json:"free,omitempty"`

	// OnChip is how much memory of NICs indexes were granted for their locks, of how much:
	// "64Ki/256Ki". Empty: there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OnChip string `json:"onChip,omitempty"`

	// Grants to indexes, by identity.
	// +optional
	// +listType=map
	// +listMapKey=identity
	// +kubebuilder:validation:MaxItems=64
	Grants []MemoryGrant `json:"grants,omitempty"`

	// Image that the servers run.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
}

// DMMemoryPool is a pool of memory servers. Indexes of its namespace can share it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dmmp,categories=dmindex
// +kubebuilder:printcolumn:name="Servers",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.memory`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Granted",type=string,JSONPath=`.status.granted`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="PoolReady")].status`
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="Used",type=string,priority=1,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="On-Chip",type=string,priority=1,JSONPath=`.status.onChip`
// +kubebuilder:printcolumn:name="Transport",type=string,priority=1,JSONPath=`.spec.transport`
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.image`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names pods and a Service too: write lower-case letters, digits and dashes, first a letter, at most 50 characters"
type DMMemoryPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec DMMemoryPoolSpec `json:"spec"`
	// +optional
	Status DMMemoryPoolStatus `json:"status,omitzero"`
}

// DMMemoryPoolList is a list of memory pools.
//
// +kubebuilder:object:root=true
type DMMemoryPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DMMemoryPool `json:"items"`
}
