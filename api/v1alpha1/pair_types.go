package v1alpha1

// KeySpec describes the keys of an index.
// +kubebuilder:validation:XValidation:rule="self.type != 'Bytes' || has(self.maxLength)",message="keys of type Bytes need maxLength: write how many bytes the longest key has, 1 to 1024"
// +kubebuilder:validation:XValidation:rule="self.type != 'Uint64' || !has(self.maxLength) || self.maxLength == 8",message="keys of type Uint64 have 8 bytes: leave maxLength out"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="key cannot be changed: make a new DMIndex and restore a dump into it"
type KeySpec struct {
	// Type of the keys.
	// +required
	Type KeyType `json:"type"`

	// MaxLength is the length of the longest key of type Bytes, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	MaxLength *int32 `json:"maxLength,omitempty"`
}

// ValueSpec describes the values of an index.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="value cannot be changed: make a new DMIndex and restore a dump into it"
type ValueSpec struct {
	// MaxLength is the length of the longest value, in bytes.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	MaxLength int32 `json:"maxLength"`
}

// Expiry is whether pairs of an index may expire.
// +kubebuilder:validation:Enum=Enabled;Disabled
type Expiry string

// Values of Expiry. Absent counts as ExpiryDisabled, and is no default of the API: that would be
// applied to indexes that are there, whose values are stored without room for a time.
const (
	ExpiryEnabled  Expiry = "Enabled"
	ExpiryDisabled Expiry = "Disabled"
)
