package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// StateRecordName is the name of the record of an object (package state). It has the UID: what was
// written for an object of the same name, here or in a cluster that was copied, is another record.
func StateRecordName(uid types.UID) string { return "dmindex-state-" + string(uid) }

// labelNotBackedUp keeps Velero from copying an object: a record is of no use to an object that is
// restored, which has another UID.
const labelNotBackedUp = "velero.io/exclude-from-backup"

// recordKey is what a record calls the value of an annotation: its keys have no slashes.
func recordKey(annotation string) string {
	_, name, _ := strings.Cut(annotation, "/")
	return name
}

// StateRecord is the record of an object of this kind and name: values by annotation, and their
// stamp.
func StateRecord(kind, name, namespace string, uid types.UID, stamp string, values map[string]string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: meta(StateRecordName(uid), namespace, map[string]string{dmv1.LabelComponent: dmv1.ComponentState, labelNotBackedUp: "true"})}
	m.Annotations = map[string]string{dmv1.AnnotationStateOf: kind + "/" + name}
	m.Data = map[string]string{recordKey(dmv1.AnnotationState): stamp}
	for annotation, value := range values {
		m.Data[recordKey(annotation)] = value
	}
	return m
}

// ReadStateRecord is the stamp that a record has, and the values of annotations.
func ReadStateRecord(record *corev1.ConfigMap, annotations []string) (stamp string, values map[string]string) {
	values = map[string]string{}
	for _, annotation := range annotations {
		if value := record.Data[recordKey(annotation)]; value != "" {
			values[annotation] = value
		}
	}
	return record.Data[recordKey(dmv1.AnnotationState)], values
}
