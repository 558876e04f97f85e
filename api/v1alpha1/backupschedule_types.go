package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupConcurrency is what happens when a backup is due while an earlier one of the same schedule
// is not over.
// +kubebuilder:validation:Enum=Forbid;Allow;Replace
type BackupConcurrency string

// The policies.
const (
	// it is made once the earlier one is over, if that is within startingDeadlineSeconds
	ConcurrencyForbid BackupConcurrency = "Forbid"
	// it is made; backups of an index still run one after the other
	ConcurrencyAllow BackupConcurrency = "Allow"
	// the earlier one is deleted
	ConcurrencyReplace BackupConcurrency = "Replace"
)

// BackupRetention says which backups of a schedule are deleted. The newest complete one of each
// incarnation of an index never is, nor is the one that the keys of the newest have collapsed from.
type BackupRetention struct {
	// KeepLast is how many complete backups of an index are kept.
	// +optional
	// +default=7
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	KeepLast int32 `json:"keepLast,omitempty"`

	// MaxAgeHours is how old a complete backup may get. Older ones are deleted. The age of each is
	// counted up to the time after the newest complete one: while no newer backup completes, none
	// is deleted. Default: any age.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=876000
	MaxAgeHours int32 `json:"maxAgeHours,omitempty"`

	// KeepFailed is how many failed backups are kept, for their messages.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	KeepFailed int32 `json:"keepFailed,omitempty"`
}

// DMBackupScheduleSpec is when which backups are made.
type DMBackupScheduleSpec struct {
	// Schedule in the five fields of cron, such as "30 2 * * *", or @hourly, @daily, @weekly,
	// @monthly, @yearly.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ') && self.matches('^\\\\s*(@[a-z]+|[^@\\\\s]+(\\\\s+[^@\\\\s]+){4})\\\\s*$')",message="write five fields, such as 30 2 * * *, or @daily, and the time zone in timeZone; times instead of @every"
	Schedule string `json:"schedule"`

	// TimeZone of the schedule, by its name in the IANA database, such as Europe/Berlin.
	// +optional
	// +default="Etc/UTC"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// StartingDeadlineSeconds is how much later than its time a backup may be made, if the operator
	// was away or an earlier one was not over. Default: any time.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds int32 `json:"startingDeadlineSeconds,omitempty"`

	// SpreadSeconds is within how long after its times the schedule's backups are made, so that
	// schedules of the same times do not all begin at once. How much later follows from the
	// schedule's UID and is the same each time. 0 = at the times themselves.
	// +optional
	// +default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=21600
	SpreadSeconds int32 `json:"spreadSeconds,omitempty"`

	// ConcurrencyPolicy is what happens when a backup is due while an earlier one is not over.
	// +optional
	// +default="Forbid"
	ConcurrencyPolicy BackupConcurrency `json:"concurrencyPolicy,omitempty"`

	// Suspend makes no further backups. Those of the time in between are missed.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Retention says which backups are deleted.
	// +optional
	// +default={}
	Retention BackupRetention `json:"retention,omitzero"`

	// Template of the backups. Their deletionPolicy is Delete unless it is given: a backup that
	// retention deletes goes with its artifact.
	// +required
	Template BackupTemplate `json:"template"`
}

// DMBackupScheduleStatus is what the operator knows of a schedule.
type DMBackupScheduleStatus struct {
	// ObservedGeneration is the newest one that the operator acted on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// LastScheduleTime is the time of the newest backup that was made or missed.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// NextScheduleTime is when the next backup is made.
	// +optional
	NextScheduleTime *metav1.Time `json:"nextScheduleTime,omitempty"`

	// LastComplete is the newest complete backup of the index that the template names.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LastComplete string `json:"lastComplete,omitempty"`

	// LastCompleteTime is when that one was finished.
	// +optional
	LastCompleteTime *metav1.Time `json:"lastCompleteTime,omitempty"`

	// Complete is how many complete backups there are.
	// +optional
	Complete int32 `json:"complete,omitempty"`

	// Active are the backups that are not over: the first 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Active []string `json:"active,omitempty"`

	// Conditions: Scheduled, KeysCollapsed.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DMBackupSchedule makes backups of an index at certain times, and deletes old ones.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dmbs,categories=dmindex
// +kubebuilder:printcolumn:name="Index",type=string,JSONPath=`.spec.template.indexName`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Complete",type=integer,JSONPath=`.status.complete`
// +kubebuilder:printcolumn:name="Last",type=string,JSONPath=`.status.lastComplete`
// +kubebuilder:printcolumn:name="Finished",type=date,JSONPath=`.status.lastCompleteTime`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduleTime`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Scheduled")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name begins the names of backups: write lower-case letters, digits and dashes, at most 40 characters"
type DMBackupSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec DMBackupScheduleSpec `json:"spec"`
	// +optional
	Status DMBackupScheduleStatus `json:"status,omitzero"`
}

// DMBackupScheduleList is a list of schedules.
//
// +kubebuilder:object:root=true
type DMBackupScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DMBackupSchedule `json:"items"`
}

// Types of conditions of a DMBackupSchedule.
const (
	// ConditionScheduled of a DMBackupSchedule: backups are made at their times.
	ConditionScheduled = "Scheduled"

	// ConditionKeysCollapsed of a DMBackupSchedule: the newest complete backup of the index has a
	// tenth of the keys of an earlier one, or fewer. The earlier one is kept.
	ConditionKeysCollapsed = "KeysCollapsed"
)

// Reasons of the condition KeysCollapsed.
const (
	// ReasonKeysAsBefore: no complete backup has ten times the keys of the newest.
	ReasonKeysAsBefore = "KeysAsBefore"

	// ReasonFewerKeys: the newest complete backup has far fewer keys than an earlier one; the
	// message names both. To do: if data was lost, load the index from the earlier one, which is
	// kept. Else delete the earlier DMBackup.
	ReasonFewerKeys = "FewerKeys"
)

// Reasons of the condition Scheduled.
const (
	// ReasonScheduled: the next backup is made at its time.
	ReasonScheduled = "Scheduled"

	// ReasonSuspended: spec.suspend is set. To do: set it to false to go on.
	ReasonSuspended = "Suspended"

	// ReasonBadSchedule: spec.schedule or spec.timeZone cannot be read. To do: write it as the
	// message says.
	ReasonBadSchedule = "BadSchedule"

	// ReasonMissed: the newest backup was not made within spec.startingDeadlineSeconds. The next
	// one is made at its time.
	ReasonMissed = "Missed"

	// ReasonStillRunning: a backup is due, and an earlier one is not over. It is made when that one
	// is.
	ReasonStillRunning = "StillRunning"
)

// Labels and annotations of the backups of a schedule.
const (
	// LabelSchedule names the DMBackupSchedule that a DMBackup was made by.
	LabelSchedule = "dmindex.io/schedule"

	// AnnotationScheduled of a DMBackup is the time for which its schedule made it.
	AnnotationScheduled = "dmindex.io/scheduled-at"
)
