package build

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

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

	// dmv1.RESPTLSRequired or RESPTLSOptional; missing = RESP is in the clear
	KeyRESPTLS = "resp-tls"
	// as KeyRESP and KeyRPC, of the external names, with commas between them
	KeyExternalRESP = "external-resp"
	KeyExternalRPC  = "external-endpoints"
)

// Keys of the Secret of an authority, besides those of the one that signs.
const (
	KeyNextAuthority    = "next.crt" // which is to replace it
	KeyNextAuthorityKey = "next.key"
	KeyFormerAuthority  = "former.crt"    // which it replaced
	KeyRotation         = "rotation.json" // what the operator knows of the replacement
)

// AuthoritySecret keeps a certificate authority of an index or a pool.
func AuthoritySecret(of, namespace string, labels map[string]string, p pki.Pair) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: meta(AuthorityName(of), namespace, labels), Type: corev1.SecretTypeTLS}
	s.Data = map[string][]byte{identity.CertFile: p.Cert, identity.KeyFile: p.Key}
	return s
}

// TLSSecret is the TLS directory of the servers of a pool. Its CA bundle is for servers of earlier
// versions, which know no other; the others go by what each authority speaks for.
func TLSSecret(pool, namespace, component string, p pki.Pair, trusted []identity.Authority) (*corev1.Secret, error) {
	authorities, err := identity.AppendAuthorities(nil, trusted...)
	if err != nil {
		return nil, err
	}
	var certs [][]byte
	for _, a := range trusted {
		certs = append(certs, a.PEM)
	}
	s := &corev1.Secret{ObjectMeta: meta(ServerTLSName(pool), namespace, selector(pool, component)), Type: corev1.SecretTypeTLS}
	s.Data = map[string][]byte{
		identity.CertFile: p.Cert, identity.KeyFile: p.Key,
		identity.CAFile: pki.Bundle(certs...), identity.AuthoritiesFile: authorities,
	}
	return s, nil
}

// RequireTLS says in the TLS Secret of memory servers which indexes must come to the fabric under
// TLS.
func RequireTLS(secret *corev1.Secret, indexes []*dmv1.DMIndex) {
	var names []*url.URL
	for _, index := range indexes {
		names = append(names, identity.Index(string(index.UID)))
	}
	if len(names) > 0 {
		secret.Data[identity.FabricFile] = identity.AppendFabric(nil, names...)
	}
}

// KeySalt is the salt of digests of an index's keys.
func KeySalt(index *pki.Authority) ([]byte, error) { return index.Salt("salt of keys") }

// OperatorSpeaks is the authority by which the operator calls memory servers: their pool's own.
func OperatorSpeaks(a *pki.Authority) []identity.Authority { return speak(a, identity.Operator()) }

// PoolSpeaks is the authority of a memory pool, to its servers: the operator calls them by it, and
// where volumes have copies they call each other.
func PoolSpeaks(pool *dmv1.DMMemoryPool, a *pki.Authority, copies bool) []identity.Authority {
	all := OperatorSpeaks(a)
	if copies {
		all = append(all, MemorySpeaks(pool, a)...)
	}
	return all
}

// IndexSpeaks is the authority of an index, to memory servers.
func IndexSpeaks(index *dmv1.DMIndex, a *pki.Authority) []identity.Authority {
	return speak(a, identity.Index(string(index.UID)))
}

// OwnSpeaks is the authority of an index, to its compute servers: the operator calls them by it.
func OwnSpeaks(index *dmv1.DMIndex, a *pki.Authority) []identity.Authority {
	return speak(a, identity.Operator(), identity.Index(string(index.UID)))
}

// MemorySpeaks is the authority of a memory pool, to compute servers.
func MemorySpeaks(pool *dmv1.DMMemoryPool, a *pki.Authority) []identity.Authority {
	var names []*url.URL
	for _, domain := range podDomains(pool.Name, pool.Namespace) {
		names = append(names, identity.Pool(domain))
	}
	return speak(a, names...)
}

// speak lets an authority speak for what names say, and those that are trusted beside it.
func speak(a *pki.Authority, names ...*url.URL) (all []identity.Authority) {
	for _, cert := range a.Trusted() {
		all = append(all, identity.Authority{PEM: cert, For: names})
	}
	return all
}

// MemoryLeaf is the certificate of the memory servers of a pool. Where volumes have copies, servers
// send each other their changes by it: it says the pool, and is good for clients.
func MemoryLeaf(pool *dmv1.DMMemoryPool, copies bool) pki.Leaf {
	leaf := pki.Leaf{Name: "memory servers of " + pool.Name, DNS: podNames(pool.Name, pool.Namespace), Server: true}
	if copies {
		leaf.URI, leaf.Client = identity.Memory(string(pool.UID)), true
	}
	return leaf
}

// ComputeLeaf is the certificate of the compute servers of a pool: servers to programs and each
// other, clients of memory servers.
func ComputeLeaf(pool *dmv1.DMComputePool, index *dmv1.DMIndex, indexIdentity string) pki.Leaf {
	host, ns := pool.Spec.IndexName, pool.Namespace
	leaf := pki.Leaf{
		Name: "compute servers of " + pool.Name,
		DNS: append(podNames(pool.Name, ns), host, host+"."+ns, host+"."+ns+".svc", host+"."+ns+".svc.cluster.local",
			"localhost"),
		IPs:    []net.IP{net.IPv4(127, 0, 0, 1)}, // kubectl port-forward
		URI:    identity.Compute(indexIdentity),
		Server: true, Client: true,
	}
	for _, name := range index.Spec.Endpoints.ExternalNames {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else if !slices.Contains(leaf.DNS, name) {
			leaf.DNS = append(leaf.DNS, name)
		}
	}
	return leaf
}

func podNames(pool, namespace string) []string {
	domains := podDomains(pool, namespace)
	return []string{"*." + domains[0], "*." + domains[1]}
}

// podDomains are what the host names of a pool's pods end in.
func podDomains(pool, namespace string) [2]string {
	base := fmt.Sprintf("%s.%s.svc", pool, namespace)
	return [2]string{base, base + ".cluster.local"}
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
	if mode := index.Spec.Endpoints.RESP.TLS.Mode; mode != "" && mode != dmv1.RESPTLSOff {
		s.Data[KeyRESPTLS] = []byte(mode)
	}
	// One for many names is of certificates; nobody can connect to it.
	wild := func(name string) bool { return strings.HasPrefix(name, "*.") }
	if names := slices.DeleteFunc(slices.Clone(index.Spec.Endpoints.ExternalNames), wild); len(names) > 0 {
		s.Data[KeyExternalRESP], s.Data[KeyExternalRPC] = each(names, config.PortRESP), each(names, config.PortRPC)
	}
	return s
}

// each are the addresses of hosts at a port.
func each(hosts []string, port int) []byte {
	var all []string
	for _, h := range hosts {
		all = append(all, net.JoinHostPort(h, strconv.Itoa(port)))
	}
	return []byte(strings.Join(all, ","))
}

// Keys of the Secret with the passwords.
const (
	KeyDefaultACL = "default.acl"    // what compute servers read
	KeyPasswords  = "passwords.json" // what the operator knows of them
)

// KeyUsersACL is the key of the Secret <index>-users, which is written by whoever administers the
// index.
const KeyUsersACL = "users.acl"

// DefaultACL is the ACL file with the user default, whose passwords have these digests.
func DefaultACL(digests []string) string {
	return "user default on ~* +@all #" + strings.Join(digests, " #") + "\n"
}

// AuthSecret has the digests of the passwords that are right, and the state of their rotation.
func AuthSecret(index *dmv1.DMIndex, acl string, state []byte) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: meta(AuthName(index.Name), index.Namespace, map[string]string{dmv1.LabelIndex: index.Name})}
	s.Data = map[string][]byte{KeyDefaultACL: []byte(acl), KeyPasswords: state}
	return s
}

// ServiceHost is the host name of the client Service.
func ServiceHost(index *dmv1.DMIndex) string { return index.Name + "." + index.Namespace + ".svc" }
