package v1alpha1

// VolumeState is how one volume of a memory pool fares: what one memory server holds.
type VolumeState string

// States of volumes.
const (
	// VolumeInSync: as many copies as wanted have all that was acknowledged.
	VolumeInSync VolumeState = "InSync"
	// VolumeCopying: a copy gets the content.
	VolumeCopying VolumeState = "Copying"
	// VolumeAlone: one pod has the content, and no other is ready for a copy.
	VolumeAlone VolumeState = "Alone"
	// VolumeSwitching: another pod is about to serve.
	VolumeSwitching VolumeState = "Switching"
	// VolumeUndecided: a pod does not answer, and it is not known which one can go on.
	VolumeUndecided VolumeState = "Undecided"
	// VolumeConflict: a server obeyed a view above the one that is recorded.
	VolumeConflict VolumeState = "Conflict"
	// VolumeLost: nobody has the content any more.
	VolumeLost VolumeState = "Lost"
)

// VolumeStatus is a volume that has been moved, has another copy or is to get one, as it was last
// seen. What is decided stands elsewhere.
type VolumeStatus struct {
	// ID of the volume in its pool: the number of the pod that it was made with.
	// +required
	ID int32 `json:"id"`

	// View is the number of the recorded view: who answers, and who has a copy.
	// +optional
	View int64 `json:"view,omitempty"`

	// Primary is the pod that answers.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Primary string `json:"primary,omitempty"`

	// Backup is the pod that has all that was acknowledged, too.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Backup string `json:"backup,omitempty"`

	// State of the volume.
	// +required
	// +kubebuilder:validation:Enum=InSync;Copying;Alone;Switching;Undecided;Conflict;Lost
	State VolumeState `json:"state"`

	// Percent of the memory that a copy has got which joins.
	// +optional
	Percent int32 `json:"percent,omitempty"`

	// Message says what is waited for.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// MaxShownVolumes is how many volumes the status of a pool shows at most.
const MaxShownVolumes = 128
