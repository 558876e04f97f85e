package build

import (
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/identity"
)

// Keys of the connection Secret.
const (
	KeyPassword = "password"
	KeyCA       = identity.CAFile
	KeyHost     = "host"
	KeyRESP     = "resp"      // host:port for Redis clients
	KeyRPC      = "endpoints" // host:port for the SDK, as client.SecretEndpoints has it
)

// AuthoritySecret keeps a certificate authority of an index or a pool.
func AuthoritySecret(of, namespace string, labels map[string]string, p pki.Pair) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: meta(AuthorityName(of), namespace, labels), Type: corev1.SecretTypeTLS}
	s.Data = map[string][]byte{identity.CertFile: p.Cert, identity.KeyFile: p.Key}
	return s
}

// TLSSecret is the TLS directory of the servers of a pool.
func TLSSecret(pool, namespace, component string, p pki.Pair, trusted []byte) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: meta(ServerTLSName(pool), namespace, selector(pool, component)), Type: corev1.SecretTypeTLS}
	s.Data = map[string][]byte{identity.CertFile: p.Cert, identity.KeyFile: p.Key, identity.CAFile: trusted}
	return s
}

// MemoryLeaf is the certificate of the memory servers of a pool.
func MemoryLeaf(pool *dmv1.DMMemoryPool) pki.Leaf {
	return pki.Leaf{Name: "memory servers of " + pool.Name, DNS: podNames(pool.Name, pool.Namespace), Server: true}
}

// ComputeLeaf is the certificate of the compute servers of a pool: servers to programs and each
// other, clients of memory servers.
func ComputeLeaf(pool *dmv1.DMComputePool, indexIdentity string) pki.Leaf {
	host, ns := pool.Spec.IndexName, pool.Namespace
	return pki.Leaf{
		Name: "compute servers of " + pool.Name,
		DNS: append(podNames(pool.Name, ns), host, host+"."+ns, host+"."+ns+".svc", host+"."+ns+".svc.cluster.local",
			"localhost"),
		IPs:    []net.IP{net.IPv4(127, 0, 0, 1)}, // kubectl port-forward
		URI:    identity.Compute(indexIdentity),
		Server: true, Client: true,
	}
}

func podNames(pool, namespace string) []string {
	base := fmt.Sprintf("*.%s.%s.svc", pool, namespace)
	return []string{base, base + ".cluster.local"}
}

// ConnectionSecret is what a program needs to use an index.
func ConnectionSecret(index *dmv1.DMIndex, password, ca []byte) *corev1.Secret {
	host := ServiceHost(index)
	s := &corev1.Secret{ObjectMeta: meta(ConnectionName(index.Name), index.Namespace, map[string]string{dmv1.LabelIndex: index.Name})}
	s.Data = map[string][]byte{
		KeyPassword: password,
		KeyCA:       ca,
		KeyHost:     []byte(host),
		KeyRESP:     []byte(at(host, config.PortRESP)),
		KeyRPC:      []byte(at(host, config.PortRPC)),
	}
	return s
}

// ServiceHost is the host name of the client Service.
func ServiceHost(index *dmv1.DMIndex) string { return index.Name + "." + index.Namespace + ".svc" }
