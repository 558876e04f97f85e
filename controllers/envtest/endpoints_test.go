package envtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	serverconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/logs"
)

// secret is a key of a Secret.
func (c *cluster) secret(name, key string) string {
	c.t.Helper()
	s := &corev1.Secret{}
	if err := c.get(name, s); err != nil {
		c.t.Fatal(err)
	}
	return string(s.Data[key])
}

// env are variables of a pod's container, and what is mounted at the directory of RESP's
// certificate.
func (c *cluster) env(pod string, names ...string) (found []string) {
	p := &corev1.Pod{}
	if c.get(pod, p) != nil {
		return []string{"gone"}
	}
	for _, e := range p.Spec.Containers[0].Env {
		if slices.Contains(names, e.Name) {
			found = append(found, e.Name+"="+e.Value)
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Name == "resp-tls" {
			found = append(found, "secret "+v.Secret.SecretName)
		}
	}
	return found
}

// TestEndpoints: the Service, the names in certificates and in the Secret of programs follow the
// spec, and no server is replaced for them.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	before := fmt.Sprint(c.pods("demo-compute"))
	service := func() string {
		s := &corev1.Service{}
		if err := c.get("demo", s); err != nil {
			return err.Error()
		}
		return fmt.Sprint(s.Spec.Type, " ", s.Annotations["cloud/lb"], " ", len(s.Spec.Ports))
	}
	c.equal("the Service", "ClusterIP  2", func() any { return service() })
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() {
		i.Spec.Endpoints.Service = dmv1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Annotations: map[string]string{"cloud/lb": "internal"}}
		i.Spec.Endpoints.ExternalNames = []string{"demo.example.com", "*.demo.example.com", "192.0.2.7", "2001:db8::7"}
	})
	c.equal("the Service", "LoadBalancer internal 2", func() any { return service() })
	c.equal("the certificate", "[demo.example.com *.demo.example.com] [192.0.2.7 2001:db8::7]", func() any {
		cert, err := pki.Parse([]byte(c.secret("demo-compute-tls", identity.CertFile)))
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(slices.DeleteFunc(cert.DNSNames, func(n string) bool { return !strings.HasSuffix(n, ".com") }), cert.IPAddresses[1:])
	})
	c.equal("external RESP", "demo.example.com:6379,192.0.2.7:6379,[2001:db8::7]:6379", func() any { return c.secret("demo-conn", build.KeyExternalRESP) })
	c.equal("external SDK", "demo.example.com:7480,192.0.2.7:7480,[2001:db8::7]:7480", func() any { return c.secret("demo-conn", build.KeyExternalRPC) })
	c.patch("demo", i, func() { i.Spec.Endpoints = dmv1.EndpointsSpec{} })
	c.equal("the Service", "ClusterIP  2", func() any { return service() })
	c.equal("external RESP", "", func() any { return c.secret("demo-conn", build.KeyExternalRESP) })
	c.quiet(time.Second)
	if after := fmt.Sprint(c.pods("demo-compute")); after != before {
		t.Errorf("compute servers %s were replaced by %s", before, after)
	}
}

// TestRESPTLSAndLog: servers get what the spec says, and are replaced when it changes; what the
// spec says of logs comes before what the operator says.
func TestRESPTLSAndLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	text := strings.Replace(index, "  design: DEX", "  design: DEX\n  log: {level: debug, format: json}\n  endpoints: {resp: {tls: {mode: Required}}}", 1)
	c.create(text, "demo")
	c.available("demo")
	names := []string{serverconfig.EnvRESPTLS, serverconfig.EnvRESPTLSDir, logs.EnvLevel, logs.EnvFormat}
	want := "[DMINDEX_RESP_TLS=required DMINDEX_LOG_LEVEL=debug DMINDEX_LOG_FORMAT=json]"
	if got := fmt.Sprint(c.env(c.pods("demo-compute")[0], names...)); got != want {
		t.Errorf("a compute pod has %s, want %s", got, want)
	}
	if got := fmt.Sprint(c.env("demo-memory-0", names...)); got != "[DMINDEX_LOG_LEVEL=debug DMINDEX_LOG_FORMAT=json]" {
		t.Errorf("a memory pod has %s", got)
	}
	c.equal("programs are told", "Required", func() any { return c.secret("demo-conn", build.KeyRESPTLS) })
	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() {
		i.Spec.Log = dmv1.LogSpec{}
		i.Spec.Endpoints.RESP.TLS = dmv1.RESPTLSSpec{Mode: dmv1.RESPTLSOptional, SecretName: "mine"}
	})
	c.eventually("all compute pods are replaced", func() string {
		for _, p := range c.pods("demo-compute") {
			if got := fmt.Sprint(c.env(p, names...)); got != "[DMINDEX_RESP_TLS=optional DMINDEX_RESP_TLS_DIR=/etc/dmindex/resp-tls secret mine]" {
				return p + " has " + got
			}
		}
		return ""
	})
	c.equal("programs are told", "Optional", func() any { return c.secret("demo-conn", build.KeyRESPTLS) })
}
