package v1alpha1

// Types of conditions of a DMBackup.
const (
	// ConditionComplete of a DMBackup: its artifact is there, and was read back with the right
	// digest. While it is False, the message names what the backup waits for.
	ConditionComplete = "Complete"

	// ConditionFailed of a DMBackup: there will be no artifact. The message has the cause.
	ConditionFailed = "Failed"
)

// Reasons of conditions of a DMBackup.
const (
	// ReasonVerified: the artifact was read back, and its digest is right.
	ReasonVerified = "Verified"

	// ReasonDumping: the Job of a backup is at work. To do: if it lasts, inspect the pod that the
	// message names.
	ReasonDumping = "Dumping"

	// ReasonQueued: another backup of the same index is at work, which the message names.
	ReasonQueued = "Queued"

	// ReasonIndexUnavailable: the index that is to be dumped does not exist or is not Available. To
	// do: see the conditions of the index.
	ReasonIndexUnavailable = "IndexUnavailable"

	// ReasonSecretMissing: the Secret with the credentials of a backup's storage, or with the
	// password of a DMUser, does not exist, or lacks a key. To do: make it, with the keys that the
	// message names.
	ReasonSecretMissing = "SecretMissing"

	// ReasonDumpFailed: the Job of a backup failed; the message has its last error. To do: correct
	// what it names, and make a new DMBackup.
	ReasonDumpFailed = "DumpFailed"

	// ReasonTimedOut: a backup was not complete in time. To do: correct what the message names, or
	// raise spec.timeoutSeconds of a new DMBackup.
	ReasonTimedOut = "TimedOut"

	// ReasonBackupInUse: a backup is being deleted, and an index, which the message names, is
	// loaded from its artifact. It goes once that is done. To do: wait, or name another backup in
	// spec.recovery.fromBackup of the index.
	ReasonBackupInUse = "BackupInUse"

	// ReasonNotFailed: a backup has not failed.
	ReasonNotFailed = "NotFailed"
)

// Reasons of conditions of a DMIndex that is loaded from a backup.
const (
	// ReasonWaitingForBackup: the backup that the index is to be loaded from does not exist or is
	// not complete. To do: see `kubectl get dmb`, or correct spec.recovery.fromBackup.
	ReasonWaitingForBackup = "WaitingForBackup"

	// ReasonRestoring: the index is loaded from a backup, and answers no requests before that is
	// done.
	ReasonRestoring = "Restoring"

	// ReasonRestoreFailed: the index could not be loaded from its backup; the message has the last
	// error, and it is tried again. To do: correct what the message names, or name another backup
	// in spec.recovery.fromBackup, with which the index starts again.
	ReasonRestoreFailed = "RestoreFailed"

	// ReasonRestored: reason of an event: the index was loaded from a backup.
	ReasonRestored = "Restored"
)

// Labels and annotations of backups.
const (
	// AnnotationRestore of an index is what it is loaded from, and whether that is done.
	AnnotationRestore = "dmindex.io/restore"

	// ComponentBackup is the LabelComponent of Jobs that dump, restore and delete artifacts, and of
	// their pods.
	ComponentBackup = "backup"

	// LabelLoaded is in the selector of the Service of an index that is not loaded from its backup
	// yet. No pod has it.
	LabelLoaded = "dmindex.io/loaded"

	// LabelBackup names the DMBackup that a Job belongs to.
	LabelBackup = "dmindex.io/backup"

	// AnnotationBackup of a DMBackup is its BackupResult once it is complete: what its status says
	// follows from it.
	AnnotationBackup = "dmindex.io/backup-result"

	// FinalizerArtifact of a DMBackup holds it until its artifact is deleted, if it is to be.
	FinalizerArtifact = "dmindex.io/artifact"
)
