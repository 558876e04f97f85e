package deviceplugin

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// LabelPrefix is of all labels that the plugin sets.
const LabelPrefix = "rdma.dmindex.io/"

// Labels of a node. docs/rdma.md says what they mean.
const (
	LabelHCAs          = LabelPrefix + "hcas"
	LabelLinkLayer     = LabelPrefix + "link-layer"
	LabelProvider      = LabelPrefix + "provider"
	LabelDeviceMemory  = LabelPrefix + "device-memory"
	LabelMaskedAtomics = LabelPrefix + "masked-atomics"
	mixed              = "mixed"
)

// labelsOf is what a node with these HCAs is labelled with: what holds for any of them, whether its
// port is up or not. None if there is none.
func labelsOf(hcas []hca.HCA) map[string]string {
	if len(hcas) == 0 {
		return map[string]string{}
	}
	memory, masked := true, true
	layer, provider := "", ""
	merge := func(have *string, v string) {
		if v == "" {
			v = "unknown"
		}
		if *have == "" {
			*have = v
		} else if *have != v {
			*have = mixed
		}
	}
	for _, h := range hcas {
		memory = memory && h.Abilities.DeviceMemory
		masked = masked && h.Abilities.MaskedAtomics
		merge(&provider, h.Abilities.Provider)
		for _, p := range h.Ports {
			merge(&layer, p.LinkLayer)
		}
	}
	return map[string]string{
		LabelHCAs: strconv.Itoa(len(hcas)), LabelLinkLayer: layer, LabelProvider: provider,
		LabelDeviceMemory: strconv.FormatBool(memory), LabelMaskedAtomics: strconv.FormatBool(masked),
	}
}

// Labeler sets the labels of this node that begin with LabelPrefix to just these.
type Labeler interface {
	Label(ctx context.Context, labels map[string]string) error
}

// nodeLabeler applies them at the Kubernetes API server.
type nodeLabeler struct {
	nodes typedcorev1.NodeInterface
	node  string
}

// NewNodeLabeler labels the node of a name, with the rights of the pod that this process runs in.
func NewNodeLabeler(node, version string) (Labeler, error) {
	if node == "" {
		return nil, fmt.Errorf("labels: the node's name is not known: set NODE_NAME from spec.nodeName, or say --labels=false")
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("labels: %w; say --labels=false outside of Kubernetes", err)
	}
	config.UserAgent = "dmindex-device-plugin/" + version
	config.Timeout = callLimit
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	return &nodeLabeler{client.Nodes(), node}, nil
}

// Label implements Labeler, by server-side apply: labels that were applied before and are not
// wanted any more go.
func (l *nodeLabeler) Label(ctx context.Context, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := l.nodes.Apply(ctx, applycorev1.Node(l.node).WithLabels(labels), metav1.ApplyOptions{FieldManager: "dmindex-device-plugin", Force: true})
	if err != nil {
		return fmt.Errorf("label node %s: %w", l.node, err)
	}
	return nil
}

const (
	// labels that are right are applied again, in case somebody took them away
	labelAgain = 10 * time.Minute
	labelRetry = 30 * time.Second // after a failure
)
