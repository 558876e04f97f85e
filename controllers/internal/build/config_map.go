package build

import (
	"encoding/json"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// IndexConfig is what the compute servers of an index must know.
func IndexConfig(index *dmv1.DMIndex, identity string, servers []config.MemoryServer) *config.Index {
	c := &config.Index{
		Identity:      identity,
		Name:          index.Name,
		Namespace:     index.Namespace,
		Design:        strings.ToLower(string(index.Spec.Design)),
		KeyType:       string(index.Spec.Key.Type),
		MaxKeyBytes:   8,
		MaxValueBytes: int(index.Spec.Value.MaxLength),
		Durability:    string(index.Spec.Durability),
		Routing:       string(index.Spec.Partitioning.Routing),
		MemoryServers: servers,
	}
	if index.Spec.Key.MaxLength != nil {
		c.MaxKeyBytes = int(*index.Spec.Key.MaxLength)
	}
	if index.Spec.NodeSize != nil {
		c.NodeBytes = int(*index.Spec.NodeSize)
	}
	if index.Spec.Expiry == dmv1.ExpiryEnabled {
		c.Expiry = config.ExpiryEnabled
	}
	if c.Routing == "" {
		c.Routing = config.RoutingAny
	}
	return c
}

// ConfigMap holds IndexConfig, to be mounted into compute pods.
func ConfigMap(index *dmv1.DMIndex, c *config.Index) (*corev1.ConfigMap, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, err
	}
	m := &corev1.ConfigMap{ObjectMeta: meta(ConfigMapName(index.Name), index.Namespace, map[string]string{dmv1.LabelIndex: index.Name})}
	m.Annotations = map[string]string{dmv1.AnnotationIdentity: c.Identity}
	m.Data = map[string]string{path.Base(config.IndexFile): string(data) + "\n"}
	return m, nil
}
