package user

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// Setup adds the reconciler of users. gate keeps a reconciler from what another operator looks
// after.
func Setup(mgr ctrl.Manager, b reconciler.Base, gate func(r reconcile.Reconciler, kind client.Object) reconcile.Reconciler, options controller.Options) error {
	r := &Reconciler{b}
	return ctrl.NewControllerManagedBy(mgr).Named("dmuser").WithOptions(options).
		Watches(&dmv1.DMUser{}, handler.EnqueueRequestsFromMapFunc(indexOfUser), reconciler.Changed(reconciler.Nothing[*dmv1.DMUser])).
		Watches(&dmv1.DMIndex{}, &handler.EnqueueRequestForObject{}, reconciler.Changed(reconciler.Nothing[*dmv1.DMIndex])).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.indexOfSecret)).
		Complete(gate(r, &dmv1.DMIndex{}))
}

func indexOfUser(_ context.Context, object client.Object) []reconcile.Request {
	u, ok := object.(*dmv1.DMUser)
	if !ok {
		return nil
	}
	return []reconcile.Request{reconciler.Request(u.Namespace, u.Spec.Index)}
}

// indexOfSecret is the index whose users a Secret of the operator's concerns.
func (r *Reconciler) indexOfSecret(ctx context.Context, object client.Object) []reconcile.Request {
	switch owner := metav1.GetControllerOf(object); {
	case owner == nil:
	case owner.Kind == dmv1.KindIndex:
		return []reconcile.Request{reconciler.Request(object.GetNamespace(), owner.Name)}
	case owner.Kind == dmv1.KindUser:
		u := &dmv1.DMUser{}
		if r.Get(ctx, types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}, u) == nil {
			return indexOfUser(ctx, u)
		}
	}
	return nil
}
