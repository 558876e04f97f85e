package v1alpha1

// Types of conditions.
const (
	// ConditionAvailable of a DMIndex: it answers requests.
	ConditionAvailable = "Available"

	// ConditionProgressing: the operator is on its way to what the spec asks for; the message says
	// what it waits for.
	ConditionProgressing = "Progressing"

	// ConditionDegraded: something does not work as it should; the message names it.
	ConditionDegraded = "Degraded"

	// ConditionDataLost of a DMIndex: a memory server lost its content, the index answers nothing.
	// The message names server and pod, and says what can be done.
	ConditionDataLost = "DataLost"

	// ConditionPaused: spec.paused is set and the operator changes nothing.
	ConditionPaused = "Paused"

	// ConditionPoolReady of a pool: all of its servers are there and ready.
	ConditionPoolReady = "PoolReady"
)

// Reasons of events.
const (
	// ReasonAutoscaled: spec.autoscaling of a compute pool made its replicas another number.
	ReasonAutoscaled = "Autoscaled"
)

// Reasons of conditions.
const (
	// ReasonServing: the index answers requests.
	ReasonServing = "Serving"

	// ReasonAsDesired: there is nothing left to do.
	ReasonAsDesired = "AsDesired"

	// ReasonIntact: no data was lost.
	ReasonIntact = "Intact"

	// ReasonNotPaused: spec.paused is not set.
	ReasonNotPaused = "NotPaused"

	// ReasonPausedBySpec: spec.paused is set. To do: set spec.paused to false to go on.
	ReasonPausedBySpec = "PausedBySpec"

	// ReasonPoolMissing: spec names a pool that does not exist, or a compute pool of another index.
	// To do: make the pool that the message names, or correct spec.
	ReasonPoolMissing = "PoolMissing"

	// ReasonPoolRefused: the API server refused to make or change a pool or another object of the
	// index. To do: the message has the words of the API server: a quota, an admission rule or a
	// right that is missing.
	ReasonPoolRefused = "PoolRefused"

	// ReasonNameTaken: an object that the operator must make exists and belongs to somebody else.
	// To do: delete or rename the object that the message names.
	ReasonNameTaken = "NameTaken"

	// ReasonWaitingForMemory: memory servers are not ready yet. To do: look at the pods of the
	// memory pool if it lasts: `kubectl describe dmmp`.
	ReasonWaitingForMemory = "WaitingForMemory"

	// ReasonMemoryPending: a memory server has not as much memory left as the index asks for. To
	// do: make room on the server that the message names, raise `servers` for indexes to come, or
	// ask for less.
	ReasonMemoryPending = "MemoryPending"

	// ReasonQuotaRefused: a quota would fall below what is in use. To do: raise quota again, or
	// delete keys.
	ReasonQuotaRefused = "QuotaRefused"

	// ReasonMemoryUnreachable: a memory server does not answer. To do: look at the pod and at its
	// network; nothing is lost as long as it lives.
	ReasonMemoryUnreachable = "MemoryUnreachable"

	// ReasonMemoryLost: a memory pod is gone, or its server came back without its content. To do:
	// restore a dump into an index that is made anew: spec.recovery.onDataLoss decides.
	ReasonMemoryLost = "MemoryLost"

	// ReasonRecreating: data was lost and the index is made anew, as spec.recovery asks.
	ReasonRecreating = "Recreating"

	// ReasonWaitingForCompute: no compute server is ready. To do: look at the pods of the compute
	// pool if it lasts: `kubectl describe dmcp`.
	ReasonWaitingForCompute = "WaitingForCompute"

	// ReasonComputeMissing: fewer compute servers are ready than asked for. To do: look at the pods
	// of the compute pool; the others serve its keys when its leases are over.
	ReasonComputeMissing = "ComputeMissing"

	// ReasonMoving: ranges are moving, or servers are leaving.
	ReasonMoving = "Moving"

	// ReasonFencing: clients whose pods are gone are still to be fenced at a memory server, which
	// the message names. Until then, or until their leases ran out there, locks may be theirs.
	ReasonFencing = "Fencing"

	// ReasonFencePending: a range of keys has no server that serves it, since its former owner
	// cannot be fenced at a memory server, which the message names. It waits until that server
	// answers, or is given up. To do: bring the memory server back, or delete its pod if it never
	// comes.
	ReasonFencePending = "FencePending"

	// ReasonPoolFull: a range of keys has no server that serves it, since the one that is to take
	// it over from a dead one finds no memory for that in the index's quota; or a range does not
	// move, and is served by the server that it is to leave. Both are tried again, at last every 2
	// s and every 30 s; the message says what to do. Also of the event. To do: raise quota, or
	// delete keys that are served.
	ReasonPoolFull = "PoolFull"

	// ReasonFailed: a step failed and is tried again; the message says which and why.
	ReasonFailed = "Failed"

	// ReasonWaitingForIndex: the index of a pool is not there or not as far yet.
	ReasonWaitingForIndex = "WaitingForIndex"

	// ReasonServersStarting: servers of a pool are not ready yet.
	ReasonServersStarting = "ServersStarting"

	// ReasonNodeUnfit: a server cannot use RDMA on its node; the message says what to change there.
	// To do: change on the node what the message says, or select other nodes.
	ReasonNodeUnfit = "NodeUnfit"

	// ReasonPodRefused: the kubelet refused pods of a pool; the message has its words, and when the
	// next attempt follows. To do: correct what the kubelet complains about; the operator tries
	// again.
	ReasonPodRefused = "PodRefused"

	// ReasonUnschedulable: no node has what pods of a pool ask for; the message has the scheduler's
	// words. To do: add nodes, or ask for less in pod.resources.
	ReasonUnschedulable = "Unschedulable"

	// ReasonTransportMismatch: a memory pool has transport RDMA, a compute pool of the index has
	// not. To do: give both pools the same transport.
	ReasonTransportMismatch = "TransportMismatch"

	// ReasonNoRDMAImage: a pool has transport RDMA, and nobody said which image has RDMA. To do:
	// set spec.image of the pool, or serverImageRDMA of the chart.
	ReasonNoRDMAImage = "NoRDMAImage"

	// ReasonIDsExhausted: a memory pool replaced so many servers that no id is left. To do: make a
	// new memory pool, and restore a dump into an index there.
	ReasonIDsExhausted = "IDsExhausted"

	// ReasonReplacing: pods of a compute pool are replaced by such of the newest template.
	ReasonReplacing = "Replacing"

	// ReasonDeleting: the object is being deleted; the message says what is waited for.
	ReasonDeleting = "Deleting"
)
