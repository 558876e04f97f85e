// Package e2e tests the operator and its servers on a real Kubernetes, with what a user has:
// kubectl, helm, redis-cli, the SDK.
//
// The tests need a cluster with the operator and images, which test/e2e/run brings (make e2e). They
// are behind the build tag e2e; those that end nodes and kill processes also need the cluster of
// hack/cluster, and the tag ownnodes; soaks have the tag e2efull. What needs metrics-server has the
// tag metrics.
package e2e
