package build

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/pkg/logs"
)

// UseIndex lets a compute pod serve as the spec of its index says. Pods of indexes that use nothing
// new are as they were. The environment has it and no argument: an image that does not know it
// would not start for an argument, and does not reach the memory without it.
func UseIndex(p *corev1.Pod, index *dmv1.DMIndex) {
	c := &p.Spec.Containers[0]
	if index.Spec.Security.FabricTLS {
		c.Env = append(c.Env, fabricTLS)
	}
	if tls := index.Spec.Endpoints.RESP.TLS; tls.Mode == dmv1.RESPTLSOptional || tls.Mode == dmv1.RESPTLSRequired {
		c.Env = append(c.Env, corev1.EnvVar{Name: config.EnvRESPTLS, Value: strings.ToLower(string(tls.Mode))})
		if tls.SecretName != "" {
			c.Env = append(c.Env, corev1.EnvVar{Name: config.EnvRESPTLSDir, Value: config.RESPTLSDir})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "resp-tls", MountPath: config.RESPTLSDir, ReadOnly: true})
			p.Spec.Volumes = append(p.Spec.Volumes, secretVolume("resp-tls", tls.SecretName,
				corev1.KeyToPath{Key: corev1.TLSCertKey, Path: corev1.TLSCertKey}, corev1.KeyToPath{Key: corev1.TLSPrivateKeyKey, Path: corev1.TLSPrivateKeyKey}))
		}
	}
	UseLog(p, index.Spec.Log)
}

// UseLog lets a server log as the spec of its index says, whatever the operator says of servers.
func UseLog(p *corev1.Pod, spec dmv1.LogSpec) {
	c := &p.Spec.Containers[0]
	for _, v := range []corev1.EnvVar{{Name: logs.EnvLevel, Value: spec.Level}, {Name: logs.EnvFormat, Value: spec.Format}} {
		if v.Value != "" {
			c.Env = append(c.Env, v)
		}
	}
}

// TemplateOf is what of an index's spec compute pods are made of. Indexes that use nothing new have
// nothing here, or an upgrade would replace their pods.
func TemplateOf(index *dmv1.DMIndex) map[string]any {
	t := map[string]any{}
	if index.Spec.Security.FabricTLS {
		t["fabricTLS"] = true
	}
	if tls := index.Spec.Endpoints.RESP.TLS; tls.Mode != "" && tls.Mode != dmv1.RESPTLSOff {
		t["respTLS"] = tls
	}
	if index.Spec.Log != (dmv1.LogSpec{}) {
		t["log"] = index.Spec.Log
	}
	return t
}

var fabricTLS = corev1.EnvVar{Name: config.EnvFabricTLS, Value: "true"}

// OverTLS reports whether a compute pod reaches its memory under TLS only.
func OverTLS(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == dmv1.ComponentCompute && slices.Contains(c.Env, fabricTLS)
	})
}
