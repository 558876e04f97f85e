package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupDeletionPolicy is what becomes of an artifact when its DMBackup is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type BackupDeletionPolicy string

// The policies.
const (
	BackupRetain BackupDeletionPolicy = "Retain" // it stays where it is
	BackupDelete BackupDeletionPolicy = "Delete" // it is deleted first
)

// BackupVolume is a volume for artifacts.
type BackupVolume struct {
	// ClaimName names a PersistentVolumeClaim of this namespace. Group 65532, or the one that the
	// cluster gives pods (--cluster-user-ids), must be able to write there.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName"`

	// Path of a folder in the volume. Default: its root.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`
	// +kubebuilder:validation:XValidation:rule="self.split('/').all(p, p != '.' && p != '..')",message="path must not have . or .. as a part: write a folder such as dumps/demo"
	Path string `json:"path,omitempty"`
}

// BackupS3 is a bucket of an S3-compatible server for artifacts.
type BackupS3 struct {
	// Endpoint is the URL of the server; with http, keys and artifacts go in the clear.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+$`
	Endpoint string `json:"endpoint"`

	// Bucket that exists.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket"`

	// Region of the bucket. Default: the server says.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// Proxy is the URL of the HTTP proxy through which the server is reached. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+$`
	Proxy string `json:"proxy,omitempty"`

	// Prefix of the objects' names, as a path. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`
	// +kubebuilder:validation:XValidation:rule="self.split('/').all(p, p != '.' && p != '..')",message="prefix must not have . or .. as a part: write a path such as dumps/demo"
	Prefix string `json:"prefix,omitempty"`

	// CredentialsSecret names a Secret of this namespace with the keys AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY, and, if they are needed, AWS_SESSION_TOKEN and ca.crt (of the server's
	// certificate, in PEM).
	// +required
	CredentialsSecret SecretReference `json:"credentialsSecret"`
}

// SecretReference names a Secret of the same namespace.
type SecretReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// BackupStorage is where artifacts are kept.
// +kubebuilder:validation:XValidation:rule="has(self.volume) != has(self.s3)",message="write exactly one of volume and s3"
type BackupStorage struct {
	// Volume keeps artifacts as files.
	// +optional
	Volume *BackupVolume `json:"volume,omitempty"`

	// S3 keeps artifacts as objects.
	// +optional
	S3 *BackupS3 `json:"s3,omitempty"`

	// EncryptionSecret names a Secret of this namespace with the key identities: identities of age
	// (age-encryption.org), a line each, as age-keygen makes them. Artifacts are encrypted to the
	// first one and decrypted with whichever fits, so to change it put a new one before the others.
	// Without the identity an artifact cannot be restored: keep a copy outside of the cluster.
	// Default: artifacts are not encrypted.
	// +optional
	EncryptionSecret *SecretReference `json:"encryptionSecret,omitempty"`
}

// BackupTemplate is how a backup is made.
type BackupTemplate struct {
	// IndexName names the DMIndex of this namespace that is dumped.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	IndexName string `json:"indexName"`

	// Storage is where the artifact is kept.
	// +required
	Storage BackupStorage `json:"storage"`

	// DeletionPolicy is what becomes of the artifact when the DMBackup is deleted. Default: Retain;
	// Delete for those that a DMBackupSchedule makes.
	// +optional
	DeletionPolicy BackupDeletionPolicy `json:"deletionPolicy,omitempty"`

	// TimeoutSeconds is how long after its creation a backup must be complete. Then it has failed.
	// +optional
	// +default=21600
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// Image of the Job. Default: that of the operator's servers, --server-image.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// Pod is what can be said about the Job's pods.
	// +optional
	Pod PodTemplate `json:"pod,omitzero"`
}

// DMBackupSpec is what a backup shall be.
// +kubebuilder:validation:XValidation:rule="self.indexName == oldSelf.indexName && self.storage == oldSelf.storage",message="indexName and storage cannot be changed: make a new DMBackup"
type DMBackupSpec struct {
	BackupTemplate `json:",inline"`
}

// BackupPhase is how far a backup is.
type BackupPhase string

// The phases.
const (
	// waits for something; the condition Complete says for what
	BackupPending  BackupPhase = "Pending"
	BackupRunning  BackupPhase = "Running"  // its Job is at work
	BackupComplete BackupPhase = "Complete" // the artifact is there, and was read back
	BackupFailed   BackupPhase = "Failed"   // there is no artifact
	BackupDeleting BackupPhase = "Deleting" // the artifact is being deleted
)

// DMBackupStatus is what the operator knows of a backup.
type DMBackupStatus struct {
	// ObservedGeneration is the newest one that the operator acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase of the backup.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Phase BackupPhase `json:"phase,omitempty"`

	// Artifact is the path of the file, from the root of the volume, or the name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Artifact string `json:"artifact,omitempty"`

	// Keys is how many pairs are in the artifact.
	// +optional
	Keys *int64 `json:"keys,omitempty"`

	// Bytes is the length of the artifact.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`

	// Digest of the artifact's content, as it was read back: "sha256:" and 64 hexadecimal digits.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`

	// Started is when the Job was made.
	// +optional
	Started *metav1.Time `json:"started,omitempty"`

	// Finished is when the backup was complete, or had failed.
	// +optional
	Finished *metav1.Time `json:"finished,omitempty"`

	// Conditions: Complete and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DMBackup is a dump of an index, made once, verified, and kept.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dmb,categories=dmindex
// +kubebuilder:printcolumn:name="Index",type=string,JSONPath=`.spec.indexName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Keys",type=integer,JSONPath=`.status.keys`
// +kubebuilder:printcolumn:name="Bytes",type=integer,JSONPath=`.status.bytes`
// +kubebuilder:printcolumn:name="Started",type=date,JSONPath=`.status.started`
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.finished`
// +kubebuilder:printcolumn:name="Digest",type=string,priority=1,JSONPath=`.status.digest`
// +kubebuilder:printcolumn:name="Artifact",type=string,priority=1,JSONPath=`.status.artifact`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Complete")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names a Job too: write lower-case letters, digits and dashes, at most 52 characters"
type DMBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec DMBackupSpec `json:"spec"`
	// +optional
	Status DMBackupStatus `json:"status,omitzero"`
}

// DMBackupList is a list of backups.
//
// +kubebuilder:object:root=true
type DMBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DMBackup `json:"items"`
}

// BackupResult is what AnnotationBackup of a complete DMBackup says, as JSON.
// +kubebuilder:object:generate=false
type BackupResult struct {
	// Index is the identity of the incarnation of the index that was dumped, as in the status of
	// the index. If the index was made anew meanwhile, both are named. Empty = not known.
	Index    string      `json:"index,omitempty"`
	Artifact string      `json:"artifact"`
	Keys     int64       `json:"keys"`
	Bytes    int64       `json:"bytes"`
	Digest   string      `json:"digest"` // in hex
	Started  metav1.Time `json:"started"`
	Finished metav1.Time `json:"finished"`
}
