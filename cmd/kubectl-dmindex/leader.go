package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	leaderLease = "operator.dmindex.io"
	// leaderUnseen is how old the newest renewal may be, which the leader makes every few seconds:
	// the clocks of the operator's node and of this machine may differ.
	leaderUnseen = time.Minute
	leasesListed = 100
)

// leaderless says that no operator leads, or "". Statuses are as the last leader left them, and
// nothing in them says how old they are: a settled index is written to by nobody.
func (c *cluster) leaderless(ctx context.Context, now time.Time) (string, error) {
	leases := c.pods.CoordinationV1().Leases(metav1.NamespaceAll)
	list, err := leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + leaderLease, Limit: leasesListed})
	if apierrors.IsForbidden(err) {
		// Whoever may not look into all namespaces may be allowed to look into the operator's.
		list = &coordinationv1.LeaseList{}
		var lease *coordinationv1.Lease
		if lease, err = c.pods.CoordinationV1().Leases(c.system).Get(ctx, leaderLease, metav1.GetOptions{}); err == nil {
			list.Items = []coordinationv1.Lease{*lease}
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("whether an operator leads: %w", err)
	}
	return sayLeaderless(list.Items, now), nil
}

// sayLeaderless is what to say of the leases of all operators: nothing if one of them is renewed.
func sayLeaderless(leases []coordinationv1.Lease, now time.Time) string {
	var last *coordinationv1.Lease
	for i := range leases {
		l := &leases[i]
		if l.Spec.RenewTime == nil {
			continue
		}
		if last == nil || l.Spec.RenewTime.After(last.Spec.RenewTime.Time) {
			last = l
		}
	}
	const then = "what follows may be old, and nothing is repaired, scaled or renewed"
	if last == nil {
		return "no operator leads: " + then + ". Install one that watches this namespace."
	}
	age := now.Sub(last.Spec.RenewTime.Time)
	if age <= leaderUnseen {
		return ""
	}
	return fmt.Sprintf("no operator leads for %s: %s. See kubectl -n %s get pods -l app.kubernetes.io/component=operator.", duration.HumanDuration(age), then, last.Namespace)
}
