package report

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// SetCondition sets the condition of a kind to is, with as much of the message as has room.
func SetCondition(conditions *[]metav1.Condition, generation int64, kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	const longest = 2000
	apimeta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: Cut(message, longest), ObservedGeneration: generation})
}

// SetPaused sets the condition Paused of an object.
func SetPaused(conditions *[]metav1.Condition, generation int64, paused bool) {
	if paused {
		SetCondition(conditions, generation, dmv1.ConditionPaused, true, dmv1.ReasonPausedBySpec, "spec.paused is set: the operator changes nothing, and repairs what fails")
		return
	}
	SetCondition(conditions, generation, dmv1.ConditionPaused, false, dmv1.ReasonNotPaused, "")
}
