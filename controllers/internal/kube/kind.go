package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// KindOf is the kind of one of our objects; typed objects that were read do not say.
func KindOf(object client.Object) schema.GroupVersionKind {
	switch object.(type) {
	case *dmv1.DMMemoryPool:
		return dmv1.GroupVersion.WithKind(dmv1.KindMemoryPool)
	case *dmv1.DMComputePool:
		return dmv1.GroupVersion.WithKind(dmv1.KindComputePool)
	case *dmv1.DMIndex:
		return dmv1.GroupVersion.WithKind(dmv1.KindIndex)
	case *dmv1.DMBackup:
		return dmv1.GroupVersion.WithKind(dmv1.KindBackup)
	}
	panic(fmt.Sprintf("KindOf: %T is no kind of this group", object))
}
