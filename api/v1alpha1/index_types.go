package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Design is how an index is laid out in memory and worked on.
// +kubebuilder:validation:Enum=DEX;Sherman;SMART;CHIME;Dolphin
type Design string

// The designs.
const (
	// a B+ tree whose key ranges have owners among the compute servers, which cache them
	DesignDEX Design = "DEX"
	// a B-link tree that all compute servers share, with hierarchical locks
	DesignSherman Design = "Sherman"
	// a radix tree that all compute servers share, with a leaf for each pair
	DesignSMART Design = "SMART"
	// a B+ tree that all compute servers share, whose leaves are hash tables
	DesignCHIME Design = "CHIME"
	// a radix tree that all compute servers share, over leaves of a B+ tree
	DesignDolphin Design = "Dolphin"
)

// KeyType is how keys are made and compared.
// +kubebuilder:validation:Enum=Uint64;Bytes
type KeyType string

// The key types.
const (
	KeyUint64 KeyType = "Uint64" // 8 bytes that compare as an integer
	KeyBytes  KeyType = "Bytes"  // up to maxLength bytes that compare as bytes
)

// Durability is what an acknowledged write survives.
// +kubebuilder:validation:Enum=Memory;Replicated;Persistent
type Durability string

// Durabilities: an acknowledged write survives what each says.
const (
	// DurabilityMemory survives the death of any client and any compute server. Losing a memory pod
	// loses the data.
	DurabilityMemory Durability = "Memory"
	// DurabilityReplicated survives the loss of any memory pod, too: what each one holds has a copy
	// on another node.
	DurabilityReplicated Durability = "Replicated"
	// DurabilityPersistent survives the end of all pods at once, and of all nodes: what each memory
	// pod holds is on a disk as well, and the pod comes back with it.
	DurabilityPersistent Durability = "Persistent"
)

// Routing is who serves a request.
// +kubebuilder:validation:Enum=Any;Owner
type Routing string

// The routings.
const (
	RoutingAny   Routing = "Any"   // the server that got it
	RoutingOwner Routing = "Owner" // the owner of its key range
)

// OnDataLoss is what happens to an index that lost data.
// +kubebuilder:validation:Enum=Block;Recreate
type OnDataLoss string

// Policies for lost data.
const (
	OnDataLossBlock    OnDataLoss = "Block"    // answer nothing until somebody decides
	OnDataLossRecreate OnDataLoss = "Recreate" // start again with an empty index
)

// IndexDeletionPolicy is what the deletion of an index does.
// +kubebuilder:validation:Enum=Delete;Retain
type IndexDeletionPolicy string

// Policies for the deletion of an index.
const (
	IndexDelete IndexDeletionPolicy = "Delete" // it is deleted, and its data with it
	IndexRetain IndexDeletionPolicy = "Retain" // its deletion is refused
)

// MemoryPoolTemplate is a memory pool that the operator makes for the index.
type MemoryPoolTemplate struct {
	MemoryServers `json:",inline"`
}

// IndexMemoryPool is a memory pool that holds the index.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.ref)",message="write exactly one of template (a pool made for this index) and ref (the name of a DMMemoryPool of this namespace)"
// +kubebuilder:validation:XValidation:rule="!has(self.ref) || has(self.quota)",message="a pool by ref needs quota: write how much memory of each of its servers the index may use, such as 16Gi"
type IndexMemoryPool struct {
	// Name of the pool within the index. A pool of a template is called <index>-<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Template of a pool that is made for the index and goes with it.
	// +optional
	Template *MemoryPoolTemplate `json:"template,omitempty"`

	// Ref names a DMMemoryPool that several indexes can share.
	// +optional
	Ref *LocalReference `json:"ref,omitempty"`

	// Quota is how much memory of each server the index may use. Default for a template: all of it.
	// It can be raised at any time, and lowered to what is in use.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=24
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0",message="quota is too small: write at least one chunk, such as 1Gi"
	Quota *resource.Quantity `json:"quota,omitempty"`

	// Locks is how many 16-bit locks of each server's lock table the index gets; they lie in the
	// NIC's memory if there is room. Default: an eighth of the largest free part. It holds for
	// servers to which the index is admitted afterwards.
	// +optional
	// +kubebuilder:validation:Minimum=4
	// +kubebuilder:validation:Maximum=536870912
	// +kubebuilder:validation:XValidation:rule="self % 4 == 0",message="locks must be a multiple of 4: write 16384, for example"
	Locks *int32 `json:"locks,omitempty"`
}

// ComputePoolTemplate is a compute pool that the operator makes for the index.
type ComputePoolTemplate struct {
	ComputeServers `json:",inline"`
}

// IndexComputePool is a compute pool that serves the index.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.ref)",message="write exactly one of template (a pool made for this index) and ref (the name of a DMComputePool of this namespace whose indexName is this index)"
type IndexComputePool struct {
	// Name of the pool within the index. A pool of a template is called <index>-<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Template of a pool that is made for the index and goes with it.
	// +optional
	Template *ComputePoolTemplate `json:"template,omitempty"`

	// Ref names a DMComputePool whose spec.indexName is this index.
	// +optional
	Ref *LocalReference `json:"ref,omitempty"`
}

// RestoreSource names a backup of this namespace.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.schedule)",message="write exactly one of name (of a DMBackup) and schedule (a DMBackupSchedule, whose newest complete backup is taken)"
type RestoreSource struct {
	// Name of a DMBackup.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// Schedule names a DMBackupSchedule: its newest complete backup is taken when the index is
	// made.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Schedule string `json:"schedule,omitempty"`
}

// RecoverySpec says what happens when something is lost.
type RecoverySpec struct {
	// OnDataLoss is what happens when a memory server lost its content.
	// +optional
	// +default="Block"
	OnDataLoss OnDataLoss `json:"onDataLoss,omitempty"`

	// FromBackup is what the index is loaded from whenever it is made: when it is new, and when it
	// is made anew after a loss of data with onDataLoss: Recreate. It is Available once all is
	// loaded and compared. An index that is there already is left alone.
	// +optional
	FromBackup *RestoreSource `json:"fromBackup,omitempty"`
}

// SecuritySpec says how access to the index is protected, and what is shown of it.
type SecuritySpec struct {
	// PasswordGraceSeconds is for how long the former password is still right after the password
	// was rotated. Then connections that used it are cut.
	// +optional
	// +default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	PasswordGraceSeconds int32 `json:"passwordGraceSeconds,omitempty"`

	// AuthorityGraceSeconds is for how long programs may take to read ca.crt again when the
	// certificate authority is replaced: after it has the new authority beside the former one, and
	// again after the new one signs certificates, until the former one is not trusted any more.
	// +optional
	// +default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	AuthorityGraceSeconds int32 `json:"authorityGraceSeconds,omitempty"`

	// FabricTLS encrypts what compute servers and memory servers say to each other over transport
	// TCP, and lets both show certificates. An operation of an index takes some 15% more processor
	// time, reading in large batches more than twice as much. When it is changed, compute servers
	// are replaced one after the other; memory servers refuse connections in the clear once all of
	// them are under TLS.
	// +optional
	FabricTLS bool `json:"fabricTLS,omitempty"`

	// ShowKeys shows keys to everybody who may read the index and its events: the bounds of ranges,
	// in status, conditions and events. Otherwise digests stand in their place, which tell bounds
	// apart.
	// +optional
	ShowKeys bool `json:"showKeys,omitempty"`
}

// DMIndexSpec is what an index shall be.
// +kubebuilder:validation:XValidation:rule="!self.?security.?fabricTLS.orValue(false) || !self.memoryPools.exists(p, has(p.template) && has(p.template.transport) && p.template.transport == 'RDMA')",message="security.fabricTLS is for transport TCP: over RDMA nothing is encrypted, so leave it out, or write transport: TCP of the memory pools"
// +kubebuilder:validation:XValidation:rule="self.durability != 'Replicated' || !self.memoryPools.exists(p, has(p.template) && has(p.template.transport) && p.template.transport == 'RDMA')",message="durability: Replicated is for transport TCP: write durability: Memory, or transport: TCP of the memory pools"
// +kubebuilder:validation:XValidation:rule="self.durability != 'Replicated' || !self.memoryPools.exists(p, has(p.template) && has(p.template.persistence))",message="durability: Replicated is for memory pools without persistence: write durability: Persistent, or leave persistence out"
// +kubebuilder:validation:XValidation:rule="self.durability != 'Persistent' || !self.memoryPools.exists(p, has(p.template) && !has(p.template.persistence))",message="durability: Persistent needs disks: write persistence: {} in the template of each memory pool of a new DMIndex, or another durability"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeSize) || [self.value.maxLength + (has(self.expiry) && self.expiry == 'Enabled' ? 9 : 0)].exists(v, self.nodeSize >= (self.key.type == 'Uint64' ? 96 + (15 + (v > 256 ? 17 : v)) / 8 * 16 : 64 + (self.key.?maxLength.orValue(0) + 7) / 8 * 32 + (self.key.?maxLength.orValue(0) + (v > 256 ? 16 : v) + 9) / 8 * 16))",message="nodeSize is too small for keys and values of these lengths: leave it out, or write at least 6 * key.maxLength + 2 * value.maxLength + 128 (with expiry, a value has 9 bytes more; one above 256 counts as 16)"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeSize) || !has(self.design) || self.design in ['DEX', 'Sherman']",message="nodeSize is for DEX and Sherman: leave it out with other designs"
// +kubebuilder:validation:XValidation:rule="self.?nodeSize == oldSelf.?nodeSize",message="nodeSize cannot be changed: make a new DMIndex and restore a dump into it"
// +kubebuilder:validation:XValidation:rule="(has(self.expiry) && self.expiry == 'Enabled') == (has(oldSelf.expiry) && oldSelf.expiry == 'Enabled')",message="expiry cannot be changed: make a new DMIndex and restore a dump into it"
// +kubebuilder:validation:XValidation:rule="!self.?partitioning.?atomicPrefix.hasValue() || self.key.type == 'Bytes'",message="partitioning.atomicPrefix is for keys of type Bytes: leave it out"
type DMIndexSpec struct {
	// DEX: key ranges have owners, which cache them.
	// Others are shared by all.
	// Sherman: a B-link tree.
	// SMART: a radix tree.
	// CHIME: a B+ tree of hash tables.
	// Dolphin: a radix tree over B+ leaves.
	// +optional
	// +default="DEX"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="design cannot be changed: make a new DMIndex and restore a dump into it"
	Design Design `json:"design,omitempty"`

	// Key describes the keys.
	// +required
	Key KeySpec `json:"key"`

	// Value describes the values.
	// +required
	Value ValueSpec `json:"value"`

	// Expiry lets pairs expire and be hashes. Values are stored a byte longer, 9 if they do. Absent
	// is Disabled.
	// +optional
	Expiry Expiry `json:"expiry,omitempty"`

	// NodeSize is the size of a node in bytes, of DEX and Sherman. Default: by keys and values.
	// +optional
	// +kubebuilder:validation:Minimum=256
	// +kubebuilder:validation:Maximum=65536
	// +kubebuilder:validation:XValidation:rule="self % 64 == 0",message="nodeSize must be a multiple of 64: write 1024, for example"
	NodeSize *int32 `json:"nodeSize,omitempty"`

	// MemoryPools hold the index. The first server of the first one also has its superblock and its
	// partition map.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=31
	// +kubebuilder:validation:XValidation:rule="self.map(p, p.name + (has(p.ref) ? '/' + p.ref.name : '')) == oldSelf.map(p, p.name + (has(p.ref) ? '/' + p.ref.name : ''))",message="memoryPools cannot be added, removed, renamed or reordered: make a new DMIndex and restore a dump into it"
	MemoryPools []IndexMemoryPool `json:"memoryPools"`

	// ComputePools serve the index.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(p, p.name + (has(p.ref) ? '/' + p.ref.name : '')) == oldSelf.map(p, p.name + (has(p.ref) ? '/' + p.ref.name : ''))",message="computePools cannot be added, removed, renamed or reordered: scale one of them with kubectl scale dmcp NAME --replicas=N"
	ComputePools []IndexComputePool `json:"computePools"`

	// Partitioning of the keys between compute servers.
	// +optional
	// +default={}
	Partitioning PartitioningSpec `json:"partitioning,omitzero"`

	// Durability is what an acknowledged write survives. Memory: the death of any client and any
	// compute server. Replicated: that of any memory pod, too; it holds the copies of the memory
	// pools at 2. Persistent: the end of all pods at once; it needs memory pools with persistence,
	// and the death of a memory pod lasts until it is back, or, where they have copies: 2 as well,
	// until the other copy has taken its place. status.durability says what is in
	// force. It can be changed.
	// +required
	Durability Durability `json:"durability"`

	// DeletionPolicy Retain refuses the deletion of the index, and of its namespace, until it is
	// set to Delete. It needs the admission policies of the chart.
	// +optional
	// +default="Delete"
	DeletionPolicy IndexDeletionPolicy `json:"deletionPolicy,omitempty"`

	// Recovery says what happens when something is lost.
	// +optional
	// +default={}
	Recovery RecoverySpec `json:"recovery,omitzero"`

	// Security says how access to the index is protected, and what is shown of it.
	// +optional
	// +default={}
	Security SecuritySpec `json:"security,omitzero"`

	// Endpoints are how programs reach the index.
	// +optional
	// +default={}
	Endpoints EndpointsSpec `json:"endpoints,omitzero"`

	// Log is what the compute servers of the index log, and memory servers of its templates that
	// start afterwards. When it is changed, compute servers are replaced one after the other.
	// +optional
	// +default={}
	Log LogSpec `json:"log,omitzero"`

	// Paused makes the operator change nothing in the index and the pools made for it. It goes on
	// repairing: servers that are lost are fenced, replaced and their keys served by others.
	// Deletion goes on, too.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// Image of the servers. Default: that of the operator which first sees the index; an upgrade of
	// the operator does not change it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
}

// DMIndex is an ordered index on disaggregated memory.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dmi,categories=dmindex
// +kubebuilder:printcolumn:name="Design",type=string,JSONPath=`.spec.design`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.memoryReady`
// +kubebuilder:printcolumn:name="Compute",type=string,JSONPath=`.status.computeReady`
// +kubebuilder:printcolumn:name="Map",type=integer,JSONPath=`.status.map.generation`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
// +kubebuilder:printcolumn:name="Endpoint",type=string,priority=1,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 30 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names pods and Services too: write lower-case letters, digits and dashes, first a letter, at most 30 characters"
type DMIndex struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec DMIndexSpec `json:"spec"`
	// +optional
	Status DMIndexStatus `json:"status,omitzero"`
}

// DMIndexList is a list of indexes.
//
// +kubebuilder:object:root=true
type DMIndexList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DMIndex `json:"items"`
}
