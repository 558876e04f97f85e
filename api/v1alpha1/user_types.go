package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UserAccess is what a user may do to keys.
// +kubebuilder:validation:Enum=Read;Write;ReadWrite
type UserAccess string

// The kinds of access.
const (
	AccessRead      UserAccess = "Read"      // commands that read: GET, SCAN, TTL
	AccessWrite     UserAccess = "Write"     // commands that write: SET, DEL, EXPIRE
	AccessReadWrite UserAccess = "ReadWrite" // both, and what reads and writes at once: INCR
)

// UserKeys are the keys that begin with a prefix.
type UserKeys struct {
	// Prefix of the keys, without a star. All keys are spec.allKeys.
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self != ''",message="prefix is empty, which would be every key: write spec.allKeys if that is meant"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^\\\\s\\\\pZ\\\\pC*?\\\\[\\\\]\\\\\\\\]*$')",message="write the beginning of the keys, such as cart:, without a star, white space, ?, [, ] and backslash"
	Prefix string `json:"prefix"`

	// Access is what the user may do to these keys.
	// +required
	Access UserAccess `json:"access"`
}

// UserChannels are one channel, or those whose names begin with a prefix.
// +kubebuilder:validation:XValidation:rule="has(self.name) != has(self.prefix)",message="write exactly one of name (of one channel) and prefix (of many)"
type UserChannels struct {
	// Name of one channel.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self != ''",message="name is empty: write the channel's name"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^\\\\s\\\\pZ\\\\pC*?\\\\[\\\\]\\\\\\\\]*$')",message="write the name of one channel, without a star, white space, ?, [, ] and backslash; many channels are a prefix"
	Name string `json:"name,omitempty"`

	// Prefix of the names of channels, without a star. All channels are spec.allChannels.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self != ''",message="prefix is empty, which would be every channel: write spec.allChannels if that is meant"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^\\\\s\\\\pZ\\\\pC*?\\\\[\\\\]\\\\\\\\]*$')",message="write the beginning of the names, such as news:, without a star, white space, ?, [, ] and backslash"
	Prefix string `json:"prefix,omitempty"`
}

// UserPassword names a key of a Secret that has a password.
type UserPassword struct {
	// Name of a Secret of the namespace. It needs the label dmindex.io/password-of with the name of
	// the index: whoever may write DMUsers must not make a password of any Secret that is there.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the Secret. What it has must be 16 to 512 bytes long. White space at its end is no
	// part of it.
	// +optional
	// +default="password"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// DMUserSpec is who may use an index, and what of it.
// +kubebuilder:validation:XValidation:rule="has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",message="name cannot be changed: make another DMUser"
// +kubebuilder:validation:XValidation:rule="has(self.keys) || has(self.allKeys) || has(self.channels) || self.?allChannels.orValue(false)",message="the user may do nothing: write keys, allKeys, channels or allChannels"
type DMUserSpec struct {
	// Index names the DMIndex of the namespace that the user is of.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="index cannot be changed: make another DMUser"
	Index string `json:"index"`

	// Name by which the user logs in. Default: that of the object. Of two DMUsers of one index with
	// the same name the older one has it. A name that the file in the Secret <index>-users has is
	// the user of the file, and the DMUser counts for nothing: it cannot widen what the file says.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._@-]*$')",message="write letters, digits, dots, dashes, _ and @, first a letter or a digit"
	Name string `json:"name,omitempty"`

	// Keys that the user may read or write.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Keys []UserKeys `json:"keys,omitempty"`

	// AllKeys is what the user may do to every key of the index. Default: nothing.
	// +optional
	AllKeys UserAccess `json:"allKeys,omitempty"`

	// Channels on which the user may publish, and to which it may subscribe.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Channels []UserChannels `json:"channels,omitempty"`

	// AllChannels are every channel of the index.
	// +optional
	AllChannels bool `json:"allChannels,omitempty"`

	// PasswordSecret has the password, and the next one when it changes. Default: the operator
	// makes a password, and a new one for each new value of the annotation
	// dmindex.io/rotate-password. When it is taken out, the password stays until then. While it
	// cannot be read, the password that the user had is right.
	// +optional
	PasswordSecret *UserPassword `json:"passwordSecret,omitempty"`

	// PasswordGraceSeconds is for how long the former password is still right after the Secret
	// <name>-user has a new one. Then connections that used it are cut.
	// +optional
	// +default=3600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	PasswordGraceSeconds int32 `json:"passwordGraceSeconds,omitempty"`

	// Disabled lets nobody log in as the user, and ends its connections.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// DMUserStatus is what became of a user.
type DMUserStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions are of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// User is the name by which the user logs in.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	User string `json:"user,omitempty"`

	// Secret has what a program needs to use the index as this user: username, password, host,
	// port, uri, ca.crt, and endpoints for the SDK. It is not there before servers know the user.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`

	// FormerPasswordUntil is until when a former password is right as well. Empty = none is.
	// +optional
	FormerPasswordUntil *metav1.Time `json:"formerPasswordUntil,omitempty"`

	// Conditions: Ready and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DMUser is a user of an index: what it may read and write, and its password.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dmu,categories=dmindex
// +kubebuilder:printcolumn:name="Index",type=string,JSONPath=`.spec.index`
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.status.user`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.status.secret`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Former until",type=string,priority=1,JSONPath=`.status.formerPasswordUntil`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name names a Secret too: write lower-case letters, digits and dashes, at most 63 characters"
// +kubebuilder:validation:XValidation:rule="self.spec.?name.orValue(self.metadata.name) != 'default'",message="the user default is the index's own, with the password in the Secret <index>-conn: write another spec.name"
type DMUser struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec DMUserSpec `json:"spec"`
	// +optional
	Status DMUserStatus `json:"status,omitzero"`
}

// UserName is the name by which the user logs in.
func (u *DMUser) UserName() string {
	if u.Spec.Name != "" {
		return u.Spec.Name
	}
	return u.Name
}

// DMUserList is a list of users.
//
// +kubebuilder:object:root=true
type DMUserList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DMUser `json:"items"`
}

// ConditionReady of a DMUser: all compute servers that are ready know the user as its spec says,
// and its Secret has a password that is right.
const ConditionReady = "Ready"

// Reasons of conditions of a DMUser. NameTaken, SecretMissing, AsDesired and Failed are those of
// other kinds as well.
const (
	// ReasonUserKnown: the user can log in.
	ReasonUserKnown = "UserKnown"

	// ReasonUserDisabled: spec.disabled is set. To do: set it to false to let the user in.
	ReasonUserDisabled = "UserDisabled"

	// ReasonIndexMissing: there is no DMIndex of the name in spec.index in the namespace, or it has
	// no Secret <index>-conn yet. To do: make the index, or make another DMUser.
	ReasonIndexMissing = "IndexMissing"

	// ReasonUserPropagating: compute servers, which the message names, have not read the newest
	// users yet. To do: if it lasts, see their pods. Those that were made by an operator without
	// DMUsers have to be replaced.
	ReasonUserPropagating = "UserPropagating"

	// ReasonPasswordRefused: what the Secret of spec.passwordSecret has is no password, or it lacks
	// the label that lets DMUsers use it. To do: write it as the message says.
	ReasonPasswordRefused = "PasswordRefused"

	// ReasonRulesRefused: the keys or channels of the user cannot be those of the index. To do:
	// write them as the message says.
	ReasonRulesRefused = "RulesRefused"

	// ReasonTooManyUsers: the index has as many DMUsers as it may have, or their rules are too long
	// together. The older ones go on. To do: delete some.
	ReasonTooManyUsers = "TooManyUsers"
)
