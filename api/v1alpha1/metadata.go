package v1alpha1

// Labels and annotations. What must survive without status is kept in annotations, and in a record
// beside the object.
const (
	// LabelManagedBy has the value ManagedBy on all that the operator makes. It watches no other
	// Secrets and pods.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "dmindex"

	// LabelName has the value "dmindex"; LabelComponent one of the components.
	LabelName        = "app.kubernetes.io/name"
	LabelComponent   = "app.kubernetes.io/component"
	ComponentMemory  = "memory"
	ComponentCompute = "compute"
	ComponentState   = "state" // of ConfigMaps: the records of what was decided
	// of pods that find out whether a node has an image
	ComponentProbe = "image-probe"

	// LabelIndex names the DMIndex that an object belongs to, LabelPool the pool.
	LabelIndex = "dmindex.io/index"
	LabelPool  = "dmindex.io/pool"

	// LabelServerID is the number of a pod in its pool, which is never given to another one.
	LabelServerID = "dmindex.io/server-id"

	// LabelVolume of a memory pod that is a further copy of a volume is the volume's number. It
	// keeps copies of a volume on different nodes; which volume a pod has its arguments say.
	LabelVolume = "dmindex.io/volume"

	// AnnotationState of an index, a pool or a DMBackup stamps its annotations in which the
	// operator wrote down what it decided: UID, sequence number, hash. They are in a ConfigMap too,
	// and restored from there.
	AnnotationState = "dmindex.io/state"

	// AnnotationStateOf of such a ConfigMap is the kind and the name of the object that it is of.
	AnnotationStateOf = "dmindex.io/state-of"

	// AnnotationUsedIDs of a memory pool are the numbers on whose servers indexes were made, as
	// ranges ("0-1,5"); "-" = none.
	AnnotationUsedIDs = "dmindex.io/used-ids"

	// AnnotationVolumes of a memory pool is who answers for each volume that ever had another copy:
	// JSON. Volumes without an entry are those of the pods with their numbers.
	AnnotationVolumes = "dmindex.io/volumes"

	// AnnotationComputeIDs of an index is, for each of its compute pools by name, whose numbers lie
	// below which bound: JSON.
	AnnotationComputeIDs = "dmindex.io/compute-ids"

	// AnnotationPausedSize of a pool is how many servers it had when spec.paused was seen first. It
	// is not there while spec.paused is false.
	AnnotationPausedSize = "dmindex.io/paused-size"

	// AnnotationNextID of a pool is the number of the next pod.
	AnnotationNextID = "dmindex.io/next-id"

	// AnnotationImage of an index or a pool is the image that an operator pinned because spec.image
	// is empty. That of a memory pod or a probe is the image that was asked for: an admission
	// webhook may have written another one into the pod.
	AnnotationImage = "dmindex.io/image"

	// AnnotationImageRDMA of an index is the same for its pools with transport RDMA.
	AnnotationImageRDMA = "dmindex.io/image-rdma"

	// AnnotationMemory of an index is its memory servers: JSON, server id to incarnation.
	AnnotationMemory = "dmindex.io/memory"

	// AnnotationJoined of an index is the memory servers that joined it since it was made: JSON,
	// server id to incarnation and state.
	AnnotationJoined = "dmindex.io/memory-joined"

	// AnnotationCreated of an index says that it may have acknowledged writes: from then on a lost
	// memory server is lost data.
	AnnotationCreated = "dmindex.io/created"

	// AnnotationIndexIncarnation of an index counts how often it was made anew.
	AnnotationIndexIncarnation = "dmindex.io/index-incarnation"

	// AnnotationIdentity of a compute pod, of index.json's ConfigMap and of a DMBackup is the
	// identity of the index that it is made for.
	AnnotationIdentity = "dmindex.io/identity"

	// AnnotationTemplate of a pod is a hash of what it was made of.
	AnnotationTemplate = "dmindex.io/template"

	// AnnotationLeaving of a compute pod is since when it is to leave. It is never taken back.
	AnnotationLeaving = "dmindex.io/leaving"

	// AnnotationTLS of a pod is a hash of its TLS Secret: a change makes the kubelet renew the
	// mounted files at once.
	AnnotationTLS = "dmindex.io/tls"

	// AnnotationAuth of a compute pod does the same for the index's passwords.
	AnnotationAuth = "dmindex.io/auth"

	// AnnotationUsers of a compute pod does the same for the users of DMUsers.
	AnnotationUsers = "dmindex.io/users"

	// LabelUser names the DMUser that a Secret belongs to.
	LabelUser = "dmindex.io/user"

	// LabelPasswordOf of a Secret that people write names the index whose DMUsers may have a
	// password from it. Without it none may: else whoever may write DMUsers could have any Secret
	// of the namespace taken for a password, and written into another one.
	LabelPasswordOf = "dmindex.io/password-of"

	// AnnotationRotatePassword of an index or a DMUser asks for a new password. Each value that was
	// not there before asks for one.
	AnnotationRotatePassword = "dmindex.io/rotate-password"

	// AnnotationRotateAuthority of an index or a memory pool asks for a new certificate authority.
	// Each value that was not there before asks for one.
	AnnotationRotateAuthority = "dmindex.io/rotate-authority"

	// AnnotationRelease of a memory pool names pods of the pool, separated by commas: they may be
	// evicted and deleted although data is lost with them.
	AnnotationRelease = "dmindex.io/release"

	// AnnotationMove of a memory pool names pods of the pool, separated by commas. What they hold
	// is moved to other pods, on other nodes, and they are deleted.
	AnnotationMove = "dmindex.io/move"

	// AnnotationAcceptCopy of a memory pool names pods of the pool, separated by commas. Where
	// nothing else is left of a volume, its copy there is to serve, although it may lack what was
	// acknowledged last.
	AnnotationAcceptCopy = "dmindex.io/accept-copy"

	// AnnotationAcceptLoss of a memory pool with persistence names pods of the pool, separated by
	// commas. A server there that does not open its disk, since the loss of a node's power may have
	// taken what was acknowledged last, opens it. A name counts once: for what is refused now, and
	// never for a later loss. To accept another one, remove the name and set it again. Of a memory
	// pod it tells the server so.
	AnnotationAcceptLoss = "dmindex.io/accept-loss"

	// AnnotationUsed of a memory pod says that an index was made on its server: an empty disk is
	// not that of its volume.
	AnnotationUsed = "dmindex.io/used"

	// AnnotationLossAccepted of a claim says that AnnotationAcceptLoss of the pool has counted.
	AnnotationLossAccepted = "dmindex.io/loss-accepted"

	// LabelReleased of a memory pod says that its pool's AnnotationRelease names it, or that it has
	// no data although others of its pool have. The pool's disruption budget does not count it.
	LabelReleased = "dmindex.io/released"

	// AnnotationKeptFor of a memory pod names the indexes whose data would be lost with it. The
	// pod is not deleted by people while it is there.
	AnnotationKeptFor = "dmindex.io/kept-for"

	// AnnotationApplied is a hash of what the operator last wrote into an object.
	AnnotationApplied = "dmindex.io/applied"

	// Finalizer of an index whose memory must be given back.
	Finalizer = "dmindex.io/evict"

	// FinalizerInUse of a memory pool in which an index has memory.
	FinalizerInUse = "dmindex.io/in-use"
)
