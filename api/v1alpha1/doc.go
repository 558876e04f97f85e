// Package v1alpha1 is the API of dmindex: indexes on disaggregated memory, and the pools of servers
// that they run on.
//
// +kubebuilder:object:generate=true
// +groupName=dmindex.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types of this package.
var GroupVersion = schema.GroupVersion{Group: "dmindex.io", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
var AddToScheme = schemeBuilder.AddToScheme

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&DMIndex{}, &DMIndexList{},
		&DMMemoryPool{}, &DMMemoryPoolList{},
		&DMComputePool{}, &DMComputePoolList{},
		&DMBackup{}, &DMBackupList{},
		&DMBackupSchedule{}, &DMBackupScheduleList{},
		&DMUser{}, &DMUserList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// Kinds.
const (
	KindIndex       = "DMIndex"
	KindMemoryPool  = "DMMemoryPool"
	KindComputePool = "DMComputePool"
	KindBackup      = "DMBackup"
	KindUser        = "DMUser"
)
