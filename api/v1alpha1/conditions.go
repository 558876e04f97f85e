package v1alpha1

// Types of conditions.
const (
	// ConditionAvailable of a DMIndex: it answers requests.
	ConditionAvailable = "Available"

	// ConditionProgressing: the operator is working towards the spec; the message names what it
	// waits for.
	ConditionProgressing = "Progressing"

	// ConditionDegraded: something does not work; the message names it.
	ConditionDegraded = "Degraded"

	// ConditionDataLost of a DMIndex: a memory server lost its content and the index answers no
	// requests. The message names the server, its pod and the ways out.
	ConditionDataLost = "DataLost"

	// ConditionPaused: spec.paused is set. The operator applies no change of the spec, and repairs
	// what fails.
	ConditionPaused = "Paused"

	// ConditionPoolReady of a pool: all of its servers exist and are ready.
	ConditionPoolReady = "PoolReady"

	// ConditionProtected of a memory pool: data of indexes would be lost with its pods, so they are
	// neither evicted nor deleted. The message names the indexes, and how to release a pod.
	ConditionProtected = "Protected"
)

// Reasons of events.
const (
	// ReasonAutoscaled: spec.autoscaling changed the number of replicas of a compute pool.
	ReasonAutoscaled = "Autoscaled"
	// ReasonRotatingPassword: a new password was made and is given to the compute servers. The
	// Secret <index>-conn has it when all of them that are ready know it; the event names those
	// that do not. To do: nothing, unless it names a server of an older image: replace that pod.
	ReasonRotatingPassword = "RotatingPassword"
	// ReasonRotatedPassword: the Secret <index>-conn has the new password. The former one is right
	// until the time that the event names. To do: let programs that do not read the Secret again
	// when they connect have the new password by then.
	ReasonRotatedPassword = "RotatedPassword"
	// ReasonRotatingAuthority: a new certificate authority was made, and is made known to servers
	// and programs. It signs certificates when all servers that are ready trust it, and programs of
	// an index had spec.security.authorityGraceSeconds to read it; the event names the servers that
	// are late. To do: let programs that do not read the Secret <index>-conn again have its ca.crt.
	ReasonRotatingAuthority = "RotatingAuthority"
	// ReasonRotatedAuthority: certificates are signed by the new authority; a second event says
	// that the former one is not trusted any more. To do: nothing.
	ReasonRotatedAuthority = "RotatedAuthority"
	// ReasonVolumeMoved: what a memory pod had is in another pod: its node is drained, the pool's
	// template or image changed, or somebody asked for it. To do: nothing.
	ReasonVolumeMoved = "VolumeMoved"
	// ReasonFailedOver: a copy took the place of a memory pod that was not heard; the event says
	// why. Nothing that was acknowledged is lost, and another copy is made. To do: nothing, unless
	// it comes again: then find out why pods are not heard.
	ReasonFailedOver = "FailedOver"
	// ReasonOtherRelease: reason of an event: the operator of another release looks after the
	// namespace, so this one, which watches it as well, leaves its objects alone; the event names
	// both. To do: take the namespace out of those that one of them watches (watchNamespaces).
	ReasonOtherRelease = "OtherRelease"
	// ReasonCopyDropped: a volume of a memory pool goes on without its copy, which was not heard,
	// is gone, or is not wanted any more; the event says why. To do: nothing, unless it comes
	// again: then find out why pods are not heard.
	ReasonCopyDropped = "CopyDropped"
)

// Reasons of conditions.
const (
	// ReasonServing: the index answers requests.
	ReasonServing = "Serving"

	// ReasonAsDesired: the index is as its spec asks.
	ReasonAsDesired = "AsDesired"

	// ReasonIntact: no data was lost.
	ReasonIntact = "Intact"

	// ReasonNotPaused: spec.paused is not set.
	ReasonNotPaused = "NotPaused"

	// ReasonPausedBySpec: spec.paused is set. To do: set spec.paused to false to
	// resume.
	ReasonPausedBySpec = "PausedBySpec"

	// ReasonPoolMissing: spec names a pool that does not exist, or a compute pool of another index.
	// To do: create the pool that the message names, or correct spec.
	ReasonPoolMissing = "PoolMissing"

	// ReasonPoolRefused: the API server refused to create or change a pool, a pod or another object
	// of the index. To do: the message quotes the API server: a quota, an admission rule, a
	// priority class that is missing, a label that is none, or a missing permission.
	ReasonPoolRefused = "PoolRefused"

	// ReasonNameTaken: an object that the operator must create exists and has another owner.
	// To do: delete or rename the object that the message names.
	ReasonNameTaken = "NameTaken"

	// ReasonWaitingForMemory: memory servers are not ready yet. To do: if it lasts, inspect the
	// pods of the memory pool: `kubectl describe dmmp`.
	ReasonWaitingForMemory = "WaitingForMemory"

	// ReasonMemoryPending: a memory server has less free memory than the index asks for. To do:
	// free memory on the server that the message names, delete an index there, or ask for less
	// (quota). An index that is served goes on with what it has.
	ReasonMemoryPending = "MemoryPending"

	// ReasonSettingsRefused: a compute server has not taken a setting of its pool, and goes on with
	// the former one. To do: correct spec.settings of the pool, or give the server an image that
	// knows the setting.
	ReasonSettingsRefused = "SettingsRefused"

	// ReasonQuotaRefused: a quota would fall below the memory in use. To do: raise the quota again,
	// or delete keys.
	ReasonQuotaRefused = "QuotaRefused"

	// ReasonMemoryUnreachable: a memory server does not answer. To do: inspect the pod and its
	// network; no data is lost while the pod runs.
	ReasonMemoryUnreachable = "MemoryUnreachable"

	// ReasonMemoryLost: a memory pod is gone, or its server restarted without its content. To do:
	// set spec.recovery.onDataLoss to Recreate, and restore a dump into the new index.
	ReasonMemoryLost = "MemoryLost"

	// ReasonRecreating: data was lost, and the index is created again, as spec.recovery asks.
	ReasonRecreating = "Recreating"

	// ReasonStateConflict: what the operator wrote down of an object is damaged, missing or older
	// than what its servers hold. Nothing is taken back, created again or replaced until that is
	// settled, and servers go on as they are. To do: what the message says.
	ReasonStateConflict = "StateConflict"

	// ReasonWaitingForCompute: compute servers are not ready yet. To do: if it lasts, inspect the
	// pods of the compute pool: `kubectl describe dmcp`.
	ReasonWaitingForCompute = "WaitingForCompute"

	// ReasonComputeMissing: fewer compute servers are ready than asked for. To do: inspect the pods
	// of the compute pool. The other servers take over the keys of a missing one when its lease
	// expires.
	ReasonComputeMissing = "ComputeMissing"

	// ReasonMoving: key ranges are moving, or servers are leaving.
	ReasonMoving = "Moving"

	// ReasonFencing: clients of deleted pods are not yet fenced at the memory server that the
	// message names. They may hold locks there until they are fenced or their leases expire.
	ReasonFencing = "Fencing"

	// ReasonFencePending: a key range is not served, because its former owner cannot be fenced at
	// the memory server that the message names. The range waits until that server answers or is
	// given up. To do: bring the memory server back. If its node will not return, switch the
	// machine off and delete the Node object: a pod that is only deleted stays while its node is
	// silent. What only this server has is lost then.
	ReasonFencePending = "FencePending"

	// ReasonMemoryJoining: memory servers join the index, and the message says what is waited for.
	// The index goes on meanwhile, without them. To do: nothing, unless it lasts: then look at the
	// pods that the message names. A compute pod of an earlier image does not follow: change its
	// image.
	ReasonMemoryJoining = "MemoryJoining"

	// ReasonPoolFull: the quota of the index has no memory left for a take-over or a move. A range
	// whose owner died is not served until it finds memory, and is tried again every 2 s. A range
	// that cannot move stays with its present server, and is tried again every 30 s. Also the
	// reason of an event. To do: raise the quota, or the servers of the memory pool if the quota is
	// all that they have, or delete keys that are served.
	ReasonPoolFull = "PoolFull"

	// ReasonFailed: a step failed and will be retried; the message names the step and the cause.
	ReasonFailed = "Failed"

	// ReasonWaitingForIndex: the index of a pool does not exist or is not ready for the pool yet.
	ReasonWaitingForIndex = "WaitingForIndex"

	// ReasonServersStarting: servers of a pool are not ready yet.
	ReasonServersStarting = "ServersStarting"

	// ReasonNodeUnfit: a server cannot use RDMA on its node; the message names the cause. To do:
	// correct the node as the message says, or select other nodes.
	ReasonNodeUnfit = "NodeUnfit"

	// ReasonPodRefused: the kubelet refused pods of a pool; the message quotes it and gives the
	// time of the next attempt. To do: correct what the kubelet names; the operator retries.
	ReasonPodRefused = "PodRefused"

	// ReasonPatchRefused: pod.patch would break the pods of a pool or of a Job, or is none; the
	// message says by what. Pods that there are go on, and no new ones are made. To do: correct
	// pod.patch as the message says.
	ReasonPatchRefused = "PatchRefused"

	// ReasonUnschedulable: no node has the resources that pods of a pool request; the message
	// quotes the scheduler. To do: add nodes, or ask for less in pod.resources.
	ReasonUnschedulable = "Unschedulable"

	// ReasonPodFailing: a container of a pod does not start, though its image is there, or ends
	// again and again; the message quotes the kubelet. To do: see the log that the message names.
	// If it was OOMKilled, raise the limit of memory in pod.resources.
	ReasonPodFailing = "PodFailing"

	// ReasonTransportMismatch: a memory pool has transport RDMA, and a compute pool of the index
	// has not; or the index has security.fabricTLS, and a memory pool cannot speak TLS. To do: give
	// both pools the same transport; for fabricTLS transport TCP and an image that knows it.
	ReasonTransportMismatch = "TransportMismatch"

	// ReasonNoRDMAImage: a pool has transport RDMA, and no image with RDMA is configured. To do:
	// set spec.image of the pool, or serverImageRDMA of the chart.
	ReasonNoRDMAImage = "NoRDMAImage"

	// ReasonIDsExhausted: a memory pool has used up its server ids. To do: create a new memory
	// pool, and restore a dump into an index there.
	ReasonIDsExhausted = "IDsExhausted"

	// ReasonInUse: indexes with spec.recovery.onDataLoss: Block have memory in a memory pool. To
	// do: before pods of the pool are evicted or deleted, dump these indexes, then name the pods in
	// the pool's annotation dmindex.io/release.
	ReasonInUse = "InUse"

	// ReasonNotInUse: no index with spec.recovery.onDataLoss: Block has memory in a memory pool.
	ReasonNotInUse = "NotInUse"

	// ReasonReleased: the annotation dmindex.io/release names all pods of a memory pool that have
	// data: they may be evicted and deleted.
	ReasonReleased = "Released"

	// ReasonReplacing: pods of a compute pool with an old template are being replaced, what is in
	// those of a memory pool is moved to new ones, or its servers change their image. To do:
	// nothing, unless it lasts: Degraded of a memory pool names what a move waits for.
	ReasonReplacing = "Replacing"

	// ReasonImageUnavailable: a pod with the image that is wanted does not start; the message names
	// the image and says why. Servers that run go on with the image that they have. To do: correct
	// spec.image, or what the message names: the registry, the pull secrets, the node.
	ReasonImageUnavailable = "ImageUnavailable"

	// ReasonVolumesInSync: each volume of a memory pool has as many copies as wanted.
	ReasonVolumesInSync = "VolumesInSync"

	// ReasonCopyMissing: a volume of a memory pool has fewer copies than wanted, or is to be moved
	// and is not yet. To do: nothing, unless it lasts: the message names what is waited for.
	ReasonCopyMissing = "CopyMissing"

	// ReasonNoNodeForCopy: no node has room for a further copy of a volume; the message quotes the
	// scheduler. Two copies never lie on one node. To do: add a node, or free memory on one.
	ReasonNoNodeForCopy = "NoNodeForCopy"

	// ReasonDecisionPending: a pod of a volume does not answer, and it is not known whether another
	// one may answer in its place; nothing is decided meanwhile. To do: bring the pod or its node
	// back. If the node will not return, switch its machine off and delete the Node object.
	ReasonDecisionPending = "DecisionPending"

	// ReasonCopyMayLack: nothing is left of a volume but a copy that was cut off before, and may
	// lack what was acknowledged last. To do: accept it with the annotation that the message names,
	// or let its indexes be made anew.
	ReasonCopyMayLack = "CopyMayLack"

	// ReasonNotPersistent: spec.durability of an index is Persistent, and a memory pool of it has
	// no persistence. To do: name pools with persistence in a new DMIndex, or write another
	// durability.
	ReasonNotPersistent = "NotPersistent"

	// ReasonClaimMissing: the PersistentVolumeClaim of a memory pod is being deleted, or lost its
	// volume; the message names the claim. Its server may answer for now. To do: bring the volume
	// back, or dump the indexes while their servers answer. If the disk is gone for good, delete
	// claim and pod: the indexes say then that their data is lost.
	ReasonClaimMissing = "ClaimMissing"

	// ReasonDiskMayLack: a memory server does not open its disk. The node lost its power, or the
	// disk failed, and with persistence.sync 5ms or Off that may have taken what was acknowledged
	// last. To do: accept it with the annotation that the message names, or restore a backup into
	// another index.
	ReasonDiskMayLack = "DiskMayLack"

	// ReasonDeleting: the object is being deleted; the message names what it waits for.
	ReasonDeleting = "Deleting"
)
