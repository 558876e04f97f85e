package controllers

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Variables that tell the operator of its own pod, by the downward API.
const (
	envPod       = "POD_NAME"
	envNamespace = "POD_NAMESPACE"
	envRelease   = "POD_RELEASE" // of Helm, by a label of the pod; may be empty
)

// operatorContainer is the operator's container in its pod.
const operatorContainer = "operator"

// ownImage is the image that the operator itself runs, which servers run that are told no other
// one. It is read from the operator's pod: whatever rewrote the manifest on its way (an overlay, a
// registry's mirror) is in there, and so there is no second place to be changed.
func ownImage(ctx context.Context, from client.Reader) (string, error) {
	key := client.ObjectKey{Namespace: os.Getenv(envNamespace), Name: os.Getenv(envPod)}
	if key.Namespace == "" || key.Name == "" {
		return "", fmt.Errorf("which image servers run is not known: name one with --server-image, or let the operator's pod tell its name and namespace in the variables %s and %s", envPod, envNamespace)
	}
	pod := &corev1.Pod{}
	if err := from.Get(ctx, key, pod); err != nil {
		return "", fmt.Errorf("read the operator's own pod %s, whose image servers run: %w: give its account the right to get pods in namespace %s, or name an image with --server-image", key, err, key.Namespace)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == operatorContainer && c.Image != "" {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("the operator's own pod %s has no container %s whose image servers could run: give its container that name, or name an image with --server-image", key, operatorContainer)
}
