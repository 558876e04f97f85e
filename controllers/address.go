package controllers

import (
	"net"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

func address(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// pausedCondition reports whether an object is paused.
func pausedCondition(conditions *[]metav1.Condition, generation int64, paused bool) {
	if paused {
		condition(conditions, generation, dmv1.ConditionPaused, true, dmv1.ReasonPausedBySpec, "spec.paused is set: the operator changes nothing, and repairs what fails")
		return
	}
	condition(conditions, generation, dmv1.ConditionPaused, false, dmv1.ReasonNotPaused, "")
}
